"""Re-routing: live data ranks of a stage run the micro-batches of lost ones (ReCycle, arXiv 2405.14009).

A *cell* is one replica's part on one stage.  The micro-batches of a dead cell go in turn to the live cells of its
stage.  Every cell runs what is ready, backwards first, and holds as many micro-batches between forward and backward
as 1F1B has it, or as its memory lets it if that is faster.  The step is simulated.

Letters: D replicas, P stages, m micro-batches of a replica.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from cluster_models.remarks import Remark, remark
from cluster_models.training.plan import Certificate, Plan, RankPlace
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import Sharding
from solver.answer.assemble import place_ranks
from solver.candidates import BoolArray, FloatArray, IntArray
from solver.placement.problem import PlacementProblem, placed_times
from solver.replanning.site import JobSite

_FORWARD: Final = 0
_BACKWARD: Final = 1


@dataclass(frozen=True, slots=True, eq=False)
class Rerouted:
    """A job with dead cells: which cells (D, P) live, the step they take, and the stage with fewest of them."""

    alive: BoolArray
    step_s: float

    @property
    def tightest(self) -> int:
        """The stage that lost most."""
        return int(self.alive.sum(axis=0).argmin())


def cannot_reroute(site: JobSite, alive: BoolArray) -> Remark | None:
    """Why the live cells (D, P) cannot take over the others' work; ``None`` where they can."""
    configuration, least = site.job.plan.configuration, site.job.recovery.least_gpus
    degrees = configuration.degrees
    cell = degrees.tensor * degrees.context
    reasons = (
        (remark("may_not_reroute"), not site.job.recovery.may_reroute),
        (remark("interleaved_order"), degrees.virtual_pipeline > 1),
        (remark("schedule_order"), configuration.schedule is not PipelineSchedule.ONE_F_ONE_B),
        (remark("experts_across_data"), degrees.expert_block > cell),
        (remark("weights_shared_out"), configuration.sharding is Sharding.PARAMETERS),
        (remark("stage_lost"), not alive.any(axis=0).all()),
        (remark("too_few_gpus", gpus=least), int(alive.sum()) * cell < least),
    )
    return next((reason for reason, holds in reasons if holds), None) or _too_full(site, alive)


def _too_full(site: JobSite, alive: BoolArray) -> Remark | None:
    """The stage whose live ranks cannot hold the optimizer shards of the lost ones; ``None`` where all can."""
    free = _free_bytes(site, alive)
    stage = int(free.argmin())
    return remark("optimizer_state_too_large", stage=stage) if free[stage] < 0 else None


def _free_bytes(site: JobSite, alive: BoolArray) -> FloatArray:
    """(P,) memory that is left on each rank when live ones hold the optimizer shards of lost ones as well."""
    memory, share = site.candidate.memory, len(alive) / alive.sum(axis=0)
    sharded = site.job.plan.configuration.sharding in (Sharding.OPTIMIZER, Sharding.GRADIENTS)
    needed = memory.total_bytes[0] + memory.optimizer_bytes[0] * (share - 1) * sharded
    return np.asarray(memory.limit_bytes[0] - needed)


def _most_in_flight(site: JobSite, alive: BoolArray) -> tuple[IntArray, IntArray]:
    """(P,) micro-batches that a cell holds between forward and backward: as 1F1B has it, and as memory lets it."""
    stages, micro_batches = alive.shape[1], site.candidate.placement.schedule.micro_batches
    planned = np.arange(stages, 0, -1)
    each = site.candidate.memory.activations_bytes[0] / np.minimum(planned, micro_batches)
    room = np.floor(_free_bytes(site, alive) / np.maximum(each, 1.0)).astype(np.int64)
    return planned, planned + np.clip(room, 0, micro_batches * len(alive))


