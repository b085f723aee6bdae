# SPDX-License-Identifier: Apache-2.0
# Further tests for every device on USB: it is found, with its speed, and has several names.
# shellcheck shell=sh disable=SC2154,SC2034,SC3043 # lib.sh, device.sh and the scenario set them

appears() {
    selector=$(tilewright devices | awk '$2 ~ /^usb:/ { print $2; exit }')
    [ -n "$selector" ]
}

disappears() {
    ! appears
}

# found NAME SPEED: checks the only device present and sets `name` and `selector`; SPEED as in sysfs, in Mbit/s
found() {
    name=$1
    check "$name: it is found" wait_for 30 appears
    check "$name: it is ready" wait_for 30 listed_as ready
    check "$name: with the speed of its link" has_speed "$2"
    tilewright devices --device "$selector" | sed 's/^/# /'
}

has_speed() {
    local folder
    folder=$(grep -lix 1209 /sys/bus/usb/devices/*/idVendor) || return
    [ "$(cat "${folder%/idVendor}/speed")" = "$1" ]
}

# The short selectors.
selectors() {
    local wanted=$selector path
    path=$(basename "$(dirname "$(grep -lix 1209 /sys/bus/usb/devices/*/idVendor)")")
    for selector in usb "usb:$path"; do
        check "$name: it is also $selector" generate root
    done
    selector=$wanted
    refuses "$name: another name is refused, and the existing ones are listed" root 6 "there are? .*$wanted" \
        tilewright run /data/model.twb --device usb:9-9 --ids "$prompt" -n 1
}
