"""Any one loss among five jobs on twelve nodes, decided as well as by trying everything.

The oracle shares the cost model with the search (``predict`` and ``migration``), and nothing else: it lists every
legal size, shape and choice of nodes of its own, weighs them by the formula of docs/replanning.md, and takes the
best choice of one option a job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, permutations, product

import pytest

from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import NodeState
from cluster_models.health.events import EntityKind, HealthEvent
from cluster_models.jobs.running import RecoveryPolicy, RunningJob
from cluster_models.model.flops import AttentionCount, model_flops_per_token
from cluster_models.training.plan import Configuration, Degrees, Plan, RankOrder
from cluster_models.training.workload import Choice
from solver.degrees.layout import balanced_layout
from solver.predict import predict
from solver.problem import PlanningProblem
from solver.replanning.check import check_decision
from solver.replanning.decide import decide
from solver.replanning.migration import migration
from solver.replanning.problem import ReplanOptions, ReplanProblem
from tests.solver.problems import SPARSE
from tests.solver.replanning.samples import cluster, job
from tests.solver.replanning.test_scenarios import problem, told

Gpu = tuple[str, int]
SPARES = ("n03", "n10")
PREDICTED: dict[tuple[str, str, str], Plan] = {}
"""By job, shape and what its nodes are like: links are known by class alone."""
MOST_ORDERED = 2
"""Hosts whose every order is tried; more stand in the order of their names."""
WARM = RecoveryPolicy(hands_over_state=True, steps_since_checkpoint=20)
COLD = RecoveryPolicy(steps_since_checkpoint=20)
EXACT = ReplanOptions(time_limit_s=120.0, gap=1e-4)
SAME = 1e-3
"""Share by which two values are as good: that of a host's place in the order, which is not tried for many hosts."""
FIXED = {"context": 1, "virtual_pipeline": 1, "expert_tensor": 1, "micro_batch": 1}
"""Pinned by the owners of all jobs, so that there are few shapes to try."""


@cache
def site() -> tuple[ClusterSnapshot, tuple[RunningJob, ...]]:
    """Three leaves of four nodes of two GPUs: dense and sparse jobs, two of which share their nodes."""
    whole = cluster(12)
    jobs = [
        job("data", whole, ["n00", "n01", "n02"], tensor=2, weight=2.0, recovery=WARM),
        job("sparse", whole, ["n04", "n05"], model=SPARSE, expert=2, recovery=WARM),
        job("pipes", whole, ["n06", "n07"], tensor=2, pipeline=2, weight=1.5, recovery=COLD),
        job("low", whole, ["n08", "n09"], gpus_per_node=1, recovery=WARM),
        _upper(job("high", whole, ["n08", "n09"], gpus_per_node=1, pipeline=2, weight=3.0, recovery=COLD)),
    ]
    return whole, tuple(_with_pins(each) for each in jobs)


def _with_pins(running: RunningJob) -> RunningJob:
    assert running.plan.workload is not None
    workload = replace(running.plan.workload, pinned=FIXED, choice=Choice.FASTEST)
    return replace(running, plan=replace(running.plan, workload=workload))


def _upper(running: RunningJob) -> RunningJob:
    """The job on the second GPU of its nodes."""
    placement = running.plan.placement
    ranks = tuple(replace(place, gpu=1) for place in placement.ranks)
    return replace(running, plan=replace(running.plan, placement=replace(placement, ranks=ranks)))


