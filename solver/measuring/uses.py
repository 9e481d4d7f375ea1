"""Links between nodes that a plan uses, for what, and how much of its step time hangs on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from cluster_models.training.plan import Plan, RankPlace

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Use:
    """``pairs`` of nodes, each ordered by name, that ranks of one kind of group talk over.

    ``exposed_s`` is what of the step that communication takes, hidden parts left out.
    """

    traffic: str
    exposed_s: float
    pairs: frozenset[Pair]


def uses_of(plan: Plan) -> tuple[Use, ...]:
    """The uses of a plan's links, in the order of their names; those that stay inside nodes are left out.

    Stages talk to the next, rings of data, context and tensor ranks to their neighbours, expert ranks all to all.
    """
    ranks, degrees, time = plan.placement.ranks, plan.configuration.degrees, plan.time
    wraps = degrees.virtual_pipeline > 1 and not plan.configuration.schedule.is_v_shaped
    chains = _groups(ranks, lambda r: (r.tensor, r.context, r.data), lambda r: (r.pipeline,))
    rings = _groups(ranks, lambda r: (r.tensor, r.pipeline), lambda r: (r.data, r.context))
    contexts = _groups(ranks, lambda r: (r.tensor, r.pipeline, r.data), lambda r: (r.context,))
    tensors = _groups(ranks, lambda r: (r.context, r.pipeline, r.data), lambda r: (r.tensor,))
    block = degrees.expert_block
    stages = _groups(ranks, lambda r: r.pipeline, lambda r: (r.data, r.context, r.tensor))
    # expert groups fold over all ranks of a stage, tensor fastest; a block's groups are on all of its nodes
    together = [stage[start : start + block] for stage in stages for start in range(0, len(stage), block)]
    exchanges = (pair for group in together for pair in combinations(dict.fromkeys(group), 2))
    found = (
        Use("pipeline", time.pipeline_transfer_s, _nodes(_chain(chains, wraps=wraps))),
        Use("data parallel", time.data_exposed_s, _nodes(_chain(rings, wraps=True))),
        Use("context parallel", time.context_s, _nodes(_chain(contexts, wraps=True))),
        Use("tensor parallel", time.tensor_s, _nodes(_chain(tensors, wraps=True))),
        Use("expert parallel", time.expert_s, _nodes(exchanges)),
    )
    return tuple(use for use in found if use.pairs)


def _groups(
    ranks: Iterable[RankPlace],
    same: Callable[[RankPlace], Hashable],
    order: Callable[[RankPlace], tuple[int, ...]],
) -> list[list[str]]:
    """Nodes of the ranks of each group, in the order of the group."""
    groups: dict[Hashable, list[RankPlace]] = defaultdict(list)
    for rank in ranks:
        groups[same(rank)].append(rank)
    return [[rank.node for rank in sorted(group, key=order)] for group in groups.values()]


def _chain(groups: Iterable[Sequence[str]], *, wraps: bool) -> Iterator[Pair]:
    for group in groups:
        yield from pairwise(group)
        if wraps:
            yield group[-1], group[0]


def _nodes(pairs: Iterable[Pair]) -> frozenset[Pair]:
    return frozenset((min(a, b), max(a, b)) for a, b in pairs if a != b)
