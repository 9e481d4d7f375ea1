"""Devices on PCIe: how the tree joins two of them, and what the numbers of GPUs mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from readers.frame.facts import JointKind

GPU_CLASSES: Final = ("0302", "0380", "1200")
"""3D controller (NVIDIA), display controller and processing accelerator (AMD)."""
NIC_CLASSES: Final = {"0200": "ethernet", "0207": "infiniband", "0280": ""}

PRODUCTS: Final = {
    ("10de", "1db1"): "Tesla V100-SXM2-16GB",
    ("10de", "1db5"): "Tesla V100-SXM2-32GB",
    ("10de", "20b0"): "NVIDIA A100-SXM4-40GB",
    ("10de", "20b2"): "NVIDIA A100-SXM4-80GB",
    ("10de", "20b5"): "NVIDIA A100 80GB PCIe",
    ("10de", "20f1"): "NVIDIA A100-PCIE-40GB",
    ("10de", "2330"): "NVIDIA H100 80GB HBM3",
    ("10de", "2331"): "NVIDIA H100 PCIe",
    ("10de", "2321"): "NVIDIA H100 NVL",
    ("10de", "2324"): "NVIDIA H800",
    ("10de", "2335"): "NVIDIA H200",
    ("10de", "2901"): "NVIDIA B200",
    ("10de", "2941"): "NVIDIA GB200",
    ("10de", "26b9"): "NVIDIA L40S",
    ("10de", "27b8"): "NVIDIA L4",
    ("1002", "738c"): "AMD Instinct MI100",
    ("1002", "7408"): "AMD Instinct MI250X",
    ("1002", "740c"): "AMD Instinct MI250X",
    ("1002", "740f"): "AMD Instinct MI210",
    ("1002", "74a1"): "AMD Instinct MI300X",
    ("1002", "74b5"): "AMD Instinct MI300X",
    ("1002", "74a5"): "AMD Instinct MI325X",
    ("1002", "75a3"): "AMD Instinct MI355X",
}
"""Vendor and device number -> product as drivers call it, from the PCI ID database (pci.ids)."""


def joint_kind(first: Sequence[str], second: Sequence[str], *, same_host_bridge: bool) -> JointKind:
    """Joint of two devices with these bridges, counted down from the host bridge.

    In the words of nvidia-smi: PIX over one bridge, PXB over several, PHB over the host bridge, SYS over sockets.
    """
    if not same_host_bridge:
        return JointKind.SYS
    common = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        common += 1
    if not common:
        return JointKind.PHB
    crossed = len(first) + len(second) - 2 * common + 1
    return JointKind.PIX if crossed == 1 else JointKind.PXB
