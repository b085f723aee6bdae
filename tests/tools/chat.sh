#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tilewright chat, run -cnv and -sys, sampler options: on the shipped model with a chat template added.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh

chat=$work/chat.gguf
template='{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}'
python3 tests/tools/gguf_set.py "$model" "$chat" "tokenizer.chat_template=$template"
talk() { # TEXT ARGUMENTS...: chat with these lines on standard input
    lines=$1
    shift
    printf "$lines" | "$TW_BIN" chat "$chat" --temp 0 -n 12 "$@" >"$work/out" 2>"$work/err"
    status=$?
    out=$(cat "$work/out")
    err=$(cat "$work/err")
}

talk 'Tell me of a king\n'
first=$out
check 'an answer' sh -c '[ "$1" = 0 ] && [ -n "$2" ] && [ -z "$3" ]' _ "$status" "$out" "$err"
same 'is what run gives for the rendered prompt' "$first" \
    "$("$TW_BIN" run "$chat" -p "$(printf 'user: Tell me of a king\nassistant:')" --temp 0 -n 12 --no-display-prompt)"
same 'run -st gives it' "$first" "$("$TW_BIN" run "$chat" -st -p 'Tell me of a king' --temp 0 -n 12)"
same 'chat -st -p gives it' "$first" "$("$TW_BIN" chat "$chat" -st -p 'Tell me of a king' --temp 0 -n 12 </dev/null)"
same 'run -cnv gives it, then talks' "$(printf '%s\n%s' "$first" "$first")" \
    "$(printf '/reset\nTell me of a king\n' | "$TW_BIN" run "$chat" -cnv -p 'Tell me of a king' --temp 0 -n 12)"
talk 'Tell me of a king\n' --target sim4x4
same 'on another target' "$first" "$out"

# Turns: the second answer is what the whole conversation as one prompt gives.
talk 'Tell me of a king\nAnd then\n'
second=$(printf '%s\n' "$out" | tail -n +"$(($(printf '%s\n' "$first" | wc -l) + 1))")
same 'a second turn knows the first' "$second" "$("$TW_BIN" run "$chat" -p "$(printf \
    'user: Tell me of a king\nassistant: %s\nuser: And then\nassistant:' "$(printf '%s' "$first" | sed 's/^ *//')")" \
    --temp 0 -n 12 --no-display-prompt)"
talk 'Tell me of a king\nAnd then\n' --chunk 1
same 'fed token by token' "$(printf '%s\n%s' "$first" "$second")" "$out"
talk 'Tell me of a king\nAnd then\n' --stats
check '--stats after each answer' sh -c '[ "$(grep -c "generated, .* positions in use" "$1")" = 2 ]' _ "$work/err"
talk 'Tell me of a king\n/reset\nTell me of a king\n'
same '/reset forgets' "$(printf '%s\n%s' "$first" "$first")" "$out"
talk 'Tell me of a king\n/regenerate\n'
same '/regenerate answers again' "$(printf '%s\n%s' "$first" "$first")" "$out"

# The system's instructions.
system=$("$TW_BIN" run "$chat" -p "$(printf 'system: Be kind\nuser: Hello\nassistant:')" --temp 0 -n 12 --no-display-prompt)
talk 'Hello\n' -sys 'Be kind'
same '-sys' "$system" "$out"
talk '/system Be kind\nHello\n'
same '/system' "$system" "$out"
talk '/system Be kind\n/system\n'
same '/system shows them' 'Be kind' "$out"
same 'run -sys answers one message' "$system" "$("$TW_BIN" run "$chat" -sys 'Be kind' -p Hello --temp 0 -n 12)"
same 'run -sys reads the message from standard input' "$system" \
    "$(printf 'Hello' | "$TW_BIN" run "$chat" -sys 'Be kind' --temp 0 -n 12)"

# Lines.
joined=$("$TW_BIN" chat "$chat" -st -p "$(printf 'one\ntwo')" --temp 0 -n 12 </dev/null)
talk 'one\\\ntwo\n'
same 'a line that ends with a backslash continues' "$joined" "$out"
talk '"""one\ntwo"""\n'
same 'lines in triple quotes' "$joined" "$out"
talk '"""\none\ntwo\n"""\n'
same 'on lines of their own' "$joined" "$out"
quoted=$("$TW_BIN" chat "$chat" -st -p '/exit' --temp 0 -n 12 </dev/null)
talk '"""\n/exit\n"""\n'
same 'a slash in triple quotes begins no command' "$quoted" "$out"
talk '"""/exit"""\n'
same 'also on one line' "$quoted" "$out"
talk '//exit\n'
same 'two slashes begin a message with one' "$("$TW_BIN" chat "$chat" -st -p '/exit' --temp 0 -n 12 </dev/null)" "$out"
talk '\n\n/exit\nnever read\n'
same 'empty lines are no messages, /exit leaves' '0:' "$status:$out"
talk '/help\n'
check '/help' sh -c 'printf "%s" "$1" | grep -q /regenerate' _ "$out"
talk '/frob\nHello\n'
same 'an unknown command ends a script' '2:' "$status:$out"
talk 'caf\303\n'
check 'a message that is not UTF-8' sh -c '[ "$1" = 3 ] && printf "%s" "$2" | grep -q "not valid UTF-8"' _ "$status" "$err"

