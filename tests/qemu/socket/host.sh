# shellcheck shell=bash
# A device behind a socket, driver and device both in the guest: what the other devices go through without a bus.
give_device_tests
give tests/qemu/local.sh=/local.sh
