#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pcie.sh: boots a guest with a device on its PCIe bus and an echo server, and measures the round trip (pcie_bench.c).
# Needs the kernel of tools/qemu/kernel, `make all build/tests/bench/pcie_bench`, and two idle processors.
set -eu
cd "$(dirname "$0")/../.."
tilewright=${TW_BIN:-$PWD/build/tilewright}
bench=${TW_BUILD:-$PWD/build}/tests/bench/pcie_bench
work=$(mktemp -d)
ram=/dev/shm/tw-bench.$$
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$work" "$ram"' EXIT

cat >"$work/guest.sh" <<'GUEST'
modprobe vfio-pci
modprobe vfio_iommu_type1
for f in 0000:00:02.0 0000:00:03.0; do
    echo vfio-pci >/sys/bus/pci/devices/$f/driver_override
    echo $f >/sys/bus/pci/drivers_probe
done
pcie_bench 0000:00:02.0 0000:00:03.0
GUEST
tools/qemu/kernel
tools/qemu/initramfs "$work/guest.cpio" "$work/guest.sh" "$bench"
"$tilewright" emulate --ivshmem "$work/device" --guest-ram "$ram" --monitor "$work/monitor" --requester 0010 -t 1 -q &
"$bench" echo "$work/echo" &
while [ ! -S "$work/device" ] || [ ! -S "$work/echo" ]; do sleep 0.1; done
timeout 300 qemu-system-x86_64 -accel tcg,thread=multi -machine q35,memory-backend=ram -smp 1 -m 512 \
    -object "memory-backend-file,id=ram,size=512M,mem-path=$ram,share=on" \
    -display none -nodefaults -no-user-config -no-reboot -serial stdio -monitor "unix:$work/monitor,server=on,wait=off" \
    -device isa-debug-exit,iobase=0xf4,iosize=4 -device intel-iommu,intremap=on,eim=off \
    -kernel build/qemu/kernel/vmlinux -initrd "$work/guest.cpio" \
    -append "console=ttyS0 panic=-1 quiet mitigations=off no_timer_check ${TW_CLOCK:-tsc=reliable} intel_iommu=on" \
    -chardev "socket,id=device,path=$work/device" -device ivshmem-doorbell,chardev=device,vectors=1,addr=02.0 \
    -chardev "socket,id=echo,path=$work/echo" -device ivshmem-doorbell,chardev=echo,vectors=1,addr=03.0 \
    </dev/null | tr -d '\r' || true # its exit status is set by the guest and never 0
