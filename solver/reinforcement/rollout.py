"""Rollouts: a batch of prompts on equal replicas until the last response ends.

Prompts are dealt to replicas in turn, with all their samples.  A replica works as in ``solver.serving.simulation``,
with all of its requests there from the start.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np

from cluster_models.errors import SolverFailed
from cluster_models.reinforcement.plan import Rollout
from cluster_models.reinforcement.workload import ReinforcementWorkload
from cluster_models.serving.goal import ServedModel
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.replicas import Replica
from cluster_models.serving.traces import Trace
from cluster_models.serving.workload import Pool, ServingConfiguration, Worker
from solver.candidates import IntArray
from solver.problem import IsCancelled, SearchOptions
from solver.reinforcement.parts import serving_problem
from solver.reinforcement.problem import ReinforcementProblem
from solver.serving.cases import Arrays, ServingCase, arrays_of
from solver.serving.cluster_links import worker_links
from solver.serving.drawing import drawn_lengths
from solver.serving.loads import FloatArray
from solver.serving.plan import plan_serving
from solver.serving.planning.groups import single_groups
from solver.serving.planning.islands import site_of
from solver.serving.planning.pricing import take_cases, worker_table
from solver.serving.planning.zones import slowed, zones_of
from solver.serving.rates import Rates, rates_of
from solver.serving.simulation import simulate_trace
from solver.serving.step_tables import step_tables

SEED: Final = 0
MOST_TRIED: Final = 4
"""Shapes of workers of which a plan is made for one set of nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Requests (R,) of a step, the ``samples`` of a prompt next to each other."""

    prompts: FloatArray
    responses: FloatArray
    samples: int

    def dealt(self, replicas: int) -> IntArray:
        """The replica (R,) of each: prompts in turn, or single samples where there are fewer prompts."""
        together = self.samples if len(self.prompts) >= replicas * self.samples else 1
        return (np.arange(len(self.prompts)) // together) % replicas

    def trace(self, rows: IntArray) -> Trace:
        """The requests at ``rows``, all there at once; a prompt that comes again is cached but for one token."""
        _, first = np.unique(rows // self.samples, return_index=True)
        prompts = self.prompts[rows]
        cached = prompts - 1.0
        cached[first] = 0.0
        columns = (each.astype(int).tolist() for each in (prompts, self.responses[rows], cached))
        return Trace((0.0,) * len(rows), *map(tuple, columns))


def drawn_batch(workload: ReinforcementWorkload) -> Batch:
    """Prompts and responses of a step, each length as often as its share says."""
    random = np.random.default_rng(SEED)
    prompts = drawn_lengths(workload.prompt_tokens, workload.prompts, random)
    responses = drawn_lengths(workload.response_tokens, workload.responses, random)
    return Batch(np.repeat(prompts, workload.samples), responses, workload.samples)


@dataclass(frozen=True, slots=True, eq=False)
class _Fast:
    """A worker on the best links of its kind of GPU, as arrays of one case."""

    worker: Worker
    arrays: Arrays
    rates: Rates


@dataclass(slots=True, eq=False)
class RolloutFloors:
    """The least that each shape of worker needs for a batch, by GPUs in all; nothing where none holds a request.

    No replicas of that shape on so many GPUs end sooner, whatever their links: the replicas with the longest
    response and with the most tokens are simulated, on the best links and among as many as fit, which take no
    longer than fewer.
    """

    batch: Batch
    fast: tuple[_Fast, ...]
    known: dict[tuple[int, int], float] = field(default_factory=dict)

    def least_s(self, gpus: int) -> float:
        """Seconds that no shape beats, infinite where none fits."""
        return next(self.in_order(gpus), (math.inf, Worker()))[0]

    def quick_s(self, gpus: int) -> float:
        """Seconds below ``least_s``, without a simulation."""
        sized = ((each, gpus // each.worker.gpus) for each in self.fast)
        return min((self._quick_s(each, replicas) for each, replicas in sized if replicas), default=math.inf)

    def in_order(self, gpus: int) -> Iterator[tuple[float, Worker]]:
        """Shapes by their floors, the lowest first; each is simulated when its turn comes."""
        heap = []
        for index, each in enumerate(self.fast):
            if (replicas := gpus // each.worker.gpus) > 0:
                seconds = self.known.get((index, replicas))
                heap.append((self._quick_s(each, replicas) if seconds is None else seconds, seconds is None, index))
        heapq.heapify(heap)
        seen: set[Worker] = set()
        while heap:
            seconds, is_quick, index = heapq.heappop(heap)
            own = self.fast[index]
            if own.worker in seen:
                continue
            if not is_quick:
                seen.add(own.worker)
                yield seconds, own.worker
                continue
            replicas = gpus // own.worker.gpus
            traces = map(self.batch.trace, self._busiest(replicas))
            found = max(float(simulate_trace(own.arrays, own.rates, trace).end_s.max()) for trace in traces)
            self.known[index, replicas] = found
            heapq.heappush(heap, (found, False, index))

    def _busiest(self, replicas: int) -> list[IntArray]:
        """Requests of the replica that has the longest response, and of that with the most tokens."""
        dealt = self.batch.dealt(replicas)
        most = np.bincount(dealt, weights=self.batch.responses).argmax()
        both = dict.fromkeys((int(dealt[self.batch.responses.argmax()]), int(most)))
        return [np.flatnonzero(dealt == each) for each in both]

    def _quick_s(self, fast: _Fast, replicas: int) -> float:
        """Seconds below the simulation's: the longest response alone, all tokens of its replica at full batches."""
        rows = self._busiest(replicas)[0]
        outputs, inputs = self.batch.responses[rows], self.batch.prompts[rows]
        held = float((outputs * (inputs + outputs / 2.0)).sum() / outputs.sum())
        tables = step_tables(fast.arrays, fast.rates, context=held, longest=float(inputs.max()))
        steps = (outputs - 1.0) / float(fast.arrays.traffic.yields[0])
        return max(
            float(steps.max() * tables.decode_s[0]), float(steps.sum() * (tables.decode_s / tables.batches).min())
        )