@dataclass(frozen=True)
class Oracle:
    """Everything that can be done after a loss."""

    asked: ReplanProblem

    def best(self) -> float:
        """The value of the best choice of one option for each job that is hit, no GPU twice."""
        hit = [each for each in self.asked.jobs if self.is_hit(each)]
        held = {gpu for each in self.asked.jobs if each not in hit for gpu in _gpus(each.plan)}
        places = {*self.asked.spares, *(node for each in hit for node in each.nodes)}
        free = {(name, gpu) for name in places for gpu in range(2) if self.lives((name, gpu))} - held
        most = 0.0
        for choice in product(*(self.options(each, free).items() for each in hit)):
            taken = [gpu for holds, _ in choice for gpu in holds]
            if len(taken) == len(set(taken)):
                most = max(most, sum(value for _, value in choice))
        return most

    def lives(self, gpu: Gpu) -> bool:
        """Whether a GPU works, on a node that does."""
        node = self.asked.nodes[gpu[0]]
        return node.state is not NodeState.FAILED and gpu[1] not in node.gpus_in_use

    def is_hit(self, running: RunningJob) -> bool:
        """Whether a job lost a GPU, or a card of one of its several nodes."""
        cards = {event.entity.node for event in self.asked.events if event.entity.kind is EntityKind.NIC}
        return bool(cards & set(running.nodes)) or not all(map(self.lives, _gpus(running.plan)))

    def options(self, running: RunningJob, free: set[Gpu]) -> dict[frozenset[Gpu], float]:
        """By GPUs held, the most that anything done with them is worth; none at all is a pause."""
        found: dict[frozenset[Gpu], float] = {frozenset(): 0.0}
        own = _gpus(running.plan)
        for node_gpus, configuration in _shapes(running):
            count = configuration.degrees.gpus // node_gpus
            nodes = [name for name in self.asked.nodes if sum((name, gpu) in free for gpu in range(2)) >= node_gpus]
            for hosts in permutations(nodes, count) if count <= MOST_ORDERED else combinations(nodes, count):
                gpus = {name: _on(name, node_gpus, own, free) for name in hosts}
                holds = frozenset((name, gpu) for name in hosts for gpu in gpus[name])
                plan = self.predicted(running, configuration, hosts, gpus)
                if plan is None or self.value(running, plan, holds, moves=False) <= found.get(holds, 0.0):
                    continue
                found[holds] = max(found.get(holds, 0.0), self.value(running, plan, holds))
        return found

    def predicted(
        self,
        running: RunningJob,
        configuration: Configuration,
        hosts: Sequence[str],
        gpus: Mapping[str, tuple[int, ...]],
    ) -> Plan | None:
        """The plan of a shape on ``gpus`` of ``hosts``, where it fits into memory; GPUs of others there send."""
        nodes = tuple(replace(self.asked.nodes[name], gpus_in_use=self.busy(name, gpus[name])) for name in hosts)
        alike = tuple(replace(node, name=str(index), nvlink_domain=str(index)) for index, node in enumerate(nodes))
        key = (running.id, str(configuration), repr(alike))
        if key not in PREDICTED:
            seen = {node.name: node for node in nodes}
            changed = tuple(seen.get(node.name, node) for node in self.asked.snapshot.cluster.nodes)
            snapshot = replace(self.asked.snapshot, cluster=replace(self.asked.snapshot.cluster, nodes=changed))
            old = running.plan
            assert old.architecture is not None
            assert old.workload is not None
            PREDICTED[key] = predict(
                PlanningProblem(snapshot, old.architecture, old.workload),
                configuration,
                hosts=hosts,
                gpus_per_node=len(gpus[hosts[0]]),
            )
        plan = PREDICTED[key]
        if any(memory.total_bytes > memory.limit_bytes for memory in plan.memory):
            return None
        node_gpus = plan.placement.gpus_per_node
        ranks = tuple(
            replace(place, node=(host := hosts[place.rank // node_gpus]), gpu=gpus[host][place.rank % node_gpus])
            for place in plan.placement.ranks
        )
        return replace(plan, placement=replace(plan.placement, hosts=tuple(hosts), ranks=ranks))

    def busy(self, name: str, gpus: Sequence[int]) -> tuple[int, ...]:
        """GPUs of a node that others hold, or that are lost."""
        others = {gpu for each in self.asked.jobs for gpu in _gpus(each.plan)}
        taken = (gpu for gpu in range(2) if gpu not in gpus)
        return tuple(gpu for gpu in taken if (name, gpu) in others or not self.lives((name, gpu)))

    def value(self, running: RunningJob, plan: Plan, holds: frozenset[Gpu], *, moves: bool = True) -> float:
        """Useful work over the horizon less bytes and spares (docs/replanning.md).

        Without ``moves`` a bound on it.
        """
        assert plan.architecture is not None
        assert plan.workload is not None
        horizon_s, policy = self.asked.horizon_s, running.recovery
        flops = model_flops_per_token(
            plan.architecture, plan.workload.sequence_length, attention=AttentionCount.CAUSAL
        )
        down_s, outside = (policy.restart_low_s + policy.restart_high_s) / 2, 0.0
        if moves:
            cards = any(event.entity.kind is EntityKind.NIC for event in self.asked.events)
            gone = frozenset(gpu for gpu in _gpus(running.plan) if cards or not self.lives(gpu))
            made = migration(running, plan, problem=self.asked, lost=gone)
            down_s, outside = made.downtime.middle_s, made.bytes.outside
        work = flops * plan.tokens_per_s * max(0.0, horizon_s - down_s)
        gpu_flops_per_s = running.plan.model_flops_per_s_per_gpu
        spares = len({gpu for gpu in holds if gpu[0] in self.asked.spares}) * self.asked.spare_worth_share
        price = gpu_flops_per_s * (policy.transfer_price_gpu_s_per_byte * outside + spares * horizon_s)
        return running.weight * (work - price)


def _gpus(plan: Plan) -> frozenset[Gpu]:
    return frozenset((place.node, place.gpu) for place in plan.placement.ranks)


def _on(name: str, count: int, own: frozenset[Gpu], free: set[Gpu]) -> tuple[int, ...]:
    """GPUs of a node for ``count`` ranks, those that the job has there first."""
    gpus = sorted((gpu for gpu in range(2) if (name, gpu) in free), key=lambda gpu: ((name, gpu) not in own, gpu))
    return tuple(sorted(gpus[:count]))


def _shapes(running: RunningJob) -> Iterator[tuple[int, Configuration]]:
    """Every legal configuration of at most as many GPUs as the job ran on, with the GPUs that it uses of a node."""
    plan = running.plan
    assert plan.architecture is not None
    assert plan.workload is not None
    experts = plan.architecture.experts
    for tensor, pipeline, expert in product((1, 2), (1, 2, 3, 4), (1, 2, 4) if experts else (1,)):
        for data in range(1, plan.configuration.degrees.gpus // (tensor * pipeline) + 1):
            degrees = Degrees(tensor=tensor, pipeline=pipeline, data=data, expert=expert)
            if plan.workload.global_batch % data or (tensor * data) % expert:
                continue
            layout = balanced_layout(plan.architecture, plan.workload.sequence_length, pipeline, 1)
            orders = [RankOrder.DATA_BEFORE_PIPELINE] if experts else list(RankOrder)
            for order in orders:
                shape = replace(plan.configuration, degrees=degrees, stage_layers=layout, rank_order=order)
                for node_gpus in (1, 2):
                    if degrees.gpus % node_gpus == 0 and node_gpus % tensor == 0:
                        yield node_gpus, shape


LOSSES = {
    **{f"GPU of {node}": [told("0", kind=EntityKind.GPU, of=node)] for node in ("n00", "n04", "n06", "n08")},
    **{f"card of {node}": [told("mlx5_0", kind=EntityKind.NIC, of=node)] for node in ("n00", "n04", "n06", "n09")},
    **{node: [told(node)] for node in ("n00", "n04", "n06", "n08")},
    **{f"leaf {leaf}": [told(f"n{4 * leaf + index:02d}") for index in range(4)] for leaf in range(3)},
}
"""One of each that the jobs tell apart."""


@pytest.fixture
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions without the bound of a certificate: the oracle asks for thousands, and for no certificate."""
    monkeypatch.setattr("solver.predict.placement_bound_s", lambda _: 0.0)


@pytest.mark.parametrize("losses", LOSSES.values(), ids=LOSSES)
@pytest.mark.usefixtures("no_certificates")
def test_nothing_is_better_than_the_decision(losses: list[HealthEvent]) -> None:
    """No choice of spares, sizes and shapes is worth more, and none is above the bound."""
    whole, jobs = site()
    asked = problem(whole, jobs, losses, spares=SPARES)
    decision = decide(asked, EXACT)
    assert check_decision(asked, decision) == ()
    best = Oracle(asked).best()
    assert decision.bound >= best * (1 - 1e-9)
    assert decision.objective >= best * (1 - SAME)
