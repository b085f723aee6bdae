# shellcheck shell=sh disable=SC2034
. /lib.sh
. /device.sh
XDG_RUNTIME_DIR=/run
export XDG_RUNTIME_DIR

name=socket
selector=socket:one
act() {
    action=$1
    shift
    case $action in
    kill) kill -9 "$device" && wait "$device" ;;
    end) kill "$device" && wait "$device" ;;
    stop) kill -STOP "$device" ;;
    cont) kill -CONT "$device" ;;
    start)
        tilewright emulate --listen one "$@" >/tmp/device.log 2>&1 </dev/null &
        device=$!
        ;;
    esac
}

act start
works
one_holder
killed
frozen
wrong_version
finish
