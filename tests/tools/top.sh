#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tilewright top beside processes that decode: what it shows, that it does not disturb them, and the terminal.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh
use_devices

# until COMMAND...: waits for it to succeed, at most a minute
until_true() {
    tries=0
    while ! "$@" 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || return 1
        sleep 0.1
    done
}

# value FIELD: of the holder's page
value() {
    "$TW_BIN" top --json | python3 -c '
import json, sys
for page in json.load(sys.stdin):
    if page["pid"] == int(sys.argv[1]):
        print(page[sys.argv[2]])' "$holder" "$1"
}
decodes() {
    [ "$(value state)" = running ] && [ "$(value tokens)" -gt 20 ]
}

run 0 top
same 'no device is in use' 'no process has a device open' "$out"
run 0 top --json
same 'no device, as JSON' '[]' "$out"

"$TW_BIN" emulate --listen one >"$work/name" 2>/dev/null &
emulator=$!
check 'the emulator starts' until_true test -s "$work/name"
"$TW_BIN" bench "$bundle" --device socket:one -p 512 -n 512 -r 1000 >/dev/null 2>&1 &
holder=$!
check 'top shows a process that decodes' until_true decodes
run 0 top
check 'with process, program, device and bundle' grep -Eq "^ *$holder +tilewright +socket:one .* m.twb\$" "$work/out"
same 'its target is the device'"'"'s' '' "$(value target)"
tokens=$(value tokens)
more() { [ "$(value tokens)" -gt "$tokens" ]; }
check 'the tokens count up' until_true more
fast() { [ "$(value tokens_per_s | cut -d. -f1)" -gt 0 ]; }
check 'with their rate' until_true fast
check 'position and context are shown' sh -c '[ "$1" -ge 1 ] && [ "$1" -le "$2" ]' _ "$(value position)" "$(value n_ctx)"
"$TW_BIN" top --json >"$work/pages"
check 'pages of state are shown' python3 -c '
import json, sys
p, = json.load(open(sys.argv[1]))
assert p["pages_used"] >= 1 and p["pages_used"] + p["pages_free"] == p["pages"] > 1, p
assert p["pages_shared"] == p["pages_cached"] == 0, p' "$work/pages"
check '... in the table' sh -c 'head -n 1 "$1" | grep -q "POSITION .*PAGES SHARED CACHED"' _ "$work/out"
check 'bytes in both directions are shown' sh -c '[ "$1" -gt 1000000 ] && [ "$2" -gt 0 ]' _ "$(value sent_bytes)" "$(value received_bytes)"
same 'an emulator process has no device open' 1 "$("$TW_BIN" top --json | grep -c '"pid"')"

refuses 'a second process is told which process is using the device' 6 "process $holder .tilewright" run "$bundle" --device socket:one -n 1
check 'and the first continues' more
check 'the owner is not disturbed' kill -0 "$holder"

kill -9 "$holder"
wait "$holder" 2>/dev/null
run 0 top
same 'after kill -9 its page is gone' 'no process has a device open' "$out"
same 'its file too' '' "$(find "$XDG_RUNTIME_DIR" -name '*.status*')"
check 'and the device opens again' run 0 run "$bundle" --device socket:one -n 2
holder=''

"$TW_BIN" bench "$bundle" --device socket:one -p 512 -n 512 -r 1000 >/dev/null 2>"$work/bench.err" &
holder=$!
check 'it decodes again' until_true decodes
kill -STOP "$holder"
check 'the page of a stopped owner can be read' run 0 top
kill -CONT "$holder"
kill -9 "$emulator"
wait "$emulator" 2>/dev/null
emulator=''
status=0
wait "$holder" || status=$?
holder=''
same 'a killed device ends its owner with an error' 6 "$status"
run 0 top
same 'and its page is removed' 'no process has a device open' "$out"

# A terminal: top on a pty that is 24 x 60; keys are sent when it has drawn.
cat >"$work/terminal.py" <<'END'
import fcntl, os, pty, select, signal, struct, sys, termios, time
end, command = sys.argv[1], sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    os.execv(command[0], command)
before = termios.tcgetattr(fd)
text, sent, limit = b"", False, time.time() + 60
while time.time() < limit:
    if select.select([fd], [], [], 0.1)[0]:
        try:
            chunk = os.read(fd, 65536)
        except OSError:
            break
        if not chunk:
            break
        text += chunk
    if not sent and text.count(b"\033[H") >= 2:
        sent = True
        if end == "int":
            os.kill(pid, signal.SIGINT)
        else:
            os.write(fd, end.encode())
    if sent and text.endswith(b"\033[?1049l"):
        break
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
lines = text.replace(b"\033[K", b"").replace(b"\033[H", b"").split(b"\r\n")
assert status == 0, status
assert text.startswith(b"\033[?1049h\033[?25l"), text[:40]
assert text.endswith(b"\033[?25h\033[?1049l"), text[-40:]
assert text.count(b"tilewright top") >= 2
assert all(len(line) <= 60 + 20 for line in lines), max(lines, key=len)
END
check 'on a terminal q ends it, and the screen is restored' python3 "$work/terminal.py" q "$TW_BIN" top
check 'on a terminal Ctrl-C ends it' python3 "$work/terminal.py" "$(printf '\003')" "$TW_BIN" top
check 'on a terminal SIGINT ends it' python3 "$work/terminal.py" int "$TW_BIN" top
refuses 'an argument' 2 "unexpected argument 'x'" top x
finish
