# shellcheck shell=sh disable=SC2034,SC2154
. /lib.sh
. /device.sh
. /usb.sh
. /local.sh
serve='--gadget'

# The gadget on a controller of each speed in turn.
board() { # board NAME SUPER SPEED
    modprobe dummy_hcd "is_super_speed=$2"
    act start
    found "$1" "$3"
}

systemd-udevd --daemon >/dev/null 2>&1
modprobe libcomposite
modprobe usb_f_fs

board 'gadget super' 1 5000
permission
works
one_holder
killed
frozen
wrong_version
act end
check 'gadget super: it is gone from the list' wait_for 30 disappears
rmmod dummy_hcd

board 'gadget high' 0 480
works
killed
act end
check 'gadget high: it is gone from the list' wait_for 30 disappears
finish
