# shellcheck shell=bash
# Unplugged and killed repeatedly in the middle of tokens; 8 times, or 200 times with TW_LONG=1.
usb usb0 --speed super --serial replug
give_device_tests
if [ -n "${TW_LONG:-}" ]; then
    qemu --append cycles=200 --timeout 7200
fi