def rollout_floors(problem: ReinforcementProblem, served: ServedModel, batch: Batch) -> RolloutFloors:
    """The floors of all shapes that the engine has on the problem's nodes."""
    goal = serving_problem(problem, served, [node.name for node in problem.nodes]).goal
    site = site_of(problem.snapshot, goal)
    zones = zones_of(site, optimistic=True)
    groups = list(single_groups(0, served, site, zones, goal))
    if not groups:
        return RolloutFloors(batch, ())
    keys = list(dict.fromkeys((group.zone, group.decode) for group in groups))
    table = worker_table(served, zones, keys)
    found = []
    for row in np.flatnonzero(table.fits).tolist():
        arrays, rates = take_cases((table.arrays, table.rates), np.array([row]))
        found.append(_Fast(keys[row][1].worker, arrays, rates))
    return RolloutFloors(batch, tuple(found))


def replica_case(problem: ReinforcementProblem, served: ServedModel, replica: Replica) -> ServingCase:
    """A replica as the engine's steps are priced, on the links of its own nodes."""
    names = [place.node for place in replica.places]
    nodes = tuple(node for node in problem.snapshot.cluster.nodes if node.name in names)
    configuration = ServingConfiguration(Pool(replica.worker))
    links, transfer = worker_links(problem.snapshot, nodes, configuration)
    gpu = slowed(problem.snapshot.cluster.gpu_kinds[replica.gpu_kind], max(node.compute_slowdown for node in nodes))
    return ServingCase(
        architecture=served.architecture,
        gpu=gpu,
        links=links,
        workload=served.workload,
        configuration=configuration,
        transfer_bytes_per_s=transfer,
        own=served.own,
    )


def simulated(problem: ReinforcementProblem, plan: ServingPlan, batch: Batch) -> Rollout:
    """The batch on the replicas of a plan."""
    served, replicas = plan.models[0], plan.replicas
    dealt = batch.dealt(len(replicas))
    ends: list[FloatArray] = []
    for number, replica in enumerate(replicas):
        rows = np.flatnonzero(dealt == number)
        if len(rows):
            case = replica_case(problem, served, replica)
            arrays, rates = arrays_of([case]), rates_of([case.properties], shifts=[case.shifts])
            ends.append(simulate_trace(arrays, rates, batch.trace(rows)).end_s)
    last = np.array([each.max() for each in ends])
    return Rollout(float(last.max()), float(last.mean()), float(np.median(np.concatenate(ends))))


def plan_rollout(
    problem: ReinforcementProblem,
    served: ServedModel,
    nodes: Sequence[str],
    floors: RolloutFloors,
    options_now: Callable[[], SearchOptions],
    is_cancelled: IsCancelled,
) -> tuple[ServingPlan, Rollout] | None:
    """The replicas on nodes whose last response ends first, of the shapes tried; ``None`` where none fit.

    ``options_now`` are those of the next plan.  Raises ``SolverFailed`` where every search ended before it had one.
    """
    best: tuple[ServingPlan, Rollout] | None = None
    failed: SolverFailed | None = None
    for floor_s, worker in islice(floors.in_order(len(nodes) * problem.gpus_per_node), MOST_TRIED):
        options = options_now()
        if best is not None and (floor_s >= best[1].finish_s * (1.0 - options.gap) or is_cancelled()):
            break
        try:
            asked = serving_problem(problem, served, nodes, worker)
            found = plan_serving(asked, options, is_cancelled=is_cancelled)
        except SolverFailed as error:
            failed = error
            continue
        if isinstance(found, ServingPlan):
            rollout = simulated(problem, found, floors.batch)
            if best is None or rollout.finish_s < best[1].finish_s:
                best = found, rollout
    if best is None and failed is not None:
        raise failed
    return best
