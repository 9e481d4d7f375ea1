"""Migration from a running plan to a new one: what moves, from where, over which links, how long.

``docs/replanning.md`` (section "What moves") derives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cluster_models.jobs.recovery import Migration, MovedRank, MovedState, StateSource
from cluster_models.jobs.times import TimeRange
from solver.costs.training_state import NOBODY, PlanState, states_of
from solver.replanning.flows import (
    HOST_BYTES_PER_S,
    KINDS,
    SLOWER_TRANSFER,
    Flows,
    bytes_by_link,
    flows_of,
    transfer_time,
)
from solver.replanning.overlap import needs_of
from solver.replanning.sources import (
    Available,
    Distances,
    Found,
    available,
    distances_between,
    kept_atoms,
    supplies,
)

if TYPE_CHECKING:
    from cluster_models.jobs.running import RecoveryPolicy, RunningJob
    from cluster_models.links.model import LinkModel
    from cluster_models.training.plan import Plan
    from solver.candidates import BoolArray, IntArray
    from solver.replanning.problem import ReplanProblem

WARM_UP_STEPS: Final = (0.5, 3.0)
"""Steps' worth of time that the first steps lose to allocation, autotuning and cold caches (our assumption)."""
_LIVE_SOURCES: Final = {
    Found.SAME_GPU: StateSource.SAME_GPU,
    Found.SAME_NODE: StateSource.SAME_NODE,
    Found.ELSEWHERE: StateSource.PEER,
}
_CHECKPOINT_SOURCES: Final = {
    Found.SAME_NODE: StateSource.HOST_MEMORY,
    Found.ELSEWHERE: StateSource.HOST_MEMORY,
    Found.NOWHERE: StateSource.CHECKPOINT,
}


@dataclass(frozen=True, slots=True, eq=False)
class _Scene:
    """Old and new state on nodes that ``old_node`` and ``new_node`` (R,) count; ``alive`` (R,) by old rank.

    ``own`` (R',): the old rank that ran on each new rank's GPU and is still there; ``moved`` (R',).
    """

    old: PlanState
    new: PlanState
    distances: Distances
    old_node: IntArray
    new_node: IntArray
    alive: BoolArray
    own: IntArray
    old_part: IntArray
    new_part: IntArray

    @property
    def moved(self) -> BoolArray:
        """(R',) whether a new rank's GPU did not run its part before."""
        did_run: BoolArray = (self.own != NOBODY) & (self.old_part[self.own] == self.new_part)
        return ~did_run


def migration(
    job: RunningJob,
    new: Plan,
    *,
    problem: ReplanProblem,
    lost: frozenset[tuple[str, int]],
    links: LinkModel | None = None,
) -> Migration:
    """Migration to ``new`` in place of the job's plan when the state on the GPUs of ``lost`` is gone.

    ``lost`` are (node, GPU number).  Where every part of the state has a live copy and the framework hands it over,
    only what a GPU lacks moves.  A cold restart reads everything back: from a checkpoint that is saved first where
    nothing is lost, and nothing is repeated then.  Else the whole job falls back to its last checkpoint: in the
    memory of nodes where that has every part, else on storage, for the two need not be of the same step.  A paused
    job has nothing but the checkpoint that it ended at, and repeats nothing.
    ``links`` are those of the problem's snapshot, made here where not given.
    """
    links = problem.links() if links is None else links
    cluster, recovery = problem.snapshot.cluster, job.recovery
    if job.is_paused:
        lost = frozenset((place.node, place.gpu) for place in job.plan.placement.ranks)
    scene = _scene(job, new, lost, links)
    needs = needs_of(scene.old, scene.new)
    gone = sum(float(each.atom_bytes[~kept_atoms(each, scene.old, scene.alive)].sum()) for each in needs)
    is_cold = not recovery.hands_over_state and not job.is_paused
    saves = is_cold and not any((place.node, place.gpu) in lost for place in job.plan.placement.ranks)
    falls_back = gone > 0 or is_cold
    in_memory = recovery.memory_checkpoint and not job.is_paused
    held = _checkpoints(scene, in_memory=in_memory) if falls_back else _on_gpus(scene)
    met = [supplies(each, scene.old, held, scene.distances) for each in needs]
    from_storage = falls_back and any((each.found == Found.NOWHERE).any() for each in met)
    if from_storage and in_memory:
        held = _checkpoints(scene, in_memory=False)
        met = [supplies(each, scene.old, held, scene.distances) for each in needs]
    flows = flows_of(met, scene.new_node)
    moved = scene.moved
    stays = flows.of(Found.SAME_NODE, Found.ELSEWHERE) & ~moved[flows.rank]
    transfer = transfer_time(
        flows, scene.distances, cluster, from_memory=falls_back, storage_bytes_per_s=recovery.storage_bytes_per_s
    )
    restart = TimeRange(recovery.restart_low_s, recovery.restart_high_s)
    warm_up = TimeRange(*(steps * new.time.step_s for steps in WARM_UP_STEPS))
    repeats = falls_back and not job.is_paused and not saves
    save = _saving(scene.old, recovery, to_storage=not in_memory) if saves else TimeRange()
    least, most = recovery.repeated_steps(from_storage=from_storage) if repeats else (0.0, 0.0)
    repeated = _repeated(job, new, least, most)
    parts = (save, transfer, restart, warm_up, repeated)
    return Migration(
        moved=_moved_ranks(job.plan, new, scene, flows, falls_back=falls_back),
        bytes=bytes_by_link(flows, scene.distances, cluster, from_memory=falls_back),
        save=save,
        transfer=transfer,
        restart=restart,
        warm_up=warm_up,
        downtime=TimeRange(sum(each.low_s for each in parts), sum(each.high_s for each in parts)),
        steps_lost=(least + most) / 2,
        state_without_copy_bytes=gone,
        recut_bytes=0.0 if falls_back else float(flows.bytes[stays].sum()),
    )


