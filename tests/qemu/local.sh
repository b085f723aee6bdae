# SPDX-License-Identifier: Apache-2.0
# `act` of device.sh for a device process inside the guest. `serve` holds emulate's options.
# shellcheck shell=sh disable=SC2154,SC3043 # the scenario sets them

act() {
    local action="$1"
    shift
    case $action in
    kill)
        kill -9 "$device"
        wait "$device"
        ;;
    end)
        kill "$device"
        wait "$device"
        ;;
    stop) kill -STOP "$device" ;;
    cont) kill -CONT "$device" ;;
    start)
        # shellcheck disable=SC2086 # words
        tilewright emulate $serve "$@" >/tmp/device.log 2>&1 </dev/null &
        device=$!
        ;;
    esac
}
