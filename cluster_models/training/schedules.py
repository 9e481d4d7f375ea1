"""Pipeline schedules: the order in which ranks run micro-batches, and the chunks that each rank has.

A rank has one chunk of the model or several, its virtual stages.  ``rows[v][s]`` stands for virtual stage ``v`` on
pipeline rank ``s``.  PyTorch's names and rules: ``torch/distributed/pipelining/schedules.py`` and torchtitan's
``_get_pp_rank_to_stage_indices_mapping``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

from cluster_models.training.interleaving import Interleaving, micro_batch_group

if TYPE_CHECKING:
    from cluster_models.training.frameworks import Framework

Item = TypeVar("Item")


class PipelineSchedule(StrEnum):
    """Order of work on the ranks of a pipeline."""

    ONE_F_ONE_B = "1f1b"
    """A forward and a backward in turn; interleaved with several virtual stages (arXiv 2104.04473, section 2.2)."""
    GPIPE = "gpipe"
    """All forwards, then all backwards (arXiv 1811.06965); with several virtual stages breadth-first: all
    micro-batches pass one before the next (arXiv 2211.05953, PyTorch's LoopedBFS)."""
    ZERO_BUBBLE = "zero_bubble"
    """1F1B that computes gradients of weights apart, when the rank would wait (ZB-H1, arXiv 2401.10241; with
    several virtual stages PyTorch's InterleavedZeroBubble)."""
    ZB_V = "zb_v"
    """The same on two virtual stages laid out as a V, the memory of 1F1B and hardly a bubble (arXiv 2405.15362)."""
    DUALPIPE_V = "dualpipe_v"
    """DeepSeek's DualPipe on such a V: a forward and a backward of other micro-batches run as one (arXiv
    2412.19437, section 3.2.1; DeepSeek's DualPipe repository)."""

    @property
    def is_v_shaped(self) -> bool:
        """Whether every second virtual stage runs from the last rank to the first."""
        return self in _V_SHAPED

    @property
    def splits_backward(self) -> bool:
        """Whether gradients of weights may be computed later than those of activations."""
        return self in _SPLIT


_V_SHAPED: Final = frozenset({PipelineSchedule.ZB_V, PipelineSchedule.DUALPIPE_V})
_SPLIT: Final = frozenset({PipelineSchedule.ZERO_BUBBLE, *_V_SHAPED})
_IN_GROUPS: Final = frozenset({PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.ZERO_BUBBLE})
V_STAGES: Final = 2
"""Virtual stages of a V."""


def in_groups(schedule: PipelineSchedule) -> bool:
    """Whether micro-batches pass several virtual stages in groups (``cluster_models.training.interleaving``)."""
    return schedule in _IN_GROUPS


def in_model_order(schedule: PipelineSchedule, rows: Sequence[Sequence[Item]]) -> tuple[Item, ...]:
    """The items of ``rows[v][s]`` in the order in which the model runs through their chunks."""
    return tuple(
        item for v, row in enumerate(rows) for item in (row[::-1] if schedule.is_v_shaped and v % 2 else row)
    )


def rows_of(schedule: PipelineSchedule, pipeline: int, in_order: Sequence[Item]) -> tuple[tuple[Item, ...], ...]:
    """``rows[v][s]`` of items in the order in which the model runs through their chunks."""
    rows = [tuple(in_order[first : first + pipeline]) for first in range(0, len(in_order), pipeline)]
    return tuple(row[::-1] if schedule.is_v_shaped and v % 2 else row for v, row in enumerate(rows))


def model_columns(schedule: PipelineSchedule, pipeline: int, virtual: int) -> tuple[int, ...]:
    """``v * pipeline + s`` of every chunk, in the order in which the model runs through them."""
    return in_model_order(schedule, [range(v * pipeline, (v + 1) * pipeline) for v in range(virtual)])


def as_run(framework: Framework, schedule: PipelineSchedule) -> Framework:
    """The framework as it runs ``schedule``.

    PyTorch splits backward passes operation by operation: the backward of a block that ``torch.compile`` made is a
    single one, so that stages run uncompiled (``_check_torch_compile_compatibility``), without what compilers fuse
    or overlap.
    """
    if framework.interleaving is not Interleaving.PYTORCH or not schedule.splits_backward:
        return framework
    return replace(framework, fused_kernels=False, overlap_tensor=False)


def can_run(
    framework: Framework, schedule: PipelineSchedule, *, pipeline: int, virtual: int, micro_batches: int
) -> bool:
    """Whether the framework runs so many micro-batches under ``schedule`` on ``virtual`` stages of each rank."""
    if pipeline == 1:
        return schedule is PipelineSchedule.ONE_F_ONE_B and virtual == 1
    if schedule not in framework.schedules or micro_batches < framework.fewest_micro_batches(pipeline):
        return False
    torch = framework.interleaving is Interleaving.PYTORCH
    groups = virtual == 1 or micro_batch_group(framework, pipeline, micro_batches) is not None
    rules = {
        # PyTorch refuses fewer micro-batches than stages
        PipelineSchedule.ONE_F_ONE_B: groups and (micro_batches >= pipeline or not torch),
        PipelineSchedule.GPIPE: virtual == 1 or framework.interleaving is not Interleaving.NONE,
        # torchtitan wants several stages on a rank where PyTorch takes several
        PipelineSchedule.ZERO_BUBBLE: groups and (virtual > 1 or not torch),
        PipelineSchedule.ZB_V: virtual == V_STAGES,
        PipelineSchedule.DUALPIPE_V: virtual == V_STAGES and micro_batches >= V_STAGES * pipeline,
    }
    return rules[schedule]
