"""Groups of micro-batches that take turns on the virtual stages of a pipeline rank, by the rules of each framework.

A rank runs a whole group through one virtual stage before it turns to the next.  Megatron-Core: ``schedules.py``,
whose groups were as large as the pipeline until 0.10 made their size an argument
(``--microbatch-group-size-per-virtual-pipeline-stage``).  PyTorch: ``ScheduleInterleaved1F1B``.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cluster_models.training.frameworks import Framework

SIZED_SINCE: Final = 10
"""Megatron-Core from which the size of groups can be told, and a single group warms up like any other."""


class Interleaving(StrEnum):
    """How micro-batches pass several virtual stages of one pipeline rank."""

    NONE = "none"
    """A rank has one stage."""
    MEGATRON = "megatron"
    """In groups of as many as pipeline ranks; from Megatron-Core 0.10 on of any legal size."""
    PYTORCH = "pytorch"
    """In equal groups of at least as many as pipeline ranks (``torch.distributed.pipelining``)."""


def takes_group_sizes(framework: Framework) -> bool:
    """Whether the framework's launcher has an option for how many micro-batches make a group."""
    return framework.interleaving is Interleaving.MEGATRON and framework.megatron_core >= SIZED_SINCE


def micro_batch_group(framework: Framework, pipeline: int, micro_batches: int) -> int | None:
    """Micro-batches of a group; ``None`` where the framework cannot interleave so many on ``pipeline`` ranks.

    As many as ranks where these divide the micro-batches.  Else PyTorch's equal groups, or the smallest that
    Megatron-Core takes: a larger one holds more activations.
    """
    if framework.interleaving is Interleaving.NONE or pipeline < 2 or micro_batches < pipeline:
        return None
    if micro_batches % pipeline == 0:
        return pipeline
    if framework.interleaving is Interleaving.PYTORCH:
        return equal_group(pipeline, micro_batches)
    return _smallest_group(pipeline, micro_batches) if takes_group_sizes(framework) else None


def runs_all_forwards_first(framework: Framework) -> bool:
    """Whether as many micro-batches as pipeline ranks all pass forward before the first passes backward.

    Megatron's interleaved schedule did so up to Megatron-Core 0.9; the one whose groups have a size, and PyTorch's,
    warm up as with more micro-batches.
    """
    return framework.interleaving is Interleaving.MEGATRON and framework.megatron_core < SIZED_SINCE


def equal_group(pipeline: int, micro_batches: int) -> int | None:
    """Micro-batches of PyTorch's groups, as many groups as ranks would fill; ``None`` where they are not equal."""
    group, rest = divmod(micro_batches, max(1, micro_batches // pipeline))
    return None if rest else group


@lru_cache(maxsize=65_536)
def _smallest_group(pipeline: int, micro_batches: int) -> int:
    """The smallest group that leaves a last one of no micro-batches or of at least ``pipeline``."""
    sizes = range(pipeline + 1, micro_batches + 1)
    return next(size for size in sizes if (rest := micro_batches % size) == 0 or rest >= pipeline)
