# SPDX-License-Identifier: Apache-2.0
# The tests for every device outside of the driver's process, whatever its medium. A scenario sources this file, sets
# these for the device under test, and calls the functions below:
#   name       in results
#   selector   that --device takes
#   act ACTION [OPTIONS]: acts on the device's process: kill, end, stop, cont, start
# shellcheck shell=sh disable=SC2154,SC3043 # lib.sh and the scenario set them

holder=''

# revive [OPTIONS]: replaces the device's process that has ended. A scenario may override it.
revive() {
    act start "$@"
}

listed_as() { # listed_as STATE: `tilewright devices` shows the device in that state
    tilewright devices --device "$selector" 2>/dev/null | grep -q " $1 "
}

generate() { # generate USER: two tokens
    run_as "$1" 0 tilewright run /data/model.twb --device "$selector" --ids "$prompt" -n 2 --print-ids
}

# ready NAME: the device is listed as ready, and a model runs on it
ready() {
    check "$1: it is listed as ready" wait_for 60 listed_as ready
    check "$1: a model runs" generate root
}

# Starts a driver in the background that generates without end, and waits until it does.
hold() {
    tilewright bench /data/model.twb --device "$selector" -r 1000 >/tmp/holder.out 2>/tmp/holder.err </dev/null &
    holder=$!
    wait_for 60 listed_as busy || not_ok "$name: a driver holds the device" "$(cat /tmp/holder.err)"
    sleep 1
}

holder_gone() {
    ! kill -0 "$holder"
}

# holder_ends NAME PATTERN: the driver ends in time, with a device error on one line that matches
holder_ends() {
    if ! wait_for 60 holder_gone; then
        not_ok "$1" "the driver is still running after 60 s" "$(tilewright devices)"
        kill -9 "$holder"
        return
    fi
    status=0
    wait "$holder" || status=$?
    err=$(cat /tmp/holder.err)
    if [ "$status" != 6 ] || ! printf '%s\n' "$err" | grep -Eq -- "$2"; then
        not_ok "$1" "exit status $status, no match for $2:" "$err"
    else
        ok "$1"
        echo "# it says: $err"
    fi
}

# Has udevd apply its rules, and tells whether a member of the group has access now. On a slow machine a worker of udevd
# that was busy while the rules were read again may still apply the old ones.
rule_applies() {
    udevadm trigger --action=add --subsystem-match=usb --subsystem-match=vfio
    udevadm settle -t 60
    run_as member 0 tilewright devices
    has "$selector +ready"
}

# With udevd running and our rule not installed a user is told about it; with the rule, members of the group have
# access.
permission() {
    run_as user 0 tilewright devices
    check "$name, no rule: devices shows a user that there is no permission" has "$selector +no permission"
    refuses "$name, no rule: the error names the rule" user 6 'rule' \
        tilewright run /data/model.twb --device "$selector" --ids "$prompt" -n 1
    echo "# it says: $err"
    run_as user 0 tilewright doctor
    check "$name, no rule: doctor prints how to install it" has '/etc/udev/rules.d/60-tilewright.rules'

    mkdir -p /etc/udev/rules.d
    cp /60-tilewright.rules /etc/udev/rules.d/
    udevadm control --reload
    wait_for 60 rule_applies || echo "# the rule has not been applied after 60 s"
    check "$name, with the rule: a member of the group runs a model" generate member
    refuses "$name, with the rule: others do not" user 6 'rule|group' \
        tilewright run /data/model.twb --device "$selector" --ids "$prompt" -n 1
    decodes "$name, for a member of the group" "$selector" member
}

works() {
    check "$name: it is listed as ready" wait_for 60 listed_as ready
    suite "$name suite" env TW_CONFORM="$selector" transport_conformance_test
    decodes "$name" "$selector"
    suite "$name" env TW_DEVICE="$selector" outside_device_test
    prints "$name: its self-test passes" '^ok ' tilewright selftest --device "$selector"
    check "$name: reset" run 0 tilewright reset --device "$selector"
}

one_holder() {
    hold
    refuses "$name: a second driver is told which process is using it" root 6 "process $holder .tilewright" \
        tilewright run /data/model.twb --device "$selector" -n 1
    run 6 tilewright devices --device "$selector"
    check "$name: devices shows which process is using it" has "busy.*process $holder .tilewright"
    prints "$name: top shows what it does" "^ *$holder .*$selector" tilewright top --once
    kill -9 "$holder"
    wait "$holder" 2>/dev/null
    ready "$name, after its driver was killed"
}

# lost HOW PATTERN ACTION... -- ACTION...: actions that take the device away in the middle of a token, and that restore
# it
lost() {
    local how="$1" pattern="$2"
    shift 2
    hold
    while [ "$1" != -- ]; do
        $1
        shift
    done
    shift
    holder_ends "$name, $how: its driver ends with an error" "$pattern"
    run 6 tilewright run /data/model.twb --device "$selector" --ids "$prompt" -n 1 --print-ids
    same "$name, $how: the next driver is told at once" 6 "$status"
    echo "# it says: $err"
    while [ $# -gt 0 ]; do
        $1
        shift
    done
    ready "$name, $how, and back"
}

killed() {
    lost 'its process killed' "$selector" 'act kill' -- revive
}

# The device is present but silent: its driver times out, and the next one works.
frozen() {
    hold
    act stop
    holder_ends "$name, its process stopped: its driver times out" "$selector"
    act cont
    ready "$name, its process continues"
}

wrong_version() {
    act end
    revive --faults version
    check "$name, another protocol version: it is listed" wait_for 60 listed_as ready
    refuses "$name, another protocol version: refused with that reason" root 6 'protocol' \
        tilewright run /data/model.twb --device "$selector" --ids "$prompt" -n 1
    echo "# it says: $err"
    act end
    revive
    ready "$name, our protocol version again"
}
