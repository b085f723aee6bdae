# Reads what one test program printed and prints one line per result: "ok PROGRAM: case", "not ok PROGRAM: case" or
# "skip PROGRAM: case"; every other line becomes a comment. Understands cmocka's TAP (a skipped case is "not ok N # SKIP
# name" there) and the plain "ok", "not ok" and "skip" of shell tests. Variables: program, status (its exit status),
# timeout. A program that dies, fails without naming a failure, or omits planned results counts as one more failure.

function result(kind, text) {
    sub(/^ *[0-9]* *-? */, "", text)
    print kind " " program ": " text
    seen++
}

/^1\.\.[0-9]+/ { planned += substr($0, 4) + 0; print "# " $0; next }
/^(not )?ok.*# *(SKIP|skip)/ { sub(/^(not )?ok */, ""); sub(/# *(SKIP|skip) */, ""); result("skip", $0); next }
/^skip( |$)/ { sub(/^skip */, ""); result("skip", $0); next }
/^ok( |$)/ { sub(/^ok */, ""); result("ok", $0); next }
/^not ok( |$)/ { sub(/^not ok */, ""); result("not ok", $0); failed++; next }
{ print "# " $0 }

END {
    if (status == 124 || status == 137) {
        print "not ok " program ": timed out after " timeout " s, or was killed (exit status " status ")"
    } else if (status > 128) {
        print "not ok " program ": killed by signal " status - 128
    } else if (status != 0 && !failed) {
        print "not ok " program ": exit status " status
    } else if (seen < planned) {
        print "not ok " program ": " planned - seen " of " planned " results are missing, exit status " status
    } else if (!seen) {
        print "not ok " program ": reported no result"
    }
}