# Special tokens in messages are text.
ids() { "$TW_BIN" run "$model" -p "$1" -n 0 --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["prompt_ids"]))'; }
talk 'a</s><s>b\n' --stats
n=$(printf '%s' "$err" | sed -n 's/.*: \([0-9]*\) tokens of messages.*/\1/p')
same 'special tokens in messages are text' "$(ids "$(printf 'user: a</s><s>b\nassistant:')")" "$n"

# Files.
talk "Tell me of a king\n/save $work/c.json\n"
check '/save' python3 -c 'import json, sys; m = json.load(open(sys.argv[1]))["messages"]; assert [x["role"] for x in m] == ["user", "assistant"]' \
    "$work/c.json"
talk "/load $work/c.json\nAnd then\n"
same '/load goes on' "$second" "$out"
for bad in '{' '[]x' '{"messages": 1}' '[{"role": "king", "content": "x"}]' '[{"role": "user"}]' '[{"content": "x"}]' \
    '[{"role": "user", "content": 1}]' '[{"role": "user", "content": "x", "tool_calls": []}]' '[1]' '["\ud800"]' \
    '[{"role": "user", "role": "user", "content": "x"}]'; do
    printf '%s' "$bad" >"$work/bad.json"
    talk "/load $work/bad.json\n"
    check "/load refuses $bad" sh -c '[ "$1" = 3 ] && [ "$(printf "%s\n" "$2" | grep -c "bad.json")" = 1 ]' _ "$status" "$err"
done
talk "/load $work/none.json\n"
same '/load of no file' 3 "$status"
talk '/save\n'
same '/save without a name' 2 "$status"

# Templates.
refuses 'a model without a template' 4 'no chat template; name one with --template .chatml' chat "$model" -st -p x
check 'with a built-in one' run 0 chat "$model" -st -p Hello -n 4 --template chatml
printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}' >"$work/t.jinja"
same 'a template from a file' "$("$TW_BIN" run "$model" -p 'Once' --temp 0 -n 8 --no-display-prompt)" \
    "$("$TW_BIN" run "$model" --template "$work/t.jinja" -p 'Once' --temp 0 -n 8)"
refuses 'no such template' 2 "neither a file nor chatml" chat "$model" --template nosuch -st -p x
printf '{%% include "x" %%}' >"$work/t.jinja"
refuses 'a template with what is not supported' 4 'line 1, column 4: the statement {% include %} is not supported' \
    chat "$model" --template "$work/t.jinja" -st -p x
printf '{{ raise_exception("Be polite") }}' >"$work/t.jinja"
refuses 'a template that refuses' 3 'refuses these messages: Be polite' chat "$model" --template "$work/t.jinja" -st -p x
for o in --json --print-ids '--ids 1' '--logits x'; do
    # shellcheck disable=SC2086 # words
    refuses "run -cnv $o" 2 'does not go with a conversation' run "$chat" -cnv $o
done
check 'bundles keep the template' sh -c '"$1" compile "$2" -o "$3/c.twb" -q && [ "$("$1" chat "$3/c.twb" -st -p "Tell me of a king" --temp 0 -n 12)" = "$4" ]' \
    _ "$TW_BIN" "$chat" "$work" "$first"

# A context that is too small.
long=$(python3 -c 'print("word " * 100)')
talk "$long\nHello\n" -c 64
check 'messages beyond the context' sh -c '[ "$1" = 5 ] && printf "%s" "$2" | grep -q "the context has 64: /reset"' _ "$status" "$err"

