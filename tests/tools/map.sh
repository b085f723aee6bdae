#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# inspect --map: where a bundle's bytes are, as text and as JSON.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh

run 0 compile "$model" -o "$work/a.twb" --target sim4x4 -q
run 0 inspect "$work/a.twb" --map
check 'it shows both programs and both banks' sh -c '[ "$(grep -c "^map  .*SRAM of site 0" "$1")" = 2 ] && [ "$(grep -c "^map  .*DRAM bank" "$1")" = 2 ]' _ "$work/out"
check 'the carried activation is in use from the first section to the last' grep -q 'embed..head  *x = x$' "$work/out"
check 'it says why state is in DRAM' grep -q "^map  *state stays in DRAM, since each session has its own: 2.5 MiB, 160.0 KiB per site; .* left on the fullest site$" "$work/out"
run 0 inspect "$work/a.twb" --map --site 5 --json
check 'buffers are inside the SRAM; those in use together are disjoint; classes and banks add up' python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
m = d["map"]
assert m["site"] == 5 and len(m["sram"]) == 2
order = ["embed", "layer", "head"]
for p in m["sram"]:
    (c,) = p["classes"]
    b = p["buffers"]
    assert c["size"] == 524288 and c["buffers"] == len(b) > 10 and c["buffer_bytes"] == sum(x["bytes"] for x in b)
    assert c["used"] == max(x["offset"] + x["bytes"] for x in b) <= c["size"]
    assert [x["offset"] for x in b] == sorted(x["offset"] for x in b)
    assert any(x["tensor"] == "x" and (x["first_section"], x["last_section"]) == ("embed", "head") for x in b)
    live = [x for x in b if x["first_section"]]
    for x in live:
        for y in live:
            apart = x["offset"] + x["bytes"] <= y["offset"] or y["offset"] + y["bytes"] <= x["offset"]
            meet = not (order.index(x["last_section"]) < order.index(y["first_section"]) or order.index(y["last_section"]) < order.index(x["first_section"]))
            assert x is y or apart or not meet or "scratch" in (x["kind"], y["kind"]) or x["kind"] == y["kind"] == "resident", (x, y)
assert [k["bank"] for k in m["dram"]] == [0, 1]
for k in m["dram"]:
    assert k["bytes"] == sum(s["bytes"] for s in k["segments"]) > 0
assert sum(k["bytes"] for k in m["dram"]) == sum(s["bytes"] for s in d["segments"])
state = sum(s["bytes"] for s in d["segments"] if s["kind"] == "state")
left = min(524288 - p["sram_used"] for p in d["programs"])
assert m["state"] == {"bytes": state, "bytes_a_site": (state + 15) // 16, "sram_left": left} and state > 1 << 20' "$work/out"
refuses 'an unknown site: the message has the range' 2 'program decode has sites 0 to 15, not 16' inspect "$work/a.twb" --map --site 16
refuses '... also with --json' 2 'program decode has sites 0 to 15, not 16' inspect "$work/a.twb" --map --json --site 16
refuses 'a negative site' 2 'site' inspect "$work/a.twb" --map --site -1
finish
