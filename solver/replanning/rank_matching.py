"""Host order of a new plan that moves least: old and new ranks are matched before any byte is counted.

Only renumberings that leave the step time as it is come into question (``docs/replanning.md`` says which, and why).
Letters: K slots of the new plan, one host each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import scipy

from solver.answer.assemble import place_ranks
from solver.costs.training_state import NOBODY, PlanState, states_of
from solver.placement.geometry import coordinates
from solver.replanning.alike import alike_hosts
from solver.replanning.overlap import Needs, needs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cluster_models.jobs.running import RunningJob
    from cluster_models.links.model import LinkModel
    from cluster_models.training.plan import Configuration
    from solver.candidates import FloatArray, IntArray
    from solver.replanning.problem import ReplanProblem

INSIDE_SHARE: Final = 0.1
"""Weight of a byte inside a node beside one between nodes: NVLink is about ten times as fast as a card."""
NEVER: Final = 1e30
"""Bytes that stand for what cannot be."""
_TURNS: Final = 4
"""Rotations of the replicas that are worked out in full, the most promising by their own cost."""
_AS_FAST: Final = 1 + 1e-9


def relabel(
    job: RunningJob,
    hosts: Sequence[str],
    configuration: Configuration,
    problem: ReplanProblem,
    *,
    lost: frozenset[tuple[str, int]] = frozenset(),
    links: LinkModel | None = None,
    step_s: Callable[[Sequence[str]], float] | None = None,
) -> tuple[str, ...]:
    """The order of ``hosts``, among those that make a plan as fast, which moves the fewest bytes.

    Free are exchanges of hosts that nothing tells apart and rotations of whole replicas.  ``step_s``, the step time
    of an order, allows any order of the replicas, and without placement rules any order at all, that it finds no
    slower.  The state on the GPUs of ``lost`` counts as gone.  A host never takes the place of one of another kind.
    """
    links = problem.links() if links is None else links
    cost = move_bytes(job, hosts, configuration, lost=lost)
    kinds = np.array([problem.nodes[host].gpu_kind for host in hosts])
    cost = np.where(kinds[:, None] == kinds[None, :], cost, NEVER)
    has_rules = job.plan.workload is not None and bool(job.plan.workload.placement)
    alike = alike_hosts(hosts, job, problem, links, apart=has_rules or bool(problem.snapshot.cluster.switches))
    groups = replica_slots(configuration, len(hosts))
    slots = np.arange(len(hosts))
    best, least = slots, float(cost[slots, slots].sum())
    limit_s = step_s(hosts) * _AS_FAST if step_s else 0.0
    for order, is_free in _orders(cost, groups, is_judged=step_s is not None, any_order=not has_rules):
        found = _exchanged(cost, order, alike)
        total = float(cost[slots, found].sum())
        if total >= least:
            continue
        if is_free or (step_s is not None and step_s([hosts[position] for position in found.tolist()]) <= limit_s):
            best, least = found, total
    return tuple(hosts[position] for position in best.tolist())


def move_bytes(
    job: RunningJob,
    hosts: Sequence[str],
    configuration: Configuration,
    *,
    lost: frozenset[tuple[str, int]] = frozenset(),
) -> FloatArray:
    """(K, K) bytes that must come to host ``j`` for it to play slot ``k``.

    Those from other nodes, and ``INSIDE_SHARE`` of those from other GPUs of its own; each rank sits on the GPU of
    its number on a node, as the old ones do.
    """
    plan = job.plan
    per_node = min(plan.placement.gpus_per_node, configuration.degrees.gpus)
    if -(-configuration.degrees.gpus // per_node) != len(hosts):
        per_node = -(-configuration.degrees.gpus // len(hosts))
    new = replace(plan, configuration=configuration, placement=place_ranks(configuration, tuple(hosts), per_node))
    before, after = states_of((plan, new), job.recovery)
    needs = needs_of(before, after)
    starts = np.cumsum([0, *(each.atom_bytes.size for each in needs)])
    columns = [each.run * each.atoms + each.atom + start for each, start in zip(needs, starts, strict=False)]
    rank, column = np.concatenate([each.rank for each in needs]), np.concatenate(columns)
    size = np.concatenate([each.bytes for each in needs])
    slot, inside = rank // per_node, rank % per_node
    owner, owned = _holdings(needs, before, starts)
    position = _positions(job, hosts, before, lost)
    known = position[owner] != NOBODY
    owner, owned = owner[known], owned[known]
    host, local = position[owner], owner % plan.placement.gpus_per_node
    shape = (len(hosts), int(starts[-1]))
    missing = np.bincount(slot, weights=size, minlength=len(hosts))[:, None]
    near = _shared(shape, (slot, column, size), (host, owned))
    same = np.zeros_like(near)
    for gpu in range(per_node):
        mine, theirs = inside == gpu, local == gpu
        wanted = slot[mine], column[mine], size[mine]
        same += _shared(shape, wanted, (host[theirs], owned[theirs]))
    cost: FloatArray = missing - near + INSIDE_SHARE * (near - same)
    return cost


def _shared(
    shape: tuple[int, int], wanted: tuple[IntArray, IntArray, FloatArray], held: tuple[IntArray, IntArray]
) -> FloatArray:
    """(K, K) bytes that slots want, ``wanted`` (slot, column, bytes), and hosts have, ``held`` (host, column)."""
    slot, column, size = wanted
    host, owned = np.divmod(np.unique(held[0] * shape[1] + held[1]), shape[1])
    wants = scipy.sparse.csr_array((size, (slot, column)), shape=shape)
    has = scipy.sparse.csr_array((np.ones(len(host)), (host, owned)), shape=shape)
    return np.asarray((wants @ has.T).toarray(), dtype=np.float64)


def _holdings(needs: Sequence[Needs], old: PlanState, starts: IntArray) -> tuple[IntArray, IntArray]:
    """Every (old rank, column) of what old ranks hold."""
    ranks, columns = [], []
    for each, start in zip(needs, starts, strict=False):
        member, atom = each.held // each.atoms, each.held % each.atoms
        run, stage = np.nonzero(each.runs.old)
        ranks.append(old.rank_of[stage][:, member].ravel())
        columns.append((run[:, None] * each.atoms + atom + start).ravel())
    return np.concatenate(ranks), np.concatenate(columns)


def _positions(job: RunningJob, hosts: Sequence[str], old: PlanState, lost: frozenset[tuple[str, int]]) -> IntArray:
    """(R,) the position in ``hosts`` of each old rank's node; ``NOBODY`` where it is elsewhere or its GPU lost."""
    number = {host: index for index, host in enumerate(hosts)}
    found = np.array([number.get(host, NOBODY) for host in old.hosts], dtype=np.int64)[old.host]
    gone = [(place.node, place.gpu) in lost for place in job.plan.placement.ranks]
    return np.where(gone, NOBODY, found)


