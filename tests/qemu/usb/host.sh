# shellcheck shell=bash
# Devices on the bus of a PC: first one at super speed, then one at high speed.
usb usb0 --speed super
usb_absent usb1 --speed high
give_device_tests
give tests/qemu/usb.sh=/usb.sh
