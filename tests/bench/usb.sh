#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usb.sh: boots a guest with a device on its USB bus, at super and at high speed, and measures the link against a bare
# libusb loop (usb_bench.c). Needs `make all build/tests/bench/usb_bench`, and two idle processors.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/guest.sh" <<'GUEST'
. /lib.sh
appears() { tilewright devices | grep -q ' usb:.*ready'; }
modprobe xhci-pci
echo 128 >/sys/module/usbcore/parameters/usbfs_memory_mb
wait_for 60 appears || exit 1
tilewright devices | grep ' usb:'
usb_bench
GUEST
tools/qemu/kernel
tools/qemu/initramfs "$work/guest.cpio" "$work/guest.sh" "${TW_BIN:-build/tilewright}" \
    "${TW_BUILD:-build}/tests/bench/usb_bench"
for speed in super high; do
    tools/qemu/boot --initrd "$work/guest.cpio" --name usb_bench --usb "usb0 --speed $speed -t 1"
done
