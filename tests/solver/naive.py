"""The step written down a second time, slowly and plainly: dictionaries of ranks and events, no arrays, no tricks.

Shared with the solver are only the cost of one message on one link (``Fabric``) and of one chunk (``StepCosts``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise, permutations, product

from cluster_models.model.architecture import Architecture
from cluster_models.training.interleaving import Interleaving
from cluster_models.training.plan import RankOrder
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import Sharding, TrainingWorkload
from solver.candidates import ORDER_CODES, SCHEDULE_CODES, SHARDING_CODES, FloatArray
from solver.costs.step_costs import CrossTraffic
from solver.degrees.stage_costs import kind_rows, objective_weight
from solver.problem import PlanningProblem
from solver.refine import Candidate, prepare
from tests.solver.cost_cases import candidates
from tests.solver.naive_mixes import every_mix, fitting_mixes
from tests.solver.naive_schedule import event_ends, legal_groups
from tests.solver.pipeline_orders import Clocks, stages_of
from tests.solver.problems import fabrics_of
from tests.solver.told_splits import is_told


def _hosts(ranks: Sequence[int], gpus: int) -> list[int]:
    return list(dict.fromkeys(rank // gpus for rank in ranks))


def _ring(slots: Sequence[int]) -> list[tuple[int, int]]:
    return [(a, b) for a, b in pairwise([*slots, slots[0]]) if a != b]


class NaiveStep:
    """Step seconds of one candidate on any hosts, from the ranks of its groups."""

    def __init__(self, candidate: Candidate) -> None:
        batch = candidate.batch
        self.costs, self.fabric = candidate.costs, candidate.fabric
        self.gpus = candidate.fabric.gpus_per_unit
        self.kinds = candidate.stage_kinds or (0,) * int(batch.pipeline[0])
        self.data, self.pipeline = int(batch.data[0]), int(batch.pipeline[0])
        self.virtual = int(batch.virtual_pipeline[0])
        self.strides = int(batch.tensor[0]), int(batch.expert[0] * batch.expert_tensor[0])
        self.micro_batches = candidate.placement.schedule.micro_batches
        self.blocking = candidate.placement.schedule.blocking
        self.group = candidate.placement.schedule.group
        self.order = candidate.placement.schedule.order
        on_last = candidate.placement.schedule.rank == self.pipeline - 1
        is_backward = candidate.placement.schedule.events.kind[on_last]
        self.all_forwards_first = not is_backward[: len(is_backward) // 2].any()
        self.tail_s = float(self.costs.tail_transfers[0]) * self.fabric.latency_s
        self.passes = float(self.costs.reduce_passes[0]), float(self.costs.gather_passes[0])
        self.cells = self._cells(int(batch.tensor[0] * batch.context[0]), ORDER_CODES[int(batch.rank_order[0])])
        self.stages = [[rank for d in range(self.data) for rank in self.cells[d, p]] for p in range(self.pipeline)]

    def _cells(self, cell: int, order: RankOrder) -> dict[tuple[int, int], list[int]]:
        """Global ranks of every cell (data rank, pipeline rank), tensor fastest, context next."""
        data_first = order is RankOrder.DATA_BEFORE_PIPELINE
        return {
            (d, p): [
                cell * (p * self.data + d if data_first else d * self.pipeline + p) + inside
                for inside in range(cell)
            ]
            for d, p in product(range(self.data), range(self.pipeline))
        }

    def __call__(self, assignment: Sequence[int]) -> float:
        """Seconds with host ``k`` on the fabric's node ``assignment[k]``."""
        c, ranks = self.costs, range(self.pipeline)
        reduced = [
            self._exposed(
                p, assignment, (c.reduce_bytes, c.expert_reduce_bytes), c.reduce_hidden_s, passes=self.passes[0]
            )
            for p in ranks
        ]
        gathered = [
            self._exposed(
                p, assignment, (c.gather_bytes, c.expert_gather_bytes), c.gather_hidden_s, passes=self.passes[1]
            )
            for p in ranks
        ]
        ends = [self._ends(d, assignment) for d in range(self.data)]
        finished = max(end + late for replica in ends for end, late in zip(replica, reduced, strict=True))
        return finished + self.tail_s + max(float(c.optimizer_s[0, p]) + gathered[p] for p in ranks)

    def keeps_kinds(self, assignment: Sequence[int]) -> bool:
        """Whether the node of every rank has the GPU kind of the rank's stage."""
        return all(
            self.fabric.kind[assignment[rank // self.gpus]] == kind
            for kind, stage in zip(self.kinds, self.stages, strict=True)
            for rank in stage
        )

    def _ends(self, d: int, assignment: Sequence[int]) -> list[float]:
        """End of the last work of every rank of one replica."""
        if self.order is not PipelineSchedule.ONE_F_ONE_B:
            return self._other_ends(d, assignment)
        delay = {(k, s): self._delay(d, k, s, assignment) for k in "FB" for s in range(self.pipeline)}
        chunks = range(self.pipeline * self.virtual)
        duration = {(k, c): self._duration(d, k, c, assignment) for k in "FB" for c in chunks}
        ends = event_ends(
            self.pipeline,
            self.virtual,
            self.micro_batches,
            lambda kind, chunk: duration[kind, chunk],
            lambda kind, rank: delay[kind, rank],
            group=self.group,
            blocking=self.blocking,
            all_forwards_first=self.all_forwards_first,
        )
        return [
            max(end for (_, chunk, _), end in ends.items() if chunk % self.pipeline == p)
            for p in range(self.pipeline)
        ]

    def _other_ends(self, d: int, assignment: Sequence[int]) -> list[float]:
        """The same under schedules other than 1F1B."""
        sizes = self.order, self.pipeline, self.virtual, self.micro_batches
        homes = {stage: p for p in range(self.pipeline) for stage in stages_of(sizes, p)}
        column = {stage: stage // self.pipeline * self.pipeline + p for stage, p in homes.items()}
        ends = Clocks(
            sizes,
            cache(lambda kind, stage: self._duration(d, kind, column[stage], assignment)),
            cache(lambda way, p: self._delay(d, "FB"[way], p, assignment)),
            group=self.group,
        ).run()
        return [max(end for (_, stage, _), end in ends.items() if homes[stage] == p) for p in range(self.pipeline)]

    def _delay(self, d: int, kind: str, p: int, assignment: Sequence[int]) -> float:
        """A transfer of every GPU of a cell to its peer in the next one; the slowest counts."""
        nbytes = float(self.costs.transfer_bytes[0])
        between, inside = self.fabric.hop_s(nbytes), self.fabric.local_hop_s(nbytes)
        other = (p + (1 if kind == "F" else -1)) % self.pipeline
        slots = {
            (a // self.gpus, b // self.gpus) for a, b in zip(self.cells[d, p], self.cells[d, other], strict=True)
        }
        return max(inside if a == b else float(between[assignment[a], assignment[b]]) for a, b in slots)

    def _duration(self, d: int, kind: str, chunk: int, assignment: Sequence[int]) -> float:
        """Work of one chunk on the slowest of the cell's nodes, and what its crossing collectives add."""
        p, way = chunk % self.pipeline, "FIW".index(kind.replace("B", "I"))
        c = self.costs
        apart = c.weight_s if self.order.splits_backward else 0.0 * c.backward_s
        slow = max(float(self.fabric.slowdown[assignment[k]]) for k in _hosts(self.cells[d, p], self.gpus))
        seconds = slow * float((c.forward_s, c.backward_s - apart, apart)[way][0, chunk])
        for traffic, pairs in self._crossing(d, p):
            if not pairs:
                continue
            times = self.fabric.hop_s(float(traffic.message_bytes[0]))
            worst = max(float(times[assignment[a], assignment[b]]) for a, b in pairs)
            hides = traffic.forward_hidden_s, traffic.backward_hidden_s, traffic.forward_hidden_s
            hidden = float(hides[way][0])
            count = float((traffic.forward_count, traffic.backward_count, traffic.weight_count)[way][0, chunk])
            seconds += count * max(0.0, worst - hidden)
        return seconds

    def _crossing(self, d: int, p: int) -> list[tuple[CrossTraffic, list[tuple[int, int]]]]:
        """Collectives of a cell that may leave its node, with the slots between which they send."""
        own, stage, block = set(self.cells[d, p]), self.stages[p], self.strides[1]
        groups = [stage[i : i + block] for i in range(0, len(stage), block)]
        meetings = [
            pair
            for group in groups
            if own & set(group) and block > self.gpus
            for pair in permutations(_hosts(group, self.gpus), 2)
        ]
        return [
            (self.costs.context_traffic, _ring(_hosts(self.cells[d, p], self.gpus))),
            (self.costs.expert_traffic, meetings),
            (self.costs.parameter_traffic, _ring(_hosts(stage, self.gpus))),
        ]

    def _exposed(
        self,
        p: int,
        assignment: Sequence[int],
        payloads: tuple[FloatArray, FloatArray],
        hidden_s: FloatArray,
        *,
        passes: float,
    ) -> float:
        """Both kinds of data parallel rings of a stage, one after the other, beyond what hides them."""
        seconds = 0.0
        for stride, payload in zip(self.strides, payloads, strict=True):
            groups = [self.stages[p][offset::stride] for offset in range(stride)]
            if len(groups[0]) > 1 and payload[0, p] > 0:
                seconds += passes * self._slowest_ring(groups, float(payload[0, p]), assignment, self.kinds[p])
        return max(0.0, seconds - float(hidden_s[0, p]))

    def _slowest_ring(self, groups: list[list[int]], payload: float, assignment: Sequence[int], kind: int) -> float:
        members = min(min(Counter(rank // self.gpus for rank in group).values()) for group in groups)
        spread = max(len(_hosts(group, self.gpus)) for group in groups)
        local = self.fabric.local_ring_s(payload, members, kind)
        if spread == 1:
            return local
        times = self.fabric.ring_s(payload, ranks=len(groups[0]), members=members, ring_nodes=spread, kind=kind)
        hops = [hop for group in groups for hop in _ring(_hosts(group, self.gpus))]
        return max(local, *(float(times[assignment[a], assignment[b]]) for a, b in hops))


def best_placement(candidate: Candidate) -> float:
    """The shortest step over all ordered choices of hosts, each rank on a GPU of its stage's kind."""
    step = NaiveStep(candidate)
    orders = permutations(range(candidate.fabric.nodes), candidate.placement.slots)
    return min(step(order) for order in orders if step.keeps_kinds(order))


def legal_degrees(
    model: Architecture,
    workload: TrainingWorkload,
    *,
    gpus_per_node: int,
    nodes: int,
    wider: Sequence[tuple[int, int]] = (),
    parts: bool = True,
    every_cut: bool = False,
) -> Iterator[dict[str, int]]:
    """Every legal combination by trying all of them; rank orders that only rename hosts count once.

    Whatever fills units of some ``wider`` size, GPUs and number, is left out, and without ``parts`` whatever needs
    less than a node.  Unless ``every_cut``, experts are cut no further than it takes to lie on as many ranks.
    """
    most = min(gpus_per_node * nodes, workload.max_gpus or gpus_per_node * nodes)
    sizes = range(1, most + 1)
    for t, c, p, d in product(sizes, repeat=4):
        world, cell = t * c * p * d, t * c
        if world > most or (world % gpus_per_node and (gpus_per_node % world or not parts)):
            continue
        node = min(world, gpus_per_node)
        if node % t or (node % cell and cell % node) or p > model.layers:
            continue
        if model.heads % t or (model.kv_heads % t and t % model.kv_heads) or model.hidden % t:
            continue
        if workload.sequence_length % cell or (c > 1 and workload.sequence_length % (2 * c)):
            continue
        for degrees in _inner_choices(model, workload, (t, c, p, d), node, every_cut=every_cut):
            sizes_of_groups = t, cell, degrees["expert"] * degrees["expert_tensor"], world
            if not any(_fill(sizes_of_groups, gpus, units) for gpus, units in wider):
                yield degrees


def _fill(sizes: tuple[int, int, int, int], gpus: int, units: int) -> bool:
    """Whether groups of tensor, cell, expert and all ranks lie evenly in units of ``gpus``."""
    tensor, cell, expert, world = sizes
    possible = {gpus * count for count in range(1, units + 1)}
    even = all(gpus / size % 1 == 0 or size / gpus % 1 == 0 for size in (cell, expert))
    return world in possible and gpus / tensor % 1 == 0 and even


def _inner_choices(
    model: Architecture,
    workload: TrainingWorkload,
    grid: tuple[int, int, int, int],
    node: int,
    *,
    every_cut: bool,
) -> Iterator[dict[str, int]]:
    t, c, p, d = grid
    stage = t * c * d
    experts = model.experts.count if model.experts else 1
    stages, sizes = range(1, model.layers + 1), range(1, workload.global_batch + 1)
    for e, x, v, b, order in product(range(1, experts + 1), range(1, node + 1), stages, sizes, (0, 1)):
        if experts % e or stage % (e * x) or (node % (e * x) and e * x % node):
            continue
        if x not in _cuts(model, node) or (not every_cut and _cut_less(model, workload, node, (e, x))):
            continue
        if workload.global_batch % (b * d) or (v > 1 and (p == 1 or p * v > model.layers)):
            continue
        rounds = workload.global_batch // (b * d)
        orders = [each for each in workload.schedule if _scheduled(model, workload, each, (p, v), rounds)]
        if not orders:
            continue
        if order == 1 and (p == 1 or d == 1 or t * c >= node or (e * x != t * c if model.experts else c > 1)):
            continue
        degrees = {"tensor": t, "context": c, "pipeline": p, "data": d, "expert": e, "expert_tensor": x}
        degrees |= {"virtual_pipeline": v, "micro_batch": b}
        if any(degrees.get(name, size) != size for name, size in workload.pinned.items()):
            continue
        if any(degrees.get(name) in sizes for name, sizes in workload.forbidden.items()):
            continue
        for sharding, schedule in product(_useful_sharding(workload, grid, experts, e * x), orders):
            codes = {"rank_order": order, "schedule": SCHEDULE_CODES.index(schedule)}
            yield {**degrees, **codes, "recompute": 0, "sharding": SHARDING_CODES.index(sharding)}


def _scheduled(
    model: Architecture,
    workload: TrainingWorkload,
    schedule: PipelineSchedule,
    stages: tuple[int, int],
    rounds: int,
) -> bool:
    """Whether the framework runs so many micro-batches over pipeline and virtual ``stages`` in this order."""
    framework, (pipeline, virtual) = workload.framework, stages
    torch = framework.interleaving is Interleaving.PYTORCH
    if pipeline == 1:
        return schedule == "1f1b" and virtual == 1
    grouped = virtual == 1 or bool(legal_groups(framework, pipeline, rounds))
    fits = {
        "1f1b": grouped and not (torch and rounds < pipeline),
        "gpipe": virtual == 1 or framework.interleaving is not Interleaving.NONE,
        "zero_bubble": grouped and not (torch and virtual == 1),
        "zb_v": virtual == 2,
        "dualpipe_v": virtual == 2 and rounds >= 2 * pipeline,
    }
    filled = not framework.fills_pipeline or rounds >= pipeline - 1
    told = is_told(framework, model.layers, pipeline, virtual)
    return schedule in framework.schedules and fits[schedule] and filled and told


def _cuts(model: Architecture, node: int) -> list[int]:
    """Expert tensor sizes that divide a node and the width of an expert."""
    if model.experts is None or model.mlp_bias:
        return [1]
    return [size for size in range(1, node + 1) if node % size == 0 and model.experts.hidden % size == 0]


def _cut_less(model: Architecture, workload: TrainingWorkload, node: int, sizes: tuple[int, int]) -> bool:
    """Whether the workload lets experts lie on as many ranks and be cut less.

    Wide experts that are cut in two and lie on all ranks count as a choice of their own.
    """
    if sizes == (1, 2) and model.experts and model.experts.hidden >= model.hidden:
        return False
    block, experts = sizes[0] * sizes[1], model.experts.count if model.experts else 1
    others = [x for x in _cuts(model, node) if x < sizes[1] and block % x == 0 and experts % (block // x) == 0]
    return any(
        all(
            workload.pinned.get(name, size) == size and size not in workload.forbidden.get(name, ())
            for name, size in (("expert", block // x), ("expert_tensor", x))
        )
        for x in others
    )


def _useful_sharding(
    workload: TrainingWorkload, grid: tuple[int, int, int, int], experts: int, block: int
) -> list[Sharding]:
    """Shardings that differ; where there is nothing to share out one of those allowed stands for all."""
    t, c, p, d = grid
    allowed = [s for s in workload.shardings if s is not Sharding.PARAMETERS or p == 1]
    shares = d * c > 1 or (experts > 1 and t * c * d > block)
    return allowed if shares else allowed[:1]


def fitting_candidates(asked: PlanningProblem, *, every_cut: bool = False) -> Iterator[tuple[Candidate, float]]:
    """Every legal candidate that fits into memory, and what a second of its step counts in the objective.

    Once without recomputation, or where that does not fit once with each that does.
    """
    mixes = every_mix(asked)
    for fabric in fabrics_of(asked):
        for degrees in legal_degrees(
            asked.architecture,
            asked.workload,
            gpus_per_node=fabric.gpus_per_unit,
            nodes=fabric.nodes,
            wider=fabric.wider,
            parts=fabric.nodes_per_unit == 1,
            every_cut=every_cut,
        ):
            for mix in fitting_mixes(asked, fabric, degrees, mixes):
                candidate = prepare(asked, fabric, candidates(degrees | mix))
                kinds = kind_rows(candidate.batch)
                weight = objective_weight(asked.workload.objective, fabric.kinds, candidate.batch, kinds)[0]
                yield candidate, float(weight)


def best_plan(asked: PlanningProblem, *, every_cut: bool = False) -> tuple[float, int]:
    """The least objective over all candidates that fit and all their placements, and how many candidates fit."""
    best, fitting = float("inf"), set()
    for candidate, weight in fitting_candidates(asked, every_cut=every_cut):
        best = min(best, best_placement(candidate) * weight)
        batch, free = candidate.batch, {"recompute", "modules", "recompute_layers"}
        sizes = (int(getattr(batch, name)[0]) for name in batch.__slots__ if name not in free)
        fitting.add((candidate.fabric.gpus_per_unit, candidate.fabric.kinds, *sizes))
    return best, len(fitting)