def _scene(job: RunningJob, new: Plan, lost: frozenset[tuple[str, int]], links: LinkModel) -> _Scene:
    before, after = states_of((job.plan, new), job.recovery)
    distances = distances_between([*before.hosts, *after.hosts], links, new.placement.gpus_per_node)
    old_node, new_node = (
        distances.positions(before.hosts)[before.host],
        distances.positions(after.hosts)[after.host],
    )
    alive = np.array([(place.node, place.gpu) not in lost for place in job.plan.placement.ranks], dtype=np.bool_)
    old_places = zip(old_node.tolist(), before.gpu.tolist(), strict=True)
    at = {place: rank for rank, place in enumerate(old_places) if alive[rank]}
    places = zip(new_node.tolist(), after.gpu.tolist(), strict=True)
    own = np.array([at.get(place, NOBODY) for place in places], dtype=np.int64)
    old_part, new_part = _parts_run((job.plan, before), (new, after))
    return _Scene(before, after, distances, old_node, new_node, alive, own, old_part, new_part)


def _parts_run(old: tuple[Plan, PlanState], new: tuple[Plan, PlanState]) -> tuple[IntArray, IntArray]:
    """(R,) and (R',) a number for what a rank computes: its layers, its tensor slice and its experts."""
    homes = np.concatenate([state.homes for _, state in (old, new)], axis=1)
    stage = np.unique(homes, axis=1, return_inverse=True)[1].ravel()
    shapes = []
    for plan, _ in (old, new):
        degrees, routed = plan.configuration.degrees, plan.architecture is not None and plan.architecture.experts
        slots = None if plan.expert_slots is None else plan.expert_slots.slots
        shapes.append((degrees.tensor, routed and (degrees.expert, degrees.expert_tensor, slots)))
    found, first = [], 0
    for (plan, state), other in ((old, False), (new, shapes[0] != shapes[1])):
        degrees = plan.configuration.degrees
        experts = state.member % degrees.expert_block
        slices = stage[first + state.stage] * degrees.tensor + state.member % degrees.tensor
        number = slices * degrees.expert_block + experts
        found.append(-1 - number if other else number)
        first += state.homes.shape[1]
    return found[0], found[1]


def _on_gpus(scene: _Scene) -> Available:
    """State is read where it lies on live GPUs."""
    return available(np.where(scene.alive, scene.old_node, NOBODY)[:, None], scene.own, scene.new_node)


