"""A GPU kind that the catalogue does not have, in data sheet units."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from app.documents.reading import Count, Document, Flag, Positive, Prose, Text
from cluster_models.gpus import GpuKind, Precision
from cluster_models.units import GBYTE, GIB, TFLOP

LARGEST_FIGURE: Final = 1e7
"""Over a hundred times any GPU of 2026 in every unit below (GiB, GB/s, TFLOP/s, W, USD per hour)."""
MOST_DOMAIN_GPUS: Final = 100_000
MOST_MULTIPROCESSORS: Final = 10_000

Figure = Annotated[Positive, Field(le=LARGEST_FIGURE)]


class GpuKindDocument(Document):
    """One GPU kind; every figure is per GPU, dense (no sparsity), one direction."""

    name: Text = Field(description="Name that nodes refer to.", examples=["H100-SXM5-80GB"])
    vendor: Text = Field(description="Who makes it.", examples=["NVIDIA"])
    memory_gib: Figure = Field(description="Memory in GiB (2^30 bytes).", examples=[80.0])
    memory_bandwidth_gbytes_per_s: Figure = Field(
        description="Memory bandwidth in GB/s (10^9 bytes).", examples=[3350.0]
    )
    peak_bf16_tflops_per_s: Figure | None = Field(
        None, description="Dense BF16 peak in TFLOP/s; absent = not supported.", examples=[989.5]
    )
    peak_fp16_tflops_per_s: Figure | None = Field(
        None, description="Dense FP16 peak in TFLOP/s; absent = not supported.", examples=[989.5]
    )
    peak_fp8_tflops_per_s: Figure | None = Field(
        None, description="Dense FP8 peak in TFLOP/s; absent = not supported.", examples=[1979.0]
    )
    peak_mxfp8_tflops_per_s: Figure | None = Field(
        None, description="Dense MXFP8 peak in TFLOP/s; absent = not supported.", examples=[4500.0]
    )
    peak_nvfp4_tflops_per_s: Figure | None = Field(
        None, description="Dense NVFP4 peak in TFLOP/s; absent = not supported.", examples=[9000.0]
    )
    peak_fp32_tflops_per_s: Figure | None = Field(
        None, description="FP32 peak in TFLOP/s; absent = not supported.", examples=[67.0]
    )
    achievable_fraction: Figure = Field(
        le=1, description="Share of the peak that large matrix products reach.", examples=[0.72]
    )
    achievable_source: Prose = Field(
        "given by the user",
        description="Where that share comes from.",
        examples=["measured with a GEMM sweep"],
    )
    scale_up_link: Text = Field(description="What joins the GPUs of one domain.", examples=["NVLink4"])
    scale_up_bandwidth_gbytes_per_s: Figure = Field(
        description="Bandwidth to the GPUs of the same domain in GB/s, one direction.", examples=[450.0]
    )
    scale_up_domain_gpus: Annotated[Count, Field(le=MOST_DOMAIN_GPUS)] = Field(
        description="Usual GPUs of one such domain.", examples=[8]
    )
    pcie_bandwidth_gbytes_per_s: Figure | None = Field(
        None, description="Rate of the PCIe slot in GB/s, one direction.", examples=[63.0]
    )
    multiprocessors: Annotated[Count, Field(le=MOST_MULTIPROCESSORS)] | None = Field(
        None, description="Multiprocessors (compute units), which decide how tiles are rounded up.", examples=[132]
    )
    power_watts: Figure = Field(description="Board power in watts.", examples=[700.0])
    price_usd_per_hour: Figure | None = Field(None, description="Price of one GPU hour.", examples=[2.99])
    source: Prose = Field(description="Where the figures come from.", examples=["vendor data sheet"])
    verified: Flag = Field(False, description="Whether someone checked them against the source.", examples=[True])

    def to_gpu_kind(self) -> GpuKind:
        """The domain value."""
        peaks = {
            Precision.BF16: self.peak_bf16_tflops_per_s,
            Precision.FP16: self.peak_fp16_tflops_per_s,
            Precision.FP8: self.peak_fp8_tflops_per_s,
            Precision.MXFP8: self.peak_mxfp8_tflops_per_s,
            Precision.NVFP4: self.peak_nvfp4_tflops_per_s,
            Precision.FP32: self.peak_fp32_tflops_per_s,
        }
        return GpuKind(
            name=self.name,
            vendor=self.vendor,
            memory_bytes=self.memory_gib * GIB,
            memory_bytes_per_s=self.memory_bandwidth_gbytes_per_s * GBYTE,
            peak_flops={precision: peak * TFLOP for precision, peak in peaks.items() if peak is not None},
            achievable_fraction=self.achievable_fraction,
            scale_up_link=self.scale_up_link,
            scale_up_bytes_per_s=self.scale_up_bandwidth_gbytes_per_s * GBYTE,
            scale_up_domain_gpus=self.scale_up_domain_gpus,
            power_watts=self.power_watts,
            price_usd_per_hour=self.price_usd_per_hour,
            source=self.source,
            achievable_source=self.achievable_source,
            verified=self.verified,
            pcie_bytes_per_s=None
            if self.pcie_bandwidth_gbytes_per_s is None
            else self.pcie_bandwidth_gbytes_per_s * GBYTE,
            multiprocessors=self.multiprocessors,
        )

    @classmethod
    def from_gpu_kind(cls, kind: GpuKind) -> GpuKindDocument:
        """The document of a domain value."""
        peaks = {precision: flops / TFLOP for precision, flops in kind.peak_flops.items()}
        return cls(
            name=kind.name,
            vendor=kind.vendor,
            memory_gib=kind.memory_bytes / GIB,
            memory_bandwidth_gbytes_per_s=kind.memory_bytes_per_s / GBYTE,
            peak_bf16_tflops_per_s=peaks.get(Precision.BF16),
            peak_fp16_tflops_per_s=peaks.get(Precision.FP16),
            peak_fp8_tflops_per_s=peaks.get(Precision.FP8),
            peak_mxfp8_tflops_per_s=peaks.get(Precision.MXFP8),
            peak_nvfp4_tflops_per_s=peaks.get(Precision.NVFP4),
            peak_fp32_tflops_per_s=peaks.get(Precision.FP32),
            achievable_fraction=kind.achievable_fraction,
            achievable_source=kind.achievable_source,
            scale_up_link=kind.scale_up_link,
            scale_up_bandwidth_gbytes_per_s=kind.scale_up_bytes_per_s / GBYTE,
            scale_up_domain_gpus=kind.scale_up_domain_gpus,
            power_watts=kind.power_watts,
            price_usd_per_hour=kind.price_usd_per_hour,
            source=kind.source,
            verified=kind.verified,
            pcie_bandwidth_gbytes_per_s=None if kind.pcie_bytes_per_s is None else kind.pcie_bytes_per_s / GBYTE,
            multiprocessors=kind.multiprocessors,
        )
