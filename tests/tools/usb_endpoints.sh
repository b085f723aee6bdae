#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# emulate with USB endpoints: what it prints, what it leaves, what it refuses. How hosts see them is tested elsewhere.
. tests/tools/tap.sh
XDG_RUNTIME_DIR=$work/run
export XDG_RUNTIME_DIR
mkdir -p "$XDG_RUNTIME_DIR"
device=''
trap 'kill -9 $device 2>/dev/null; rm -rf "$work"' EXIT

# serves N [options]: starts emulate and waits until it has printed N endpoints, a minute at most
serves() {
    endpoints=$1
    shift
    : >"$work/endpoints"
    "$TW_BIN" emulate "$@" >"$work/endpoints" 2>"$work/emulate.err" &
    device=$!
    n=0
    while [ "$(wc -l <"$work/endpoints")" -lt "$endpoints" ]; do
        n=$((n + 1))
        if [ $n -gt 600 ] || ! kill -0 $device 2>/dev/null; then
            not_ok 'the device starts' "$(cat "$work/emulate.err")"
            return
        fi
        sleep 0.1
    done
}

# ends: by SIGTERM, with status 0
ends() {
    kill -TERM $device
    wait $device
    same "$1" 0 $?
    device=''
}

serves 2 --listen two --usbredir "$work/usb" --speed super --serial LAB-7
same 'a line for each endpoint' "$(printf 'socket:two\nusbredir:%s' "$work/usb")" "$(cat "$work/endpoints")"
check 'the socket is listed beside the USB device' run 0 devices --device socket:two
refuses 'another device at the same path is refused' 6 "process $device .tilewright" emulate --usbredir "$work/usb"
ends 'both endpoints end with success'
check 'nothing is left' [ ! -e "$work/usb" ]
check 'not even a lock' [ ! -e "$work/usb.lock" ]

serves 1 --usbredir "$work/usb"
same 'without --listen there is no socket' "usbredir:$work/usb" "$(cat "$work/endpoints")"
kill -9 $device
wait $device 2>/dev/null
serves 1 --usbredir "$work/usb" --recovery 'the fan is blocked'
same 'the path of a process that died is taken over, by a device in recovery' "usbredir:$work/usb" "$(cat "$work/endpoints")"
ends 'a device in recovery ends with success'

refuses 'an unknown speed' 2 "'warp'.*full, high or super" emulate --usbredir "$work/usb" --speed warp
refuses 'a malformed serial number' 2 'serial number' emulate --usbredir "$work/usb" --serial "$(printf 'a\tb')"
refuses 'a speed without the device' 2 'usbredir' emulate --listen one --speed high
refuses 'a controller without the gadget' 2 'gadget' emulate --usbredir "$work/usb" --udc x
refuses 'recovery on a socket' 2 'in recovery needs a bus' emulate --recovery broken
refuses 'a folder that is not there' 3 'No such file' emulate --usbredir "$work/no/usb"
refuses 'a controller that is not there' 6 'no USB device controller' emulate --gadget --udc no-such-controller
check 'refused commands leave no socket' [ ! -e "$work/usb" ]
finish
