"""A GPU kind that the catalogue does not have, in data sheet units."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from app.documents.reading import Count, Flag, Positive, Prose, Text
from app.documents.values import Computed, Holds, ValueDocument
from cluster_models.cluster.gpus import GpuKind, Precision
from cluster_models.units import GBYTE, GIB, TFLOP

LARGEST_FIGURE: Final = 1e7
"""Over a hundred times any GPU of 2026 in every unit below (GiB, GB/s, TFLOP/s, W, USD per hour)."""
MOST_DOMAIN_GPUS: Final = 100_000
MOST_MULTIPROCESSORS: Final = 10_000

Figure = Annotated[Positive, Field(le=LARGEST_FIGURE)]


def _peak(precision: Precision) -> Computed:
    """Metadata of a field: the peak of a GPU kind in that number format, in TFLOP/s."""

    def tflops_per_s(kind: GpuKind) -> float | None:
        peak = kind.peak_flops.get(precision)
        return None if peak is None else peak / TFLOP

    return Computed(tflops_per_s)


class GpuKindDocument(ValueDocument[GpuKind]):
    """One GPU kind; every figure is per GPU, dense (no sparsity), one direction."""

    name: Text = Field(description="Name that nodes refer to.", examples=["H100-SXM5-80GB"])
    vendor: Text = Field(description="Who makes it.", examples=["NVIDIA"])
    memory_gib: Annotated[Figure, Holds("memory_bytes", GIB)] = Field(
        description="Memory in GiB (2^30 bytes).", examples=[80.0]
    )
    memory_bandwidth_gbytes_per_s: Annotated[Figure, Holds("memory_bytes_per_s", GBYTE)] = Field(
        description="Memory bandwidth in GB/s (10^9 bytes).", examples=[3350.0]
    )
    peak_bf16_tflops_per_s: Annotated[Figure | None, _peak(Precision.BF16)] = Field(
        None, description="Dense BF16 peak in TFLOP/s; absent = not supported.", examples=[989.5]
    )
    peak_fp16_tflops_per_s: Annotated[Figure | None, _peak(Precision.FP16)] = Field(
        None, description="Dense FP16 peak in TFLOP/s; absent = not supported.", examples=[989.5]
    )
    peak_fp8_tflops_per_s: Annotated[Figure | None, _peak(Precision.FP8)] = Field(
        None, description="Dense FP8 peak in TFLOP/s; absent = not supported.", examples=[1979.0]
    )
    peak_mxfp8_tflops_per_s: Annotated[Figure | None, _peak(Precision.MXFP8)] = Field(
        None, description="Dense MXFP8 peak in TFLOP/s; absent = not supported.", examples=[4500.0]
    )
    peak_nvfp4_tflops_per_s: Annotated[Figure | None, _peak(Precision.NVFP4)] = Field(
        None, description="Dense NVFP4 peak in TFLOP/s; absent = not supported.", examples=[9000.0]
    )
    peak_fp32_tflops_per_s: Annotated[Figure | None, _peak(Precision.FP32)] = Field(
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
    scale_up_bandwidth_gbytes_per_s: Annotated[Figure, Holds("scale_up_bytes_per_s", GBYTE)] = Field(
        description="Bandwidth to the GPUs of the same domain in GB/s, one direction.", examples=[450.0]
    )
    scale_up_domain_gpus: Annotated[Count, Field(le=MOST_DOMAIN_GPUS)] = Field(
        description="Usual GPUs of one such domain.", examples=[8]
    )
    pcie_bandwidth_gbytes_per_s: Annotated[Figure | None, Holds("pcie_bytes_per_s", GBYTE)] = Field(
        None, description="Rate of the PCIe slot in GB/s, one direction.", examples=[63.0]
    )
    multiprocessors: Annotated[Count, Field(le=MOST_MULTIPROCESSORS)] | None = Field(
        None, description="Multiprocessors (compute units), which decide how tiles are rounded up.", examples=[132]
    )
    power_watts: Figure = Field(description="Board power in watts.", examples=[700.0])
    price_usd_per_hour: Figure | None = Field(None, description="Price of one GPU hour.", examples=[2.99])
    source: Prose = Field(description="Where the figures come from.", examples=["vendor data sheet"])
    verified: Flag = Field(False, description="Whether someone checked them against the source.", examples=[True])

    def to_value(self) -> GpuKind:
        """The domain value."""
        peaks = {precision: getattr(self, f"peak_{precision}_tflops_per_s") for precision in Precision}
        stated = {precision: peak * TFLOP for precision, peak in peaks.items() if peak is not None}
        return GpuKind(**self.attributes() | {"peak_flops": stated})
