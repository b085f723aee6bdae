# shellcheck shell=sh disable=SC2034
. /lib.sh
. /device.sh
. /local.sh
XDG_RUNTIME_DIR=/run
export XDG_RUNTIME_DIR
serve='--listen one'
name=socket
selector=socket:one

act start
works
one_holder
killed
frozen
wrong_version
finish
