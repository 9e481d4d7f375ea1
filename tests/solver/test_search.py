"""The joint search: exactly brute force over all degrees and hosts, within every limit, for every ending."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.gpus import Precision
from cluster_models.cluster.measurements import Sample
from cluster_models.cluster.topology import NodeState
from cluster_models.errors import InvalidInput
from cluster_models.training.frameworks import framework
from cluster_models.training.plan import Plan, RankOrder, StopReason
from cluster_models.training.workload import Objective, Recompute, Sharding
from solver import search
from solver.check import check_plan
from solver.degrees.priced import price_candidates
from solver.problem import Backend, PlanningProblem, Progress, SearchOptions
from solver.refine import refine
from solver.search import plan
from tests.cluster_models.clusters import host, sample
from tests.remarks import codes
from tests.solver.naive import best_plan
from tests.solver.naive_mixed import best_mix
from tests.solver.problems import (
    DENSE,
    EXACT,
    SPARSE,
    fabrics_of,
    nodes,
    pair_samples,
    planned,
    problem,
    rates_of,
)

ONE_EACH = {"micro_batch": tuple(range(2, 17))}
"""Micro-batches of one sequence only: keeps brute force small."""
LOOSE = SearchOptions(gap=0.2)
DEEP = replace(DENSE, name="deep", layers=40)
TINY = replace(DENSE, name="tiny", layers=2, hidden=256, heads=4, kv_heads=4, head_size=64, mlp_hidden=704)
"""So small that kernels take no longer for many sequences than for few."""
PINS = st.one_of(
    st.tuples(st.just("virtual_pipeline"), st.integers(1, 20)),
    st.tuples(st.just("micro_batch"), st.sampled_from([1, 2, 3, 4, 6, 8, 16, 32, 64])),
    st.tuples(st.sampled_from(["tensor", "context", "pipeline", "data", "expert"]), st.integers(1, 6)),
)


def measured(count: int, values: str, flows: int) -> tuple[Sample, ...]:
    """Samples of all pairs; a dash is a pair that was never measured."""
    given_rates = rates_of(count, [0.0 if value == "-" else float(value) for value in values.split()])
    return pair_samples({pair: rate for pair, rate in given_rates.items() if rate}, flows=flows)


CASES: Mapping[str, PlanningProblem] = {
    "one GPU": problem(nodes(1, gpus=1)),
    "one node of three": problem(nodes(1, gpus=3), global_batch=6),
    "nothing measured": problem(nodes(3, gpus=2), global_batch=4),
    "a slow node": problem(nodes(3, gpus=2, slowdown={"n1": 1.3}), measured(3, "5 40 20", 2)),
    "unequal links, one pair estimated": problem(
        nodes(5, gpus=1), measured(5, "5 40 20 10 - 20 5 40 10 5", 1), global_batch=4, forbidden=ONE_EACH
    ),
    "three GPUs a node": problem(nodes(3, gpus=3), measured(3, "3 20 40", 3), global_batch=6, forbidden=ONE_EACH),
    "four GPUs a node": problem(
        nodes(3, gpus=4), measured(3, "3 20 40", 4), global_batch=12, forbidden=ONE_EACH, pinned={"tensor": 1}
    ),
    "experts over nodes": problem(
        nodes(4, gpus=1), measured(4, "5 40 20 10 - 20", 1), model=SPARSE, global_batch=4, forbidden=ONE_EACH
    ),
    "experts inside and over nodes": problem(
        nodes(3, gpus=2, slowdown={"n0": 1.2}),
        measured(3, "4 20 40", 2),
        model=SPARSE,
        global_batch=6,
        forbidden=ONE_EACH,
        sharding=(Sharding.NONE, Sharding.OPTIMIZER),
    ),
    "context over nodes": problem(
        nodes(4, gpus=1), measured(4, "5 40 20 10 8 20", 1), pinned={"context": 2}, global_batch=4
    ),
    "interleaved": problem(
        nodes(4, gpus=1), measured(4, "5 40 20 10 8 20", 1), pinned={"virtual_pipeline": 2}, global_batch=8
    ),
    "schedules of PyTorch": problem(
        nodes(3, gpus=1),
        measured(3, "5 40 20", 1),
        framework=framework("torchtitan-2025"),
        pinned={"tensor": 1, "context": 1},
        forbidden=ONE_EACH,
        global_batch=6,
    ),
    "more than eight virtual stages": problem(
        nodes(1, gpus=2),
        model=DEEP,
        global_batch=2,
        sequence_length=16384,
        pinned={"pipeline": 2},
        framework=framework("megatron-core-0.15"),  # the default generation's launcher knows few splits
    ),
    "more than sixteen sequences": problem(nodes(1, gpus=2), model=TINY, global_batch=64, sequence_length=64),
    "parameters sharded": problem(
        nodes(3, gpus=2), measured(3, "4 20 40", 2), sharding=(Sharding.PARAMETERS,), global_batch=6
    ),
    "two kinds of GPU": problem(
        (
            *nodes(2, gpus=2),
            host("a0", gpu="A100-SXM4-80GB", gpus=2, cards=2),
            host("a1", gpu="A100-SXM4-80GB", gpus=4, cards=4),
        ),
        global_batch=4,
        forbidden=ONE_EACH,
    ),
    "least GPU time": problem(
        nodes(3, gpus=2), measured(3, "4 20 40", 2), objective=Objective.GPU_TIME, global_batch=6
    ),
    "least cost": problem(
        (*nodes(2, gpus=2), host("a0", gpu="A100-SXM4-80GB", gpus=2, cards=2)),
        objective=Objective.COST,
        global_batch=4,
    ),
    "recomputation free": problem(
        nodes(2, gpus=2), recompute=tuple(Recompute), sharding=tuple(Sharding), global_batch=4
    ),
}


@functools.cache
def best_of_all(case: str) -> tuple[float, int]:
    """The least objective over everything that can be tried, and how many candidates fit; no backend matters."""
    (alike, fitting), (mixed, fitting_mixes) = best_plan(CASES[case]), best_mix(CASES[case])
    return min(alike, mixed), fitting + fitting_mixes


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("case", CASES)
def test_the_plan_is_the_best_of_all_degrees_and_hosts(case: str, backend: Backend) -> None:
    """Equal to trying everything, proved, sound by the checker, and every candidate is accounted for."""
    asked = CASES[case]
    best, fitting = best_of_all(case)
    found = planned(asked, replace(EXACT, backend=backend))
    proof = found.certificate
    assert proof.objective == pytest.approx(best, rel=1e-9)
    assert proof.stopped_by is StopReason.PROVEN
    assert proof.bound == pytest.approx(best, rel=1e-6)
    assert proof.candidates_total - proof.candidates_infeasible == fitting
    assert check_plan(found, asked) == ()


@pytest.mark.parametrize(
    ("case", "degree", "above"),
    [("more than eight virtual stages", "virtual_pipeline", 8), ("more than sixteen sequences", "micro_batch", 16)],
)
def test_no_size_is_left_out_because_it_is_large(case: str, degree: str, above: int) -> None:
    """Deep models want many virtual stages on a short batch, tiny ones large micro-batches."""
    configuration = planned(CASES[case]).configuration
    sizes = {"micro_batch": configuration.micro_batch, "virtual_pipeline": configuration.degrees.virtual_pipeline}
    assert sizes[degree] > above


@functools.cache
def bound_of(case: str) -> float:
    """The step that no plan can beat by the certificate."""
    return planned(CASES[case]).certificate.bound


@settings(max_examples=15)
@given(st.sampled_from(["more than eight virtual stages", "more than sixteen sequences", "a slow node"]), PINS)
def test_no_pinned_plan_beats_the_bound(case: str, pin: tuple[str, int]) -> None:
    """Whatever size is pinned, in the space that the certificate speaks of, the bound holds."""
    workload = CASES[case].workload
    try:
        asked = replace(CASES[case], workload=replace(workload, pinned=dict([pin]) | workload.pinned))
        found = plan(asked, EXACT)
    except InvalidInput:
        return
    if isinstance(found, Plan):
        assert found.certificate.objective >= bound_of(case) * (1 - 1e-9)


@settings(max_examples=5)
@given(st.lists(st.sampled_from(["2", "5", "10", "20", "40", "-"]), min_size=6, max_size=6), st.booleans())
def test_a_loose_gap_is_honest(values: list[str], experts: bool) -> None:
    """Stopped within 20 %, the bound still lies below the optimum and no alternative beats the plan."""
    asked = problem(
        nodes(4, gpus=1, slowdown={"n2": 1.2}),
        measured(4, " ".join(values), 1),
        model=SPARSE if experts else DENSE,
        global_batch=4,
        forbidden=ONE_EACH,
    )
    found, best = planned(asked, LOOSE), planned(asked)
    assert found.certificate.bound <= best.certificate.objective * (1 + 1e-9)
    assert found.certificate.objective <= best.certificate.objective / (1 - LOOSE.gap)
    assert found.certificate.gap <= LOOSE.gap + 1e-9
    assert check_plan(found, asked) == ()


def test_any_plan_will_do() -> None:
    """With a gap of the whole objective the first placement is the answer, and its bound still holds."""
    asked = CASES["a slow node"]
    found, best = planned(asked, SearchOptions(gap=1.0, alternatives=0)), planned(asked)
    assert found.certificate.stopped_by is StopReason.PROVEN
    assert found.certificate.candidates_placed == 1
    assert found.certificate.bound <= best.certificate.objective * (1 + 1e-9)
    assert check_plan(found, asked) == ()


@pytest.mark.parametrize("case", ["a slow node", "experts over nodes", "two kinds of GPU"])
def test_the_same_question_has_the_same_answer(case: str) -> None:
    """Twice the same plan, to the last bit."""
    assert planned(CASES[case]) == planned(CASES[case])


def test_names_of_nodes_change_nothing() -> None:
    """Other names, the same step and the same hosts under their new names."""
    asked = CASES["a slow node"]
    new = {"n0": "zebra", "n1": "alpha", "n2": "mid"}
    cluster = asked.snapshot.cluster
    renamed = replace(
        asked.snapshot,
        cluster=replace(
            cluster,
            nodes=tuple(replace(n, name=new[n.name], nvlink_domain=new[n.name]) for n in cluster.nodes),
        ),
        samples=tuple(
            replace(s, source=new[s.source], destination=new[s.destination]) for s in asked.snapshot.samples
        ),
    )
    first, second = planned(asked), planned(replace(asked, snapshot=renamed))
    assert second.time == first.time
    assert second.placement.hosts == tuple(new[name] for name in first.placement.hosts)


def test_a_slow_node_is_left_out_where_that_wins_and_used_where_it_helps() -> None:
    """Ten times slower it only holds the others up; two per cent slower it still is a node more."""

    def with_slowdown(slowdown: float) -> Plan:
        return planned(problem(nodes(3, gpus=2, slowdown={"n1": slowdown}), global_batch=12))

    bad, good = with_slowdown(10.0), with_slowdown(1.02)
    assert "n1" not in bad.placement.hosts
    assert bad.unused_nodes == ("n1",)
    assert set(good.placement.hosts) == {"n0", "n1", "n2"}


def test_a_node_behind_slow_links_is_left_out() -> None:
    """Two nodes with a good link beat four GPUs more behind a bad one."""
    asked = problem(nodes(3, gpus=2), measured(3, "0.05 40 0.05", 2), global_batch=12)
    assert set(planned(asked).placement.hosts) <= {"n0", "n2"}


def test_limits_of_the_workload_are_kept() -> None:
    """Nodes to avoid, GPUs at most, pinned and forbidden degrees, and nodes that are not ready."""
    hosts = (*nodes(4, gpus=2)[:3], replace(nodes(4, gpus=2)[3], state=NodeState.FAILED))
    found = planned(
        problem(hosts, avoid_nodes=("n0",), max_gpus=4, pinned={"pipeline": 2}, forbidden={"tensor": (2,)})
    )
    assert set(found.placement.hosts) <= {"n1", "n2"}
    assert found.configuration.degrees.gpus <= 4
    assert found.configuration.degrees.pipeline == 2
    assert found.configuration.degrees.tensor != 2
    assert "n0" not in found.unused_nodes


def test_a_precision_is_planned_on_the_kinds_that_know_it() -> None:
    """FP8 on a cluster of H100 and A100 uses the H100."""
    mixed = (host("h0", gpus=2, cards=2), host("a0", gpu="A100-SXM4-80GB", gpus=4, cards=4))
    found = planned(problem(mixed, precision=Precision.FP8))
    assert found.placement.hosts == ("h0",)
    assert found.unused_nodes == ("a0",)


def test_no_time_still_gives_a_plan_with_an_honest_gap() -> None:
    """With a limit of 0 s the first placement comes back, and a gap that holds."""
    asked = CASES["four GPUs a node"]
    found = planned(asked, replace(EXACT, time_limit_s=0.0))
    assert found.certificate.stopped_by is StopReason.TIME_LIMIT
    assert found.certificate.bound <= planned(asked).certificate.objective * (1 + 1e-9)
    assert check_plan(found, asked) == ()


def test_a_cancelled_search_returns_what_it_has() -> None:
    """Cancelled at once, it says so, and its plan is sound."""
    asked = CASES["four GPUs a node"]
    found = plan(asked, EXACT, is_cancelled=lambda: True)
    assert isinstance(found, Plan)
    assert found.certificate.stopped_by is StopReason.CANCELLED
    assert check_plan(found, asked) == ()


def test_a_cancelled_search_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alternatives are not given the time left to the search, only that of the last look."""
    asked = CASES["four GPUs a node"]
    found = plan(asked, EXACT, is_cancelled=lambda: True)
    assert isinstance(found, Plan)
    assert found.alternatives
    monkeypatch.setattr("solver.search.FINISH_S", 0.0)
    hurried = plan(asked, EXACT, is_cancelled=lambda: True)
    assert isinstance(hurried, Plan)
    assert hurried.alternatives == ()


