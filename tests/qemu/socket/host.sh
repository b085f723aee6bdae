# shellcheck shell=bash
# A device on a socket, with driver and device both in the guest: the tests of the other devices without a bus.
give_device_tests
give tests/qemu/local.sh=/local.sh
