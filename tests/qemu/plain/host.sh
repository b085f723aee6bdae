# shellcheck shell=bash
# A computer without USB, PCIe cards and VFIO: the emulator works there, and the command says why the rest does not.
