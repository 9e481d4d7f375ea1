"""The JSON that the profiler script writes (``app/profiler/gpu_profile.py``)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from app.documents.moments import Moment
from app.documents.reading import Count, Document, FieldProblem, Flag, InvalidDocument, Line, Positive, Text
from cluster_models.calibration.hardware_profile import (
    AttentionTiming,
    CollectiveTiming,
    HardwareProfile,
    KernelTime,
    MatmulTiming,
    StreamOperation,
    StreamTiming,
)
from cluster_models.cluster.gpus import Precision
from cluster_models.cluster.measurements import Collective
from cluster_models.errors import InvalidInput
from cluster_models.training.framework_choices import AttentionKernels

MOST_KERNELS: Final = 10_000
"""Bound for one list: ten times what the script measures."""

Extent = Annotated[Count, Field(le=10**9)]


class TimingDocument(Document):
    """Seconds of one call."""

    median_s: Positive = Field(description="Median seconds.", examples=[0.00151])
    low_s: Positive = Field(description="10th percentile.", examples=[0.0015])
    high_s: Positive = Field(description="90th percentile.", examples=[0.00153])
    samples: Count = Field(description="How often it was timed.", examples=[9])

    def to_time(self) -> KernelTime:
        """The domain value; raises ``InvalidInput`` where the three are out of order."""
        return KernelTime(self.median_s, self.low_s, self.high_s, self.samples)


class MatmulDocument(TimingDocument):
    """``batch`` products (m x k) @ (k x n) in one call."""

    precision: Precision = Field(description="Number format of the operands.", examples=["bf16"])
    m: Extent = Field(description="Rows of the result.", examples=[8192])
    n: Extent = Field(description="Columns of the result.", examples=[8192])
    k: Extent = Field(description="Extent that is summed over.", examples=[8192])
    batch: Extent = Field(description="Products in one call.", examples=[1])
    sustained: Flag = Field(description="Whether it ran for seconds, under the power limit.", examples=[False])

    def to_timing(self) -> MatmulTiming:
        """The domain value."""
        return MatmulTiming(self.precision, self.m, self.n, self.k, self.batch, self.sustained, self.to_time())


class StreamDocument(TimingDocument):
    """A kernel that only moves memory."""

    operation: StreamOperation = Field(description="What it does.", examples=["copy"])
    nbytes: Count = Field(alias="bytes", description="Bytes read and written.", examples=[268435456])

    def to_timing(self) -> StreamTiming:
        """The domain value."""
        return StreamTiming(self.operation, self.nbytes, self.to_time())


class AttentionDocument(TimingDocument):
    """Fused causal attention."""

    kernels: AttentionKernels = Field(description="Whose kernel: vendor or flash_2.", examples=["flash_2"])
    direction: Literal["forward", "backward"] = Field(description="Which pass.", examples=["forward"])
    precision: Precision = Field(description="Number format.", examples=["bf16"])
    batch: Extent = Field(description="Sequences.", examples=[2])
    heads: Extent = Field(description="Heads.", examples=[32])
    head_size: Extent = Field(description="Width of a head.", examples=[128])
    sequence: Extent = Field(description="Tokens of a sequence.", examples=[8192])

    def to_timing(self) -> AttentionTiming:
        """The domain value."""
        shape = (self.batch, self.heads, self.head_size, self.sequence)
        return AttentionTiming(self.kernels, self.direction == "backward", self.precision, *shape, self.to_time())


class CollectiveDocument(TimingDocument):
    """One collective among GPUs."""

    collective: Collective = Field(description="Which.", examples=["all_reduce"])
    ranks: Extent = Field(description="GPUs that take part.", examples=[8])
    nodes: Extent = Field(description="Nodes that they are on.", examples=[1])
    message_bytes: Count = Field(description="Size column of nccl-tests, in bytes.", examples=[268435456])

    def to_timing(self) -> CollectiveTiming:
        """The domain value."""
        return CollectiveTiming(self.collective, self.ranks, self.nodes, self.message_bytes, self.to_time())


class SkippedDocument(Document):
    """Measurement that was skipped."""

    what: Line = Field(description="Which kernel.", examples=["matmul fp8 sustained"])
    reason: Line = Field(description="Why not.", examples=["too large"])


class DeviceDocument(Document):
    """The device that was measured."""

    type: Literal["cuda", "cpu"] = Field(description="cpu where the script was only tried.", examples=["cuda"])
    name: Text = Field(description="Product name that the driver reports.", examples=["NVIDIA H100 80GB HBM3"])
    count: Extent = Field(description="Ranks that took part.", examples=[8])
    memory_bytes: Count | None = Field(None, description="Memory.", examples=[85899345920])
    multiprocessors: Count | None = Field(None, description="Streaming multiprocessors.", examples=[132])
    capability: Text | None = Field(None, description="Compute capability.", examples=["9.0"])
    clocks: dict[str, Text] = Field(
        default_factory=dict,
        max_length=50,
        description="What nvidia-smi said.",
        examples=[{"clocks.sm": "1980 MHz"}],
    )


class HardwareProfileDocument(Document):
    """One run of the profiler."""

    format: Literal["meshwright-gpu-profile"] = Field(description="What this file is.")
    version: Literal[1] = Field(description="Version of the format.")
    taken_at: Moment = Field(description="When it began.", examples=["2026-11-21T09:00:00Z"])
    took_s: Positive = Field(description="Seconds it took.", examples=[112.4])
    quick: Flag = Field(description="Whether only a part was measured.", examples=[False])
    device: DeviceDocument = Field(description="What was measured.")
    software: dict[str, Text] = Field(
        default_factory=dict, max_length=50, description="Versions.", examples=[{"torch": "2.13.0"}]
    )
    host: Text = Field(description="Name of the machine.", examples=["node-7"])
    matmuls: list[MatmulDocument] = Field(max_length=MOST_KERNELS, description="Matrix products.")
    streams: list[StreamDocument] = Field(max_length=MOST_KERNELS, description="Memory bandwidth.")
    attentions: list[AttentionDocument] = Field(max_length=MOST_KERNELS, description="Attention.")
    launches: list[TimingDocument] = Field(max_length=MOST_KERNELS, description="Kernels with nothing to do.")
    collectives: list[CollectiveDocument] = Field(max_length=MOST_KERNELS, description="Collectives.")
    skipped: list[SkippedDocument] = Field(
        default_factory=list, max_length=MOST_KERNELS, description="What was not measured, and why."
    )

    def to_profile(self) -> HardwareProfile:
        """The domain value; raises ``InvalidDocument`` with every figure that cannot be."""
        problems: list[FieldProblem] = []
        rows: dict[str, tuple[Any, ...]] = {
            name: tuple(
                _read(entry, f"{name}[{index}]", problems) for index, entry in enumerate(getattr(self, name))
            )
            for name in ("matmuls", "streams", "attentions", "launches", "collectives")
        }
        if problems:
            raise InvalidDocument(problems)
        return HardwareProfile(
            device=self.device.name,
            is_gpu=self.device.type == "cuda",
            taken_at=self.taken_at,
            skipped=tuple((entry.what, entry.reason) for entry in self.skipped),
            facts={"host": self.host, **self.software, **self.device.clocks},
            **rows,
        )


def _read(entry: TimingDocument, path: str, problems: list[FieldProblem]) -> object:
    """The domain value of an entry; ``None`` where it is wrong, which ``problems`` then says."""
    try:
        convert = getattr(entry, "to_timing", entry.to_time)
        return convert()
    except InvalidInput as error:
        problems.append(FieldProblem(f"{path}.{error.field}", error.value, error.problem, error.remedy))
        return None
