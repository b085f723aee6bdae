# shellcheck shell=sh disable=SC2154 # lib.sh sets them
# shellcheck source=tools/qemu/guest/lib.sh
. /lib.sh

decodes 'the emulator' emu

for user in root user; do
    run_as $user 0 tilewright devices
    same "devices works as $user" 0 "$status"
    check "devices lists the emulator for $user" has 'emu +ready'
    run_as $user 0 tilewright doctor
    same "doctor works as $user" 0 "$status"
    check "doctor finds the emulator working for $user" has '^ok +emulator'
    check "doctor tells $user that the kernel has no USB" has '^missing +usb .*/sys/bus/usb does not exist'
    check "doctor tells $user how to get it" has 'sudo modprobe'
    check "doctor tells $user that there is no IOMMU" has '^missing +iommu'
    check "doctor tells $user that VFIO is not loaded" has '^missing +vfio .*/dev/vfio/vfio'
done
check 'doctor tells a user which group to join' has 'usermod -aG tilewright'
run_as member 0 tilewright doctor
check 'doctor tells a member of the group that they are one' has '^ok +permissions .*group tilewright'
check 'a user runs a model' run_as user 0 tilewright run /data/model.twb --ids "$prompt" -n 2 --print-ids

suite 'suite' transport_conformance_test
finish
