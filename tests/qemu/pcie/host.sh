# shellcheck shell=bash
# Devices on the PCIe bus with an IOMMU: one in a slot of the board, and one below a root port, which can be unplugged.
pcie pcie0 02.0
pcie pcie1 port
give_device_tests