def _checkpoints(scene: _Scene, *, in_memory: bool) -> Available:
    """All fall back to the last checkpoint: on storage, or in the memory of nodes that are left.

    A node keeps its own, and that of the host before it in the plan's order (the last one's with the first).  The
    memory of a node is lost with all of the job's GPUs on it.
    """
    nobody = np.full_like(scene.own, NOBODY)
    if not in_memory:
        return available(np.full((len(scene.alive), 1), NOBODY), nobody, scene.new_node)
    hosts = len(scene.old.hosts)
    position = np.zeros(hosts, dtype=np.int64)
    position[scene.old.host] = scene.old_node
    living = np.zeros(hosts, dtype=np.bool_)
    np.logical_or.at(living, scene.old.host, scene.alive)
    sites = np.stack([scene.old.host, (scene.old.host + 1) % hosts], axis=1)
    sites = np.where(living[sites], position[sites], NOBODY)
    sites[:, 1] = np.where(sites[:, 1] == sites[:, 0], NOBODY, sites[:, 1])
    return available(sites, nobody, scene.new_node)


def _saving(state: PlanState, recovery: RecoveryPolicy, *, to_storage: bool) -> TimeRange:
    """Seconds to save a checkpoint (estimated): all of the state to storage, else each GPU's to host memory."""
    if to_storage:
        seconds = state.model_bytes / recovery.storage_bytes_per_s
    else:
        seconds = float(state.rank_bytes.max()) / HOST_BYTES_PER_S
    return TimeRange(seconds, SLOWER_TRANSFER * seconds)


def _repeated(job: RunningJob, new: Plan, least: float, most: float) -> TimeRange:
    """Seconds until the tokens of so many steps of the job are done again."""
    assert job.plan.workload is not None
    step_s = job.plan.workload.tokens_per_step / new.tokens_per_s
    return TimeRange(least * step_s, most * step_s)


def _moved_ranks(old: Plan, new: Plan, scene: _Scene, flows: Flows, *, falls_back: bool) -> tuple[MovedRank, ...]:
    """The ranks whose GPU did not run their part before, with what each gets from where."""
    moved = np.flatnonzero(scene.moved)
    sources = _CHECKPOINT_SOURCES if falls_back else _LIVE_SOURCES
    state: dict[int, list[MovedState]] = {rank: [] for rank in moved.tolist()}
    rows = np.flatnonzero(scene.moved[flows.rank])
    columns = (flows.rank, flows.kind, flows.found, flows.giver, flows.node, flows.bytes)
    for rank, kind, found, giver, node, size in zip(*(column[rows].tolist() for column in columns), strict=True):
        nobody = node == NOBODY
        state[rank].append(
            MovedState(
                kind=KINDS[kind],
                source=sources[Found(found)],
                rank=None if nobody else giver,
                node="" if nobody else scene.distances.names[node],
                bytes=size,
            )
        )
    before, after = old.placement.ranks, new.placement.ranks
    found_ranks = []
    for rank, taken in zip(moved.tolist(), _predecessors(scene, moved), strict=True):
        place = after[rank]
        origin = None if taken is None else before[taken]
        found_ranks.append(
            MovedRank(
                rank=rank,
                old_rank=taken,
                from_node="" if origin is None else origin.node,
                from_gpu=None if origin is None else origin.gpu,
                to_node=place.node,
                to_gpu=place.gpu,
                state=tuple(state[rank]),
            )
        )
    return tuple(found_ranks)


def _predecessors(scene: _Scene, moved: IntArray) -> list[int | None]:
    """The old rank whose part each moved rank takes over: of its number if it can be, then lost ones, then others.

    None that goes on where it is, and none twice.
    """
    goes_on = np.zeros(len(scene.alive), dtype=np.bool_)
    goes_on[scene.own[~scene.moved]] = True
    free: dict[int, dict[int, None]] = {}
    for rank in np.lexsort((np.arange(len(goes_on)), scene.alive)).tolist():
        if not goes_on[rank]:
            free.setdefault(int(scene.old_part[rank]), {})[rank] = None
    found: list[int | None] = [None] * len(moved)
    for index, rank in enumerate(moved.tolist()):
        same = free.get(int(scene.new_part[rank]), {})
        if rank in same:
            found[index] = rank
            del same[rank]
    for index, rank in enumerate(moved.tolist()):
        same = free.get(int(scene.new_part[rank]), {})
        if found[index] is None and same:
            found[index] = next(iter(same))
            del same[next(iter(same))]
    return found
