"""Number formats in which an optimizer keeps its moments and its copy of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MomentFormat(StrEnum):
    """Number format of a moment of Adam."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    """FP16 with one scale a tensor."""
    FP8 = "fp8"
    """E4M3 with one scale a tensor (FP8-LM, arXiv 2310.18313)."""
    INT8 = "int8"
    """Eight bits by a table, with an FP32 scale for 256 elements (arXiv 2110.02861; bitsandbytes, torchao)."""

    @property
    def nbytes(self) -> float:
        """Bytes of an element, scales included."""
        return _MOMENT_BYTES[self]


class MasterFormat(StrEnum):
    """Number format of the optimizer's copy of a 16-bit weight."""

    FP32 = "fp32"
    REMAINDER = "remainder"
    """The lower half of an FP32 weight, whose upper half is the BF16 weight itself: nothing is lost."""
    FP16 = "fp16"
    """FP16 with one scale a tensor."""

    @property
    def nbytes(self) -> float:
        """Bytes of an element."""
        return 4.0 if self is MasterFormat.FP32 else 2.0


_MOMENT_BYTES = {
    MomentFormat.FP32: 4.0,
    MomentFormat.BF16: 2.0,
    MomentFormat.FP16: 2.0,
    MomentFormat.FP8: 1.0,
    MomentFormat.INT8: 1.0 + 4.0 / 256.0,
}


@dataclass(frozen=True, slots=True)
class OptimizerStates:
    """Formats of what the optimizer keeps; SGD has the first moment alone."""

    first_moment: MomentFormat = MomentFormat.FP32
    second_moment: MomentFormat = MomentFormat.FP32
    master_weight: MasterFormat = MasterFormat.FP32

    @property
    def is_narrow(self) -> bool:
        """Whether anything has fewer bits than FP32."""
        return self != FULL_STATES

    @property
    def words(self) -> str:
        """The formats in one line."""
        return f"moments {self.first_moment} and {self.second_moment}, weights {self.master_weight}"

    @property
    def widened(self) -> int:
        """States that Transformer Engine's Adam copies to FP32 for its step, all of a group at once.

        It reads two BF16 moments and a remainder as they are, and widens every other narrow format
        (``transformer_engine/pytorch/optimizers/fused_adam.py``, ``fuse_unscale``); kernels of 8-bit Adam widen
        in registers.
        """
        moments = (self.first_moment, self.second_moment)
        as_they_are = {MomentFormat.FP32, MomentFormat.INT8}
        if moments == (MomentFormat.BF16, MomentFormat.BF16):
            as_they_are.add(MomentFormat.BF16)
        return sum(each not in as_they_are for each in moments) + (self.master_weight is MasterFormat.FP16)


FULL_STATES = OptimizerStates()


def optimizer_instances(ranks: int, most: int) -> int:
    """Copies of the optimizer's states on ``ranks`` that equal groups of up to ``most`` of them share out.

    ``most`` 0: one copy (Megatron-Core's ``--num-distributed-optimizer-instances``).
    """
    return next(
        copies for copies in range(1, ranks + 1) if ranks % copies == 0 and ranks <= copies * (most or ranks)
    )
