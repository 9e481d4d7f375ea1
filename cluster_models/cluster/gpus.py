"""A kind of GPU, as its data sheet and published measurements describe it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from cluster_models.cluster.hosts import HostShare, usual_host
from cluster_models.errors import InvalidCluster


class Precision(StrEnum):
    """Number format of the matrix products of a training step."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    """8 bits with one scale per tensor."""
    MXFP8 = "mxfp8"
    """8 bits with one scale per 32 elements (OCP Microscaling Formats 1.0)."""
    NVFP4 = "nvfp4"
    """4 bits with one scale per 16 elements."""
    FP32 = "fp32"

    @property
    def operand_bytes(self) -> float:
        """Bytes of one element that goes into a matrix product."""
        return {Precision.FP8: 1.0, Precision.MXFP8: 1.0, Precision.NVFP4: 0.5, Precision.FP32: 4.0}.get(self, 2.0)

    @property
    def activation_bytes(self) -> float:
        """Bytes of one element of the stream between matrix products: 4 in FP32 training, else 2."""
        return 4.0 if self is Precision.FP32 else 2.0


UNTHROTTLED_SHARE: Final = 0.95
"""Share of the peak that large products reach where power does not limit the clock: 295 of 312 TFLOP/s on an A100
with operands of zeros, which switch no transistors, against 257 with random ones (H. He, "Strangely, matrix
multiplications on GPUs run faster when given predictable data", 2024)."""
CLOCK_POWER: Final = 2.5
"""Dynamic power falls with this power of the clock, of which voltage is nearly a linear function."""


SWITCHLESS_BOARD: Final = 4
"""GPUs of boards without NVLink switches, each joined to each other: HGX A100, H100 and H200 4-GPU, quad GH200
nodes, V100 boards of four (NVIDIA's data sheets).  Measured steps on four H200: two tensor ranks of Llama 3 8B take
13 % longer than over switches (KempnerForge)."""
SWITCHED_BOARD: Final = 8


@dataclass(frozen=True, slots=True)
class GpuKind:
    """One catalogue entry; every figure is per GPU.

    ``peak_flops`` maps a precision to the dense peak in FLOP/s; a precision that is absent is not supported.
    ``achievable_fraction`` is the share of that peak which large matrix products reach (measured where
    ``achievable_source`` says so, else estimated from GPUs of the same vendor).
    ``scale_up_bytes_per_s`` is the nominal one-direction bandwidth to the GPUs of the same NVLink (or XGMI,
    PCIe) domain, ``scale_up_domain_gpus`` the usual size of that domain.  ``memory_bytes`` is what the driver
    reports as total, or the decimal data sheet figure where no report is published.  ``pcie_bytes_per_s`` is
    the nominal one-direction rate of the card's PCIe x16 slot, which carries what leaves a bridged pair.
    ``multiprocessors`` compute the tiles of a matrix product side by side; ``None``: not known.
    ``host``: what the nodes of a cluster state that they have for each GPU; ``None`` where they state nothing.
    """

    name: str
    vendor: str
    memory_bytes: float
    memory_bytes_per_s: float
    peak_flops: dict[Precision, float] = field(hash=False)
    achievable_fraction: float
    scale_up_link: str
    scale_up_bytes_per_s: float
    scale_up_domain_gpus: int
    power_watts: float
    price_usd_per_hour: float | None
    source: str
    achievable_source: str
    verified: bool
    pcie_bytes_per_s: float | None = None
    multiprocessors: int | None = None
    host: HostShare | None = field(default=None, compare=False)

    @property
    def host_share(self) -> HostShare:
        """Memory and processors of the node for each GPU: as stated, else as the kind is usually sold."""
        return usual_host(self.name, self.pcie_bytes_per_s) if self.host is None else self.host

    @property
    def fuses_attention(self) -> bool:
        """Whether FlashAttention runs on it: it needs Ampere or newer (its README), the first with BF16."""
        return Precision.BF16 in self.peak_flops

    def clock_flops(self, precision: Precision) -> float:
        """Peak at the highest clock, FLOP/s, which no power cap lowers."""
        return self.peak_flops[precision]

    def in_domains_of(self, gpus: int) -> GpuKind:
        """The kind in NVLink domains of ``gpus``: boards of four have no switch; a peer has a third of the links.

        Kinds whose usual domain is larger than a board (GB200), and those without NVLink, stay as they are.
        """
        if gpus != SWITCHLESS_BOARD or self.scale_up_domain_gpus > SWITCHED_BOARD:
            return self
        if not re.fullmatch(r"NVLink\d+", self.scale_up_link):
            return self
        return replace(self, scale_up_link=f"{self.scale_up_link} mesh", scale_up_domain_gpus=gpus)

    def __post_init__(self) -> None:
        for name in ("memory_bytes", "memory_bytes_per_s", "scale_up_bytes_per_s", "power_watts"):
            if not getattr(self, name) > 0:
                raise InvalidCluster(f"gpu_kinds.{self.name}.{name}", getattr(self, name), "must be positive")
        if self.pcie_bytes_per_s is not None and not self.pcie_bytes_per_s > 0:
            raise InvalidCluster(
                f"gpu_kinds.{self.name}.pcie_bytes_per_s", self.pcie_bytes_per_s, "must be positive"
            )
        if self.multiprocessors is not None and not self.multiprocessors > 0:
            raise InvalidCluster(f"gpu_kinds.{self.name}.multiprocessors", self.multiprocessors, "must be positive")
        if not 0 < self.achievable_fraction <= 1:
            raise InvalidCluster(
                f"gpu_kinds.{self.name}.achievable_fraction", self.achievable_fraction, "must lie in (0, 1]"
            )
        if not self.peak_flops:
            raise InvalidCluster(f"gpu_kinds.{self.name}.peak_flops", {}, "needs at least one precision")
