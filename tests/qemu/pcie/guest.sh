# shellcheck shell=sh disable=SC2034,SC2154,SC3043
. /lib.sh
. /device.sh

act() {
    local action="$1"
    shift
    host "$action" "$device" "$@"
}

# at DEVICE ADDRESS: selects the device for the following tests
at() {
    device=$1
    address=$2
    selector=pcie:$2
    name=$3
}

has_function() {
    [ -e "/sys/bus/pci/devices/$address" ]
}

gone() {
    ! has_function
}

# The administrator's part: binds the device to VFIO.
bind() {
    wait_for 30 has_function
    echo vfio-pci >"/sys/bus/pci/devices/$address/driver_override"
    echo "$address" >/sys/bus/pci/drivers_probe
}

# The kernel removes the device while a driver is using it, which has to release it, and finds it again.
remove() {
    echo 1 >"/sys/bus/pci/devices/$address/remove" &
}

rescan() {
    wait_for 30 gone
    echo 1 >/sys/bus/pci/rescan
    bind
}

# QEMU connects to a device's process once, when it creates the device: a new process needs a new device.
revive() {
    gone || act unplug
    wait_for 30 gone
    act start "$@"
    act plug
    bind
}

systemd-udevd --daemon >/dev/null 2>&1
at pcie0 0000:00:02.0 pcie
run 6 tilewright run /data/model.twb --device "$selector" --ids "$prompt" -n 1
check 'before VFIO is loaded: the message says what to do' sh -c 'grep -Eq "vfio" /tmp/err'
echo "# it says: $err"
modprobe vfio-pci
modprobe vfio_iommu_type1
run 6 tilewright run /data/model.twb --device "$selector" --ids "$prompt" -n 1
check 'before it is bound: the message says what to do' sh -c 'grep -Eq "vfio-pci|driver_override" /tmp/err'
echo "# it says: $err"
bind
check "$name: it is listed as ready" wait_for 30 listed_as ready
tilewright devices | sed -n 's/^.*pcie:/# pcie:/p'
permission
works
one_holder
lost 'removed by the kernel' "$selector" remove -- rescan
frozen

at pcie1 0000:01:00.0 'pcie below a port'
bind
works
lost 'unplugged' "$selector" 'act unplug' -- 'act kill' revive
killed
wrong_version
finish