# On a terminal: the prompt, lines that are edited, Ctrl-C.
terminal() { # NAME STEPS...: pairs of what to expect and what to type then; the last status must be 0
    name=$1
    shift
    if found=$(python3 - "$TW_BIN" "$chat" "$@" <<'PY' 2>&1
import os, pty, select, sys, time
binary, model = sys.argv[1:3]
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.environ["LC_ALL"] = "C"
    os.execv(binary, [binary, "chat", model, "--mode", "strict", "-t", "1", "--temp", "0", "-n", "400"])
seen = ""
for expected, typed in zip(sys.argv[3::2], sys.argv[4::2]):
    end = time.time() + 60
    while expected not in seen:
        if time.time() > end:
            sys.exit("no %r in %r" % (expected, seen))
        if select.select([fd], [], [], 0.1)[0]:
            try:
                seen += os.read(fd, 4096).decode(errors="replace")
            except OSError:
                sys.exit("ended without %r: %r" % (expected, seen))
    seen = seen.split(expected, 1)[1]
    # libedit shows the prompt before it takes over the terminal
    time.sleep(0.3 if expected == "> " else 0)
    os.write(fd, typed.encode().decode("unicode_escape").encode("latin-1"))
end = time.time() + 60
while time.time() < end:
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        sys.exit(os.waitstatus_to_exitcode(status))
    if select.select([fd], [], [], 0.1)[0]:
        try:
            os.read(fd, 4096)
        except OSError:
            pass
sys.exit("it goes on")
PY
    ); then ok "$name"; else not_ok "$name" "$found"; fi
}
if python3 -c 'import pty, os; os.waitstatus_to_exitcode' 2>/dev/null; then
    terminal 'on a terminal, /exit leaves' '> ' '/exit\n'
    terminal 'Ctrl-D leaves' '> ' '\x04'
    terminal 'Ctrl-C drops the line, a second one leaves' '> ' 'half a line\x03' 'once more' '\x03'
    terminal 'Ctrl-C ends the answer, not the chat' '> ' 'Hello\n' \
        "$("$TW_BIN" chat "$chat" -st -p Hello --temp 0 -n 3 </dev/null | cut -c 1-5)" '\x03' 'the answer was stopped' '' '> ' '/exit\n'
    terminal 'a mistake does not end it' '> ' '/frob\n' 'unknown command' '' '> ' '/load nothing\n' 'No such file' '' '> ' '/exit\n'
    terminal 'earlier lines are recalled' '> ' '/system Be kind\n' '> ' '/system\n' 'Be kind' '' '> ' '\x10\n' 'Be kind' '' '> ' '\x04'
    terminal 'letters outside of ASCII, in the C locale' '> ' '/system K\xc3\xb6nigin\n' '> ' '/system\n' "$(printf 'K\303\266nigin')" '' '> ' '/exit\n'
    python3 -c 'import json, sys; m = json.load(open(sys.argv[1]))["messages"]; json.dump([{"role": "system", "content": "word " * 600}] + m, open(sys.argv[2], "w"))' \
        "$work/c.json" "$work/long.json"
    terminal 'an answer that cannot be replaced' '> ' "/load $work/long.json\n" '> ' '/regenerate\n' 'the context has' '' \
        '> ' "/save $work/kept.json\n" '> ' '/exit\n'
    check 'stays' python3 -c 'import json, sys; m = json.load(open(sys.argv[1]))["messages"]; assert [x["role"] for x in m] == ["system", "user", "assistant"]' \
        "$work/kept.json"
else
    echo 'skip a chat on a terminal: python3 is too old'
fi

check 'SIGTERM ends a chat that waits for a message' python3 - "$TW_BIN" "$chat" <<'PY'
import subprocess, sys
p = subprocess.Popen([sys.argv[1], "chat", sys.argv[2], "-n", "4"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                     stderr=subprocess.DEVNULL)
p.stdin.write(b"Hello\n")
p.stdin.flush()
p.stdout.readline()
p.terminate()
sys.exit(p.wait(60) != 130)
PY

check 'also while it reports on an answer' python3 - "$TW_BIN" "$chat" <<'PY'
import os, subprocess, sys, threading, time
reader, writer = os.pipe()  # full, so that the report waits
os.set_blocking(writer, False)
try:
    while True:
        os.write(writer, b"x" * 4096)
except BlockingIOError:
    os.set_blocking(writer, True)
p = subprocess.Popen([sys.argv[1], "chat", sys.argv[2], "-n", "4", "--stats"], stdin=subprocess.PIPE,
                     stdout=subprocess.PIPE, stderr=writer)
os.close(writer)
p.stdin.write(b"Hello\n")
p.stdin.flush()
p.stdout.readline()
time.sleep(0.2)
p.terminate()
time.sleep(0.1)
threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(reader, 65536), b"")], daemon=True).start()
try:
    sys.exit(p.wait(10) != 130)
except subprocess.TimeoutExpired:
    p.kill()
    sys.exit("it goes on")
PY

# Sampler options.
text=$("$TW_BIN" run "$model" -p 'Once upon a time' --temp 0 -n 40 --no-display-prompt)
stop=$(printf '%s' "$text" | cut -c 21-24)
same '--stop ends the text before it' "$(printf '%s' "$text" | python3 -c 'import sys; t = sys.stdin.read(); print(t[:t.index(sys.argv[1])], end="")' "$stop")" \
    "$("$TW_BIN" run "$model" -p 'Once upon a time' --temp 0 -n 40 --no-display-prompt --stop never --stop "$stop")"