def test_progress_only_improves() -> None:
    """The best step falls, the bound rises, and the last line is the certificate's."""
    seen: list[Progress] = []
    found = plan(CASES["a slow node"], EXACT, on_progress=seen.append)
    assert isinstance(found, Plan)
    steps = [line.incumbent_s for line in seen if line.incumbent_s is not None]
    bounds = [line.bound_s for line in seen if line.bound_s is not None]
    assert steps == sorted(steps, reverse=True)
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in pairwise(bounds))
    assert steps[-1] >= found.time.step_s


def test_objectives_trade_speed_for_gpus() -> None:
    """Least GPU time uses fewer GPU seconds than least step time, which has the shorter step."""
    asked = CASES["least GPU time"]
    thrifty = planned(asked)
    fast = planned(replace(asked, workload=replace(asked.workload, objective=Objective.STEP_TIME)))
    assert fast.time.step_s <= thrifty.time.step_s
    assert thrifty.certificate.objective == pytest.approx(thrifty.time.step_s * thrifty.configuration.degrees.gpus)
    assert thrifty.certificate.objective <= fast.time.step_s * fast.configuration.degrees.gpus


@pytest.mark.parametrize("headroom", [0.0, 0.5, 0.8, 0.9])
def test_more_memory_never_hurts(headroom: float) -> None:
    """A tighter limit gives no faster plan."""
    asked = problem(nodes(2, gpus=2), recompute=tuple(Recompute), global_batch=4, memory_headroom=headroom)
    tight = plan(asked, EXACT)
    free = planned(replace(asked, workload=replace(asked.workload, memory_headroom=0.0)))
    assert not isinstance(tight, Plan) or free.time.step_s <= tight.time.step_s * (1 + 1e-12)