def _orders(
    cost: FloatArray, groups: IntArray | None, *, is_judged: bool, any_order: bool
) -> Iterator[tuple[IntArray, bool]]:
    """Host positions by slot to start from, and whether each is as fast for sure."""
    slots = np.arange(len(cost))
    yield slots, True
    if groups is not None:
        turned = [_with_groups(groups, np.roll(groups, turn, axis=0)) for turn in range(1, len(groups))]
        turned.sort(key=lambda order: float(cost[slots, order].sum()))
        yield from ((order, True) for order in turned[:_TURNS])
        if is_judged:
            whole = cost[groups[:, None, :], groups[None, :, :]].sum(axis=2)
            yield _with_groups(groups, groups[scipy.optimize.linear_sum_assignment(whole)[1]]), False
    if is_judged and any_order:
        yield scipy.optimize.linear_sum_assignment(cost)[1], False


def _with_groups(groups: IntArray, taken: IntArray) -> IntArray:
    """The order in which the slots ``groups`` have the hosts of the slots ``taken``, both (G, w)."""
    order = np.arange(groups.size)
    order[groups.ravel()] = taken.ravel()
    return order


def _exchanged(cost: FloatArray, order: IntArray, alike: Sequence[Sequence[IntArray]]) -> IntArray:
    """``order`` with exchangeable classes, and the hosts of each, on those of their slots that cost least."""
    found = order.copy()
    for classes in alike:
        slots = [np.flatnonzero(np.isin(order, members)) for members in classes]
        ways = [[_matched(cost, own, members) for members in classes] for own in slots]
        total = np.array([[way[0] for way in row] for row in ways])
        for own, taken in zip(*scipy.optimize.linear_sum_assignment(total), strict=True):
            found[slots[own]] = ways[own][taken][1]
    return found


def _matched(cost: FloatArray, slots: IntArray, hosts: IntArray) -> tuple[float, IntArray]:
    """The least cost of ``hosts`` on ``slots``, and the host of each."""
    part = cost[np.ix_(slots, hosts)]
    rows, columns = scipy.optimize.linear_sum_assignment(part)
    return float(part[rows, columns].sum()), hosts[columns]


def replica_slots(configuration: Configuration, slots: int) -> IntArray | None:
    """(G, w) the slots of each group of replicas that can change places as a whole; ``None`` where there is one.

    Replicas whose cells share a node, or that share experts out between them, stay together.
    """
    degrees, cell = configuration.degrees, configuration.degrees.tensor * configuration.degrees.context
    per_slot = -(-degrees.gpus // slots)
    ranks = np.arange(degrees.gpus)
    _, _, replica, stage = coordinates(degrees, configuration.rank_order)
    least = max(1, degrees.expert_block // cell)
    for size in range(least, degrees.data // 2 + 1, least):
        if degrees.data % size == 0:
            order = np.lexsort((ranks, replica // size)).reshape(degrees.data // size, -1)
            plays = stage[order] * degrees.gpus + replica[order] % size * cell + order % cell
            whole = order.reshape(len(order), -1, per_slot) // per_slot if order.shape[1] % per_slot == 0 else None
            if whole is not None and (whole == whole[:, :, :1]).all() and (plays == plays[0]).all():
                return np.asarray(whole[:, :, 0])
    return None
