# shellcheck shell=sh disable=SC2034,SC2154,SC3043
. /lib.sh
. /device.sh

cycles=$(sed -n 's/.*cycles=\([0-9][0-9]*\).*/\1/p' /proc/cmdline)
cycles=${cycles:-8}
name='usb'
selector=usb:replug
act() {
    local action="$1"
    shift
    host "$action" usb0 "$@"
}

failed='' # why a cycle failed; the first failure ends the test
fails() {
    failed="cycle $cycle: $*"
}

# The device is taken away from a driver that is using it; afterwards the next driver works.
cycle() { # cycle AWAY BACK
    tilewright bench /data/model.twb --device "$selector" -r 1000 >/tmp/holder.out 2>/tmp/holder.err </dev/null &
    holder=$!
    wait_for 60 listed_as busy || fails 'the driver does not open it' "$(cat /tmp/holder.err)"
    usleep $((cycle * 7919 % 500 * 1000))
    act "$1"
    wait_for 60 holder_gone || fails 'the driver is still running 60 s later'
    wait "$holder"
    [ $? = 6 ] || fails 'the driver ends with another status' "$(cat /tmp/holder.err)"
    act "$2"
    wait_for 60 listed_as ready || fails 'it does not come back'
    generate root || fails 'the next driver does not work' "$err"
}

modprobe xhci-pci
check 'it is found' wait_for 30 listed_as ready
generate root
act use
before=$answer
cycle=0
while [ "$cycle" -lt "$cycles" ] && [ -z "$failed" ]; do
    cycle=$((cycle + 1))
    cycle unplug plug
done
same "$cycles times unplugged in mid-token: the driver ends, the next one works" '' "$failed"
act use
echo "# descriptors and KiB of the device's process: $before, then $answer"
same 'the device has as many descriptors open as before' "${before% *}" "${answer% *}"
# The device's buffers are its own from the start, 34 MiB of packets and 16 of messages, and are touched one after
# another.
check 'and not much more memory' test "${answer#* }" -lt $((${before#* } + 51200))

cycle=0
while [ "$cycle" -lt "$cycles" ] && [ -z "$failed" ]; do
    cycle=$((cycle + 1))
    cycle kill start
done
same "$cycles times killed in mid-token: the driver ends, the next one works" '' "$failed"
finish
