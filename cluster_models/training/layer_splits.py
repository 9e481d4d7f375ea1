"""How decoder layers are shared out among pipeline stages, and which ways a framework's launcher has options for.

Megatron-Core takes any split from 0.13 on (``--pipeline-model-parallel-layout``).  Before that it counts layers of
the first and the last pipeline rank apart (0.9; with virtual stages 0.11), or takes the embedding and the loss for
a layer each (0.11): ``get_num_layers_to_build`` in ``megatron/core/transformer/transformer_block.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from cluster_models.training.frameworks import Framework

Rows = tuple[tuple[int, ...], ...]
"""``rows[v][s]``: decoder layers of virtual stage ``v`` on pipeline rank ``s`` (as in ``Configuration``)."""


class LayerSplit(StrEnum):
    """Ways to share layers out, the easiest to launch first."""

    EVEN = "even"
    """As many everywhere."""
    ENDS = "ends"
    """The first and the last pipeline rank have their own numbers, alike in each of their virtual stages."""
    LESS_ENDS = "less_ends"
    """As many everywhere, but one less in the first stage of all, in the last, or in both."""
    ANY = "any"


ANY_SINCE: Final = 13
_ENDS_SINCE: Final = 9
_VIRTUAL_ENDS_SINCE: Final = 11
_LESS_ENDS_SINCE: Final = 11


def split_of(rows: Rows) -> LayerSplit:
    """The easiest way in which these layers are shared out."""
    counts = [count for row in rows for count in row]
    if len(set(counts)) == 1:
        return LayerSplit.EVEN
    if len(set(rows)) == 1 and len(set(rows[0][1:-1])) < 2 and 0 not in rows[0]:
        return LayerSplit.ENDS
    most = max(counts)
    if set(counts[1:-1]) <= {most} and min(counts[0], counts[-1]) == most - 1:
        return LayerSplit.LESS_ENDS
    return LayerSplit.ANY


def can_launch(framework: Framework, rows: Rows) -> bool:
    """Whether the framework's launcher can share layers out so; all others than Megatron-Core can."""
    if takes_any_split(framework):
        return True
    release = framework.megatron_core
    match split_of(rows):
        case LayerSplit.EVEN:
            return True
        case LayerSplit.ENDS:
            return release >= (_ENDS_SINCE if len(rows) == 1 else _VIRTUAL_ENDS_SINCE)
        case LayerSplit.LESS_ENDS:
            return release >= _LESS_ENDS_SINCE
        case _:
            return False


def takes_any_split(framework: Framework) -> bool:
    """Whether the framework's launcher takes any split; only older Megatron-Core cannot."""
    return not framework.megatron_core or framework.megatron_core >= ANY_SINCE


def simple_splits(layers: int, pipeline: int, virtual: int) -> Iterator[Rows]:
    """Splits that have a name other than ``ANY``, with a layer in every stage, the easiest to launch first.

    Ranks between the ends hold about their share: from a layer less than it to what is left where each end has one.
    """
    stages = pipeline * virtual
    if layers % stages == 0:
        yield ((layers // stages,) * pipeline,) * virtual
    if pipeline == 1:
        return
    for first, last in ((1, 0), (0, 1), (1, 1)):
        each, rest = divmod(layers + first + last, stages)
        if not rest and each > 1:
            flat = [each - first, *[each] * (stages - 2), each - last]
            yield tuple(tuple(flat[start : start + pipeline]) for start in range(0, stages, pipeline))
    share, rest = divmod(layers, virtual)
    if rest or share < pipeline:
        return
    between = range(max(1, share // pipeline - 1), -(-(share - 1) // (pipeline - 1)) + 1)
    for middle in between if pipeline > 2 else range(1):
        ends = share - middle * (pipeline - 2)
        for first in range(1, ends):
            yield ((first, *[middle] * (pipeline - 2), ends - first),) * virtual
