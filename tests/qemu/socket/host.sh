# shellcheck shell=bash
# A device behind a socket, driver and device both in the guest: what the other devices go through without a bus.
give tests/qemu/device.sh=/device.sh "$tests/driver/outside_device_test" "$model=/$model"
