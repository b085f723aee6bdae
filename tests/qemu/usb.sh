# SPDX-License-Identifier: Apache-2.0
# What a device on USB must do besides device.sh, whoever serves it: found at the speed that it has, and opened by whom
# the udev rule lets.
# shellcheck shell=sh disable=SC2154,SC2034,SC3043 # lib.sh, device.sh and the scenario set them

appears() {
    selector=$(tilewright devices | awk '$2 ~ /^usb:/ { print $2; exit }')
    [ -n "$selector" ]
}

disappears() {
    ! appears
}

# found NAME SPEED: the one device there is, as `name` and `selector`; SPEED as sysfs has it, in Mbit/s
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

# With udevd at work, and no rule of ours yet.
permission() {
    run_as user 0 tilewright devices
    check "$name, no rule: a user sees it and that it is not theirs" has "$selector +no permission .*60-tilewright.rules"
    refuses "$name, no rule: a user is told the rule" user 6 '60-tilewright.rules' \
        tilewright run /data/model.twb --device "$selector" --ids "$prompt" -n 1
    echo "# it says: $err"
    run_as user 0 tilewright doctor
    check "$name, no rule: doctor tells the rule" has '60-tilewright.rules'

    mkdir -p /etc/udev/rules.d
    cp /60-tilewright.rules /etc/udev/rules.d/
    udevadm control --reload
    udevadm trigger --subsystem-match=usb --action=add
    udevadm settle -t 60
    check "$name, with the rule: the group's members run a model" generate member
    refuses "$name, with the rule: others do not" user 6 '60-tilewright.rules|group' \
        tilewright run /data/model.twb --device "$selector" --ids "$prompt" -n 1
    decodes "$name, for a member of the group" "$selector" member
}

# The short selectors.
selectors() {
    local wanted=$selector path
    path=$(basename "$(dirname "$(grep -lix 1209 /sys/bus/usb/devices/*/idVendor)")")
    for selector in usb "usb:$path"; do
        check "$name: it is $selector, too" generate root
    done
    selector=$wanted
    refuses "$name: another name is refused, with those that there are" root 6 "there are? .*$wanted" \
        tilewright run /data/model.twb --device usb:9-9 --ids "$prompt" -n 1
}
