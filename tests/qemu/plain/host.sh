# shellcheck shell=bash
# A computer without USB, PCIe cards and VFIO: the emulator works, and the command says why other devices do not.