def test_both_rank_orders_can_win() -> None:
    """Small replicas inside nodes win where links are slow, wide stages where stages exchange much."""
    slow = problem(nodes(2, gpus=4), measured(2, "0.3", 4), pinned={"pipeline": 2, "data": 4}, global_batch=32)
    found = planned(slow)
    assert found.configuration.rank_order in set(RankOrder)
    best, _ = best_plan(slow)
    assert found.time.step_s == pytest.approx(best, rel=1e-9)


def test_estimated_links_are_named() -> None:
    """A plan over a pair that was never measured says so, where others were."""
    samples = (sample("n0", "n1", 40.0),)
    partly = planned(problem(nodes(3, gpus=1), samples, pinned={"pipeline": 3}))
    known = planned(problem(nodes(2, gpus=1), samples, pinned={"pipeline": 2}))
    assert "estimated_links" in codes(partly.warnings)
    assert "estimated_links" not in codes(known.warnings)


def test_a_refinement_that_proves_less_leaves_the_bound_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is never below the least of the prices, though refinements prove nothing."""
    asked = CASES["a slow node"]
    monkeypatch.setattr(search, "refine", lambda *args, **options: replace(refine(*args, **options), bound_s=0.0))
    priced = price_candidates(asked, fabrics_of(asked))
    assert planned(asked).certificate.bound >= priced.bound_s.min() * (1 - 1e-9) > 0
