# shellcheck shell=bash
# The board's daemon and its host in one kernel: a gadget by FunctionFS, on a controller that is wired to a port of this
# machine (dummy_hcd).
give_device_tests
give tests/qemu/usb.sh=/usb.sh tests/qemu/local.sh=/local.sh
