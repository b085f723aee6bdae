#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The udev rule: its lines are well-formed (udevadm verify is not in Debian 12), its ids are those of the header, it
# sorts where it has to, and its program finds the right VFIO groups only.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh
rules=udev/60-tilewright.rules
header=include/tilewright/usb.h

# One key, operator and quoted value after the other, separated by commas; matches before assignments are not required.
cat >"$work/check.awk" <<'END'
BEGIN {
    match_keys = " ACTION SUBSYSTEM KERNEL DEVPATH PROGRAM ATTR ENV TEST DRIVER "
    assign_keys = " GROUP MODE TAG OWNER SYMLINK "
}
function bad(why) { print FILENAME ":" FNR ": " why; failed = 1 }
/^[ \t]*(#|$)/ { next }
{
    rest = $0
    rules++
    assigned = 0
    while (rest != "") {
        if (!match(rest, /^[A-Z]+(\{[A-Za-z0-9_]+\})?(==|!=|\+=|=)"[^"]*"/)) {
            bad("no KEY=\"value\" at: " rest)
            next
        }
        item = substr(rest, 1, RLENGTH)
        rest = substr(rest, RLENGTH + 1)
        key = item; sub(/[^A-Z].*/, "", key)
        op = item; sub(/^[A-Z]+(\{[^}]*\})?/, "", op); sub(/".*/, "", op)
        if (op == "==" || op == "!=") {
            if (!index(match_keys, " " key " ")) bad(key " cannot be matched")
        } else if (!index(assign_keys, " " key " ")) {
            bad(key " cannot be assigned")
        } else {
            assigned++
        }
        if (rest != "" && !sub(/^, +/, "", rest)) { bad("no comma before: " rest); next }
        if (rest == "" && !assigned) bad("a rule that does nothing")
    }
}
END
END_RULES='END { if (!rules) { print "no rules"; failed = 1 } exit failed }'
check 'every line is well-formed' awk "$(cat "$work/check.awk") $END_RULES" "$rules"
printf 'SUBSYSTEM="usb", GROUP="x"\n' >"$work/1"
printf 'SUBSYSTEM=="usb" GROUP="x"\n' >"$work/2"
printf 'SUBSYSTEM=="usb", GROUP=="x\n' >"$work/3"
printf 'SUBSYSTEM=="usb"\n' >"$work/4"
for i in 1 2 3 4; do
    check "the checker notices mistake $i" sh -c '! awk "$1" "$2" >/dev/null' _ "$(cat "$work/check.awk") $END_RULES" "$work/$i"
done

constant() { # of the header, as four lower-case hex digits
    printf '%04x' "$(sed -n "s/^#define $1 \(0x[0-9A-Fa-f]*\)u.*/\1/p" "$header")"
}
vendor=$(constant TW_USB_VENDOR)
for product in TW_USB_PRODUCT TW_USB_PRODUCT_RECOVERY; do
    check "the rule has $product" grep -q "ATTR{idVendor}==\"$vendor\", ATTR{idProduct}==\"$(constant $product)\"" "$rules"
done
same 'and no other id' 2 "$(grep -c 'ATTR{idProduct}==' "$rules")"
class=$(for c in CLASS SUBCLASS PROTOCOL; do constant TW_USB_$c | cut -c 3-4; done | tr -d '\n')
check 'the rule has the class of the interface' grep -q "ENV{ID_USB_INTERFACES}==\"\*:$class:\*\"" "$rules"
same 'every board is tagged for the seat' 0 "$(grep 'SUBSYSTEM=="usb"' "$rules" | grep -vc 'TAG+="uaccess"')"
same 'every node is the group'"'"'s' 0 "$(grep '^ACTION' "$rules" | grep -vc 'GROUP="tilewright", MODE="0660"')"
same 'it sorts between the rules that it needs' '50-udev-default.rules 60-tilewright.rules 73-seat-late.rules' \
    "$(printf '%s\n' 73-seat-late.rules "$(basename "$rules")" 50-udev-default.rules | LC_ALL=C sort | tr '\n' ' ' | sed 's/ $//')"
check 'the command carries it' sh -c '"$1" doctor --udev-rule | cmp - "$2"' _ "$TW_BIN" "$rules"

# The program that looks into a group, with another /sys.
program=$(sed -n 's/.*PROGRAM=="\/bin\/sh -c '"'"'\(.*\)'"'"'".*/\1/p' "$rules" | sed "s,/sys/,$work/sys/,; s,\$kernel,7,")
groups=$work/sys/kernel/iommu_groups
mkdir -p "$groups/7/devices/0000:00:01.0" "$groups/7/devices/0000:00:02.0" "$groups/8/devices/0000:00:03.0"
echo 'pci:v00008086d00001237sv00001AF4sd00001100bc06sc00i00' >"$groups/7/devices/0000:00:01.0/modalias"
check 'a group without a card stays root'"'"'s' sh -c "! ($program)"
echo 'pci:v00001AF4d00001110sv00001AF4sd00001100bc05sc00i00' >"$groups/8/devices/0000:00:03.0/modalias"
check 'a card in another group does not count' sh -c "! ($program)"
cp "$groups/8/devices/0000:00:03.0/modalias" "$groups/7/devices/0000:00:02.0/modalias"
check 'a group with a card is granted' sh -c "$program"

check 'the group is the one that sysusers.d makes' grep -q '^g tilewright -$' udev/tilewright.conf
if command -v systemd-sysusers >/dev/null; then
    mkdir -p "$work/root/etc"
    systemd-sysusers --root="$work/root" "$root/udev/tilewright.conf" 2>"$work/err"
    check 'systemd-sysusers makes it' grep -q '^tilewright:' "$work/root/etc/group"
else
    echo 'skip systemd-sysusers is not here'
fi
finish