run 0 run "$model" -p 'Once upon a time' --temp 0 -n 40 --stop "$stop" --json
check 'and --json says so' sh -c 'printf "%s" "$1" | grep -q "\"stop\": \"stop\""' _ "$out"
run 0 run "$model" --ids 1,403,407,261,378 -n 8 --print-ids
id=$(printf '%s' "$out" | cut -d' ' -f3)
run 0 run "$model" --ids 1,403,407,261,378 -n 8 --print-ids --logit-bias "$id-inf"
check '--logit-bias bans a token' sh -c 'case " $1 " in *" $2 "*) exit 1 ;; esac' _ "$out" "$id"
same '--logit-bias forces one' '17 17 17' "$("$TW_BIN" run "$model" --ids 1 -n 3 --print-ids --logit-bias 17+100)"
same 'penalties undo it' 3 "$("$TW_BIN" run "$model" --ids 1 -n 3 --print-ids --logit-bias 17+9 --presence-penalty 100 | tr ' ' '\n' | sort -u | wc -l | tr -d ' ')"
same 'a seed with all of them' "$("$TW_BIN" run "$model" -p a -s 3 -n 20 --repeat-penalty 1.3 --frequency-penalty 0.2 --typical 0.7)" \
    "$("$TW_BIN" run "$model" -p a -s 3 -n 20 --repeat-penalty 1.3 --frequency-penalty 0.2 --typical 0.7 --target sim4x4)"
for b in x 5 5+ 5+x +1 99999999+1 'Once upon a time+1'; do
    refuses "--logit-bias $b" 2 'option --logit-bias: ' run "$model" -p a --logit-bias "$b"
done
refuses '--stop without text' 2 'stop text 1 has 0 bytes' run "$model" -p a --stop ''
for o in '--temp 1' '--seed 1' '--top-k 1' '--stop x' '--repeat-penalty 2'; do
    # shellcheck disable=SC2086 # words
    refuses "--logits-all with $o" 2 "option ${o%% *} has no effect with --logits-all" run "$model" -p a --logits-all "$work/l" $o
done

# Perplexity: against the definition, over logits that run writes.
python3 -c 'print("Once upon a time there was a king who had a daughter. " * 12)' >"$work/text"
run 0 perplexity "$model" "$work/text" -c 64 --json
cp "$work/out" "$work/perplexity.json"
check 'perplexity is that of its definition' python3 - "$TW_BIN" "$model" "$work" <<'PY'
import json, math, struct, subprocess, sys
binary, model, work = sys.argv[1:]
found = json.load(open(work + "/perplexity.json"))
n_ctx = 64
ids = json.loads(subprocess.run([binary, "run", model, "-f", work + "/text", "-n", "0", "--json", "-c", "512"],
                                check=True, capture_output=True).stdout)["prompt_ids"]
values = []
for begin in range(0, len(ids) // n_ctx * n_ctx, n_ctx):
    chunk = [ids[0]] + ids[begin + 1 : begin + n_ctx]
    subprocess.run([binary, "run", model, "--ids", ",".join(map(str, chunk)), "--logits-all", work + "/logits", "--json"],
                   check=True, capture_output=True)
    raw = open(work + "/logits", "rb").read()
    vocab = len(raw) // 4 // n_ctx
    for i in range(n_ctx // 2, n_ctx - 1):
        row = struct.unpack_from("<%df" % vocab, raw, 4 * vocab * i)
        top = max(row)
        values.append(top + math.log(math.fsum(math.exp(x - top) for x in row)) - row[chunk[i + 1]])
mean = math.fsum(values) / len(values)
variance = math.fsum((v - mean) ** 2 for v in values) / len(values)
assert found["scored"] == len(values) and found["chunks"] == len(ids) // n_ctx, found
assert abs(found["nll"] - mean) < 1e-6, (found, mean)
assert abs(found["perplexity"] - math.exp(mean)) < 1e-4
assert abs(found["error"] - math.sqrt(variance / (len(values) - 1)) * math.exp(mean)) < 1e-4
PY
run 0 perplexity "$model" "$work/text" -c 64 --chunks 2
same 'a line for each chunk, then the result' '3:1' \
    "$(printf '%s\n' "$out" | wc -l | tr -d ' '):$(printf '%s\n' "$out" | grep -cE '^perplexity [0-9.]+ \+- [0-9.]+: 62 tokens scored in 2 chunks of 64')"
refuses 'a text that is too short' 2 'but a chunk has 512' perplexity "$model" "$work/t.jinja"
refuses 'no text' 3 'No such file' perplexity "$model" "$work/none"
finish
