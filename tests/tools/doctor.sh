#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tilewright doctor on simulated computers (--root): each thing that can be missing, and its fix.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh
XDG_RUNTIME_DIR=$work/run
export XDG_RUNTIME_DIR
mkdir -p "$XDG_RUNTIME_DIR"
pc=$work/pc

# put FILE LINE, link NAME TARGET: in that computer
put() {
    mkdir -p "$pc/$(dirname "$1")"
    printf '%s\n' "$2" >"$pc/$1"
}
link() {
    mkdir -p "$pc/$(dirname "$1")"
    ln -sfn "$2" "$pc/$1"
}
# says NAME STATE CHECK PATTERN [REMEDY]: the report has this line, with what was found and the remedy
says() {
    run 0 doctor --root "$pc" --json
    if got=$(python3 -c '
import json, re, sys
state, check, found, remedy = sys.argv[1:5]
for line in json.load(open(sys.argv[5])):
    if (line["check"] == check and line["state"] == state and re.search(found, line["found"])
            and re.search(remedy, line.get("remedy", ""))):
        sys.exit(0)
print(open(sys.argv[5]).read())
sys.exit(1)' "$2" "$3" "$4" "${5:-}" "$work/out"); then ok "$1"; else not_ok "$1" "$got" "$err"; fi
}
silent() { # silent NAME CHECK PATTERN: no such line
    run 0 doctor --root "$pc"
    check "$1" sh -c '! grep -Eq "$2.*$3" "$1"' _ "$work/out" "$2" "$3"
}

mkdir "$pc"
says 'a container without anything: the emulator works' ok emulator 'pass its self-test'
says '... no udev' missing 'udev rule' 'udev is not running here' 'on the host: tilewright doctor --udev-rule'
says '... no USB' missing usb '/sys/bus/usb does not exist' 'modprobe usbcore'
says '... no PCI' missing pcie '/sys/bus/pci does not exist'
same 'which is not a failure' 0 "$status"
run 0 doctor --root "$pc"
n=$(grep -c '^missing' "$work/out")
same 'the last line sums up' \
    "The emulator works. $n things are missing for USB and PCIe; ignore them if you have no such device." "$(tail -n 1 "$work/out")"
refuses 'a root that is not there' 2 'option --root: .*not a readable folder' doctor --root "$work/nowhere"

# ---- the rule
put run/udev/control ''
says 'no rule' missing 'udev rule' 'not installed' 'sudo tee /etc/udev/rules.d/60-tilewright.rules && sudo udevadm control --reload'
put usr/lib/udev/rules.d/60-tilewright.rules '# an old one'
says 'an outdated rule' missing 'udev rule' '/usr/lib/udev/rules.d/60-tilewright.rules is of another version' 'doctor --udev-rule'
mkdir -p "$pc/etc/udev/rules.d"
"$TW_BIN" doctor --udev-rule >"$pc/etc/udev/rules.d/60-tilewright.rules"
says 'the current rule in the folder that udev reads first' ok 'udev rule' '/etc/udev/rules.d/60-tilewright.rules is of this version'
link etc/udev/rules.d/60-tilewright.rules /dev/null
says 'a rule that is masked' missing 'udev rule' 'was changed'
rm "$pc/etc/udev/rules.d/60-tilewright.rules"
"$TW_BIN" doctor --udev-rule >"$pc/usr/lib/udev/rules.d/60-tilewright.rules"
rm "$pc/run/udev/control"
says 'a rule, but udev is not running' missing 'udev rule' 'udev is not running' 'systemctl start systemd-udevd'

# ---- limits
put proc/sys/net/core/wmem_max 4096
says 'socket buffers that are too small' note sockets '4 KiB' 'sysctl -w net.core.wmem_max'
put proc/sys/net/core/wmem_max 212992
says 'socket buffers that are large enough' ok sockets '208 KiB'
slots=$(sed -n 's/^#define TW_PCIE_SLOTS \([0-9]*\)u.*/\1/p' driver/transport/pcie/pcie_host_pipe.h)
pages=$(sed -n 's/^#define TW_PCIE_SLOT_BYTES (\([0-9]*\)u \* 4096u).*/\1/p' driver/transport/pcie/pcie_host_pipe.h)
need=$((4 + 2 * slots * pages * 4))
# Without CAP_IPC_LOCK, which root has, the limit applies.
if command -v setpriv >/dev/null && setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock true 2>/dev/null; then
    limited() { # limited BYTES
        prlimit --memlock="$1" setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "$TW_BIN" doctor --root "$pc" \
            >"$work/limit" 2>/dev/null
    }
    if limited 65536; then
        check 'too little memory may be locked: the needed amount is printed' grep -Eq 'missing *memlock *64 KiB .*needs '"$need"' .2 x '"$slots"' packets of '"$((pages * 4))"' KiB and a page' "$work/limit"
        check '... with the command' grep -q 'limits.d/tilewright.conf.*prlimit' "$work/limit"
    fi
    if limited 67108864; then
        check 'enough may be locked' grep -q 'ok *memlock' "$work/limit"
    fi
else
    echo 'skip no setpriv'
fi

# ---- USB
mkdir -p "$pc/sys/bus/usb/devices"
says 'USB without device nodes' missing usb 'cannot read /dev/bus/usb' '--device /dev/bus/usb'
mkdir -p "$pc/dev/bus/usb"
says 'USB without a controller' missing usb 'no controller'
mkdir -p "$pc/dev/bus/usb/001"
says 'USB' ok usb 'supports USB'
put sys/module/usbcore/parameters/usbfs_memory_mb 16
says 'too little memory for transfers' missing 'usbfs memory' '16 MB' 'echo 128 . sudo tee /sys/module/usbcore/parameters/usbfs_memory_mb'
put sys/module/usbcore/parameters/usbfs_memory_mb 0
says 'no limit' ok 'usbfs memory' 'no limit'
board() { # board NAME VENDOR PRODUCT SPEED VERSION NUMBER
    d=sys/bus/usb/devices/$1
    put "$d/idVendor" "$2"
    put "$d/idProduct" "$3"
    put "$d/speed" "$4"
    put "$d/version" " $5"
    put "$d/busnum" 1
    put "$d/devnum" "$6"
    put "dev/bus/usb/001/$(printf %03d "$6")" ''
}
board 1-1 046d c52b 12 2.00 2
silent 'a mouse is ignored' usb '1-1'
board 1-2 1209 000c 5000 3.20 3
says 'a board at full speed' ok 'usb speed' 'usb:1-2: 5000 Mbit/s'
says 'that can be opened' ok 'usb access' '/dev/bus/usb/001/003'
board 1-2 1209 000c 480 2.10 3
says 'a board that fell back to USB 2' missing 'usb speed' 'usb:1-2: 480 Mbit/s, but it can do USB 3' 'USB 3 port'
board 1-2 1209 000d 12 2.00 3
says 'a board in recovery on a slow port' missing 'usb speed' 'usb:1-2: 12 Mbit/s, far too slow' 'another port'
board 1-3 abcd 0001 480 2.00 4
put sys/bus/usb/devices/1-3:1.0/bInterfaceClass ff
put sys/bus/usb/devices/1-3:1.0/bInterfaceSubClass 54
put sys/bus/usb/devices/1-3:1.0/bInterfaceProtocol 00
silent 'a vendor class with another protocol is ignored' usb '1-3'
put sys/bus/usb/devices/1-3:1.1/bInterfaceClass ff
put sys/bus/usb/devices/1-3:1.1/bInterfaceSubClass 54
put sys/bus/usb/devices/1-3:1.1/bInterfaceProtocol 57
says 'a board with a product id of its own' ok 'usb speed' 'usb:1-3: 480 Mbit/s'
rm "$pc/dev/bus/usb/001/004"
says 'a board without its node' missing 'usb access' 'usb:1-3: cannot open .*: No such file' '/dev/bus/usb:/dev/bus/usb'

# ---- PCIe
mkdir -p "$pc/sys/bus/pci/devices"
says 'no IOMMU' missing iommu 'no IOMMU groups' 'firmware setup'
put proc/cpuinfo "$(printf 'processor\t: 0\nvendor_id\t: AuthenticAMD')"
says 'no IOMMU on AMD' missing iommu 'no IOMMU groups' 'enable AMD-Vi .IOMMU.'
check '... without the option for Intel' sh -c '! grep -q intel_iommu "$1"' _ "$work/out"
put proc/cmdline 'ro amd_iommu=off quiet'
says 'one that was switched off' missing iommu 'no IOMMU groups' "sed -i 's/amd_iommu=off"
put proc/cpuinfo "$(printf 'processor\t: 0\nvendor_id\t: GenuineIntel')"
put proc/cmdline 'ro quiet'
says 'no IOMMU on Intel' missing iommu 'no IOMMU groups' 'intel_iommu=on'
run 0 doctor --root "$pc" --json
python3 -c '
import json, sys
remedy = [x["remedy"] for x in json.load(open(sys.argv[1])) if x["check"] == "iommu"][0]
print(remedy.split("; sudo update-grub")[0].replace("sudo ", "").replace("/etc/default/grub", sys.argv[2]))' \
    "$work/out" "$work/grub" >"$work/remedy"
echo 'GRUB_CMDLINE_LINUX="quiet"' >"$work/grub"
sh "$work/remedy"
sh "$work/remedy"
same 'the command, run twice, adds the option once' 'GRUB_CMDLINE_LINUX="intel_iommu=on quiet"' "$(cat "$work/grub")"
put proc/cmdline 'ro intel_iommu=on quiet'
says 'enabled in the kernel, but not in the firmware' missing iommu 'no IOMMU groups' 'enable VT-d.*already'
put proc/cmdline 'ro quiet'
says 'no VFIO' missing vfio '/dev/vfio/vfio does not exist' 'sudo modprobe vfio-pci'
mkdir -p "$pc/sys/kernel/iommu_groups/5/devices"
put dev/vfio/vfio ''
says 'an IOMMU' ok iommu 'is on'
says 'VFIO without its driver' missing vfio 'vfio-pci is not' 'sudo modprobe vfio-pci'
mkdir -p "$pc/sys/bus/pci/drivers/vfio-pci"
says 'VFIO' ok vfio 'loaded'
pci() { # pci ADDRESS VENDOR DEVICE CLASS DRIVER GROUP
    d=sys/bus/pci/devices/$1
    put "$d/vendor" "$2"
    put "$d/device" "$3"
    put "$d/class" "$4"
    rm -f "$pc/$d/driver" "$pc/$d/iommu_group"
    [ -z "$5" ] || link "$d/driver" "../../../bus/pci/drivers/$5"
    if [ -n "$6" ]; then
        link "$d/iommu_group" "../../../kernel/iommu_groups/$6"
        link "sys/kernel/iommu_groups/$6/devices/$1" "../../../../bus/pci/devices/$1"
    fi
}
pci 0000:00:04.0 0x1af4 0x1110 0x050000 '' ''
says 'a card without a group' missing 'iommu group' 'pcie:0000:00:04.0 is not in an IOMMU group' 'intel_iommu=on'
pci 0000:00:04.0 0x1af4 0x1110 0x050000 '' 5
says 'a card without a driver' missing 'iommu group' 'not bound to vfio-pci' \
    'echo vfio-pci . sudo tee /sys/bus/pci/devices/0000:00:04.0/driver_override && echo 0000:00:04.0 . sudo tee /sys/bus/pci/drivers_probe'
pci 0000:00:04.0 0x1af4 0x1110 0x050000 ivshmem 5
says 'a card bound to another driver' missing 'iommu group' 'not bound to vfio-pci but to ivshmem' \
    'tee /sys/bus/pci/drivers/ivshmem/unbind /sys/bus/pci/drivers_probe'
pci 0000:00:04.0 0x1af4 0x1110 0x050000 vfio-pci 5
says 'a group without its node' missing 'iommu group' 'cannot open /dev/vfio/5: No such file' 'docker run --device /dev/vfio/5'
put dev/vfio/5 ''
says 'a viable group' ok 'iommu group' 'pcie:0000:00:04.0: group 5 is viable'
pci 0000:00:03.0 0x8086 0x1237 0x060400 pcieport 5
says 'a bridge in the group is harmless' ok 'iommu group' 'group 5 is viable'
pci 0000:00:05.0 0x8086 0x100e 0x020000 e1000 5
says 'another card in the group that is bound to a driver is not' missing 'iommu group' 'group 5 is not viable: driver e1000 uses 0000:00:05.0' \
    'echo 0000:00:05.0 . sudo tee /sys/bus/pci/drivers/e1000/unbind'

# ---- devices
"$TW_BIN" emulate --listen one >"$work/name" 2>/dev/null &
emulator=$!
trap 'kill -9 $emulator 2>/dev/null; rm -rf "$work"' EXIT
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
    [ -s "$work/name" ] && break
    sleep 0.1
done
says 'a device that is ready' ok device 'socket:one: ready'
kill -9 "$emulator"
wait "$emulator" 2>/dev/null
says 'a device that is gone' note device 'socket:one: gone' 'tilewright emulate --listen one'
finish