def living_cells(site: JobSite) -> BoolArray:
    """(D, P) cells all of whose ranks live."""
    degrees = site.job.plan.configuration.degrees
    count = np.zeros((degrees.data, degrees.pipeline), dtype=np.int64)
    for place in living_ranks(site):
        count[place.data, place.pipeline] += 1
    return np.asarray(count == degrees.tensor * degrees.context)


def living_ranks(site: JobSite) -> list[RankPlace]:
    """The ranks of the running plan whose GPU can go on."""
    resources = site.resources
    return [
        place
        for place in site.job.plan.placement.ranks
        if resources.offers(place.node, 1) and place.gpu in resources.gpus(place.node)
    ]


def rerouted(site: JobSite, alive: BoolArray) -> Rerouted:
    """The step of the live cells, each ring through those only."""
    placement = site.candidate.placement
    times = placed_times(placement, site.home)
    stride = max(1, site.job.plan.configuration.degrees.expert_block // site.candidate.fabric.gpus_per_unit)
    reduce_s, gather_s = _rings(placement, site.home, alive, stride)
    share = len(alive) / alive.sum(axis=0)
    sharded = site.job.plan.configuration.sharding in (Sharding.OPTIMIZER, Sharding.GRADIENTS)
    optimizer_s = placement.arrays.optimizer_s * (share if sharded else 1.0)
    ends = [
        _simulated(placement, site.home, owners, times.duration_s, most)
        for owners in _sharings(alive, placement.schedule.micro_batches)
        for most in _most_in_flight(site, alive)
    ]
    step_s = min(float((end.max(axis=0) + reduce_s).max()) for end in ends) + float((optimizer_s + gather_s).max())
    return Rerouted(alive, step_s)


def plan_without(site: JobSite, found: Rerouted) -> Plan:
    """The running plan with its live cells only; the longer step counts as idle time."""
    plan = site.job.plan
    assert plan.workload is not None
    alive = {(int(d), int(p)) for d, p in np.argwhere(found.alive)}
    ranks = tuple(place for place in plan.placement.ranks if (place.data, place.pipeline) in alive)
    step_s = max(found.step_s, plan.time.step_s)
    slower = step_s / plan.time.step_s
    bubble_s = plan.time.pipeline_bubble_s + step_s - plan.time.step_s
    warning = remark("micro_batches_rerouted", job=site.job.name)
    confidence = plan.confidence and replace(
        plan.confidence,
        step_low_s=plan.confidence.step_low_s * slower,
        step_high_s=plan.confidence.step_high_s * slower,
    )
    return replace(
        plan,
        placement=replace(plan.placement, ranks=ranks),
        time=replace(plan.time, step_s=step_s, pipeline_bubble_s=bubble_s),
        tokens_per_s=plan.workload.tokens_per_step / step_s,
        tokens_per_s_per_gpu=plan.tokens_per_s_per_gpu / slower,
        model_flops_per_s_per_gpu=plan.model_flops_per_s_per_gpu / slower,
        mfu=plan.mfu / slower,
        certificate=Certificate.unsearched(step_s, 0.0, remark("rerouted_step_simulated")),
        alternatives=(),
        timeline=(),
        confidence=confidence,
        robustness=None,
        warnings=tuple(dict.fromkeys((*plan.warnings, warning))),
    )


def whole_plan(site: JobSite) -> Plan:
    """The running plan with the ranks that it lost before, back on their hosts: what their state has to come to."""
    plan, gpus = site.job.plan, site.gpus
    present = {place.rank: place for place in plan.placement.ranks}
    taken: dict[str, set[int]] = {}
    for place in plan.placement.ranks:
        taken.setdefault(place.node, set()).add(place.gpu)
    ranks = []
    for place in place_ranks(plan.configuration, plan.placement.hosts, gpus).ranks:
        if place.rank not in present:
            used = taken.setdefault(place.node, set())
            free = next(gpu for gpu in range(gpus + len(used) + 1) if gpu not in used)
            used.add(free)
            present[place.rank] = replace(place, gpu=free)
        ranks.append(present[place.rank])
    return replace(plan, placement=replace(plan.placement, ranks=tuple(ranks)))


def _sharings(alive: BoolArray, micro_batches: int) -> Iterator[IntArray]:
    """Ways to share out the work of dead cells: stage by stage, or whole replicas run whole micro-batches."""
    yield _owners(alive, micro_batches)
    whole = np.asarray(alive.all(axis=1))
    if whole.any():
        yield _owners(np.broadcast_to(whole[:, None], alive.shape), micro_batches)


def _owners(alive: BoolArray, micro_batches: int) -> IntArray:
    """(D, m, P) the replica whose cell runs each micro-batch on each stage: its own, else live ones in turn."""
    replicas, stages = alive.shape
    owners = np.broadcast_to(np.arange(replicas)[:, None, None], (replicas, micro_batches, stages)).copy()
    for stage in range(stages):
        living = np.flatnonzero(alive[:, stage])
        lost = np.flatnonzero(~alive[:, stage])
        turns = np.arange(len(lost) * micro_batches).reshape(micro_batches, len(lost)).T
        owners[lost, :, stage] = living[turns % len(living)]
    return owners


@dataclass(slots=True)
class _Cell:
    """Work that is ready on one cell as (micro-batch, its replica), and what it holds; times in seconds."""

    limit: int
    forwards: list[tuple[int, int]] = field(default_factory=list)
    backwards: deque[tuple[int, int]] = field(default_factory=deque)
    in_flight: int = 0
    is_busy: bool = False
    end_s: float = 0.0


class _Event(NamedTuple):
    """An event that ends on, or arrives at, the cell of ``replica`` on ``stage``."""

    time_s: float
    is_arrival: bool
    way: int
    micro_batch: int
    source: int
    stage: int
    replica: int


@dataclass(slots=True)
class _Pipelines:
    """All cells of a step, run event by event; ``seconds`` [replica][way][stage], ``hop_s`` as ``_hop_seconds``."""

    owners: list[list[list[int]]]
    seconds: list[list[list[float]]]
    hop_s: list[list[list[list[float]]]]
    cells: list[list[_Cell]]
    is_blocking: bool
    events: list[_Event] = field(default_factory=list)

    def run(self) -> None:
        """All micro-batches through all stages and back."""
        for source, micro_batches in enumerate(self.owners):
            for index, owner in enumerate(micro_batches):
                heapq.heappush(self.cells[owner[0]][0].forwards, (index, source))
        for replica in range(len(self.cells)):
            self._start(0.0, replica, 0)
        while self.events:
            event = heapq.heappop(self.events)
            if event.is_arrival:
                self._receive(event)
            else:
                self._end(event)
            self._start(event.time_s, event.replica, event.stage)

    def _start(self, now_s: float, replica: int, stage: int) -> None:
        cell = self.cells[replica][stage]
        if cell.is_busy or not (cell.backwards or (cell.forwards and cell.in_flight < cell.limit)):
            return
        way = _BACKWARD if cell.backwards else _FORWARD
        index, source = cell.backwards.popleft() if cell.backwards else heapq.heappop(cell.forwards)
        cell.in_flight += 1 if way == _FORWARD else -1
        cell.is_busy = True
        end_s = now_s + self.seconds[replica][way][stage]
        if self.is_blocking:
            end_s += self._hop(way, source, index, stage, replica)
        heapq.heappush(self.events, _Event(end_s, False, way, index, source, stage, replica))

    def _end(self, event: _Event) -> None:
        cell = self.cells[event.replica][event.stage]
        cell.is_busy, cell.end_s = False, event.time_s
        onward = _onward(event.way, event.stage)
        if onward == len(self.cells[0]):
            cell.backwards.append((event.micro_batch, event.source))
        elif onward >= 0:
            _, _, way, index, source, stage, replica = event
            wait_s = 0.0 if self.is_blocking else self._hop(way, source, index, stage, replica)
            taker = self.owners[source][index][onward]
            heapq.heappush(self.events, _Event(event.time_s + wait_s, True, way, index, source, onward, taker))

    def _receive(self, event: _Event) -> None:
        cell = self.cells[event.replica][event.stage]
        if event.way == _FORWARD:
            heapq.heappush(cell.forwards, (event.micro_batch, event.source))
        else:
            cell.backwards.append((event.micro_batch, event.source))

    def _hop(self, way: int, source: int, index: int, stage: int, replica: int) -> float:
        onward = _onward(way, stage)
        if not 0 <= onward < len(self.cells[0]):
            return 0.0
        return self.hop_s[way][stage][replica][self.owners[source][index][onward]]


def _onward(way: int, stage: int) -> int:
    return stage + 1 if way == _FORWARD else stage - 1


def _simulated(
    placement: PlacementProblem, assignment: IntArray, owners: IntArray, duration_s: FloatArray, most: IntArray
) -> FloatArray:
    """(D, P) when each cell ends its last backward (0 without any); it holds ``most`` (P,) micro-batches."""
    pipelines = _Pipelines(
        owners=owners.tolist(),
        seconds=duration_s.tolist(),
        hop_s=_hop_seconds(placement, assignment),
        cells=[[_Cell(limit) for limit in most.tolist()] for _ in owners],
        is_blocking=placement.schedule.blocking,
    )
    pipelines.run()
    return np.array([[cell.end_s for cell in row] for row in pipelines.cells])


def _hop_seconds(placement: PlacementProblem, assignment: IntArray) -> list[list[list[list[float]]]]:
    """[way][stage][replica][replica'] seconds from a cell of a stage to one of the next, or backwards before."""
    arrays, slots = placement.arrays, placement.arrays.cell_slots
    replicas, stages = slots.shape[:2]
    units = assignment[slots]
    result = []
    for step in (1, -1):
        ways = []
        for stage in range(stages):
            onward = (stage + step) % stages
            between = arrays.hop_s[units[:, None, stage], units[None, :, onward]]
            inside = slots[:, None, stage] == slots[None, :, onward]
            seconds = np.where(inside, arrays.local_hop_s, between).max(axis=2)
            ways.append(seconds.reshape(replicas, replicas).tolist())
        result.append(ways)
    return result


def _rings(
    placement: PlacementProblem, assignment: IntArray, alive: BoolArray, stride: int
) -> tuple[FloatArray, FloatArray]:
    """Exposed reduction and gather (P,) of rings through live cells; those of experts join every ``stride``-th."""
    arrays, stages = placement.arrays, alive.shape[1]
    exposed = []
    for crossing, local, hidden in (
        (arrays.reduce_s, arrays.reduce_local_s, arrays.reduce_hidden_s),
        (arrays.gather_s, arrays.gather_local_s, arrays.gather_hidden_s),
    ):
        total = np.empty(stages)
        for stage in range(stages):
            slots = list(dict.fromkeys(arrays.cell_slots[alive[:, stage], stage].ravel().tolist()))
            rings = [slots], [slots[first::stride] for first in range(stride)]
            slowest = [
                _slowest(crossing[arrays.ring_times[kind, stage]], assignment, rings[kind]) for kind in range(2)
            ]
            total[stage] = np.maximum(local[:, stage], slowest).sum()
        exposed.append(np.maximum(0.0, total - hidden))
    return exposed[0], exposed[1]


def _slowest(between_s: FloatArray, assignment: IntArray, rings: list[list[int]]) -> float:
    """The slowest hop (N, N) of rings through slots."""
    units = [assignment[ring] for ring in rings]
    return max(
        (float(between_s[a, b]) for ring in units for a, b in zip(ring, np.roll(ring, -1), strict=True) if a != b),
        default=0.0,
    )
