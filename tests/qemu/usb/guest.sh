# shellcheck shell=sh disable=SC2034,SC2154,SC3043
. /lib.sh
. /device.sh
. /usb.sh

device=usb0
act() {
    local action="$1"
    shift
    host "$action" "$device" "$@"
}

systemd-udevd --daemon >/dev/null 2>&1
run 6 tilewright run /data/model.twb --device usb --ids "$prompt" -n 1
check 'before the kernel has USB: the message says so' sh -c 'grep -q "no device on USB" /tmp/err'
modprobe xhci-pci

found 'usb super' 5000
permission
selectors
works
one_holder
lost 'unplugged' "$selector" 'act unplug' -- 'act plug'
killed
frozen
wrong_version

act end
check 'usb super: it is gone from the list' wait_for 30 disappears
device=usb1
act start
found 'usb high' 480
works
lost 'unplugged' "$selector" 'act unplug' -- 'act plug'
killed

device=usb0
act start
two_listed() {
    [ "$(tilewright devices | grep -c ' usb:.* ready ')" = 2 ]
}
check 'two devices: both are listed as ready' wait_for 30 two_listed
for selector in $(tilewright devices | awk '$2 ~ /^usb:/ { print $2 }'); do
    check "two devices: a model runs on each" generate root
done
finish
