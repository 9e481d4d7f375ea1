"""Fleet plans are as good as trying every way to share the nodes out, and keep what they promise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from app.serialization import make_snapshot
from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.cluster.topology import Cluster, NicGroup, Node
from cluster_models.errors import InvalidInput
from cluster_models.fleet.jobs import FleetJob, FleetObjective, FleetProblem, Pool
from cluster_models.fleet.plan import FleetPlan, NoFleetPlan, NoFleetReason
from cluster_models.model.architecture import Architecture
from cluster_models.training.framework_choices import Optimizer
from cluster_models.training.frameworks import framework
from cluster_models.training.methods import TrainingMethod
from cluster_models.training.plan import NoPlan, StopReason
from cluster_models.training.workload import TrainingWorkload
from solver import search
from solver.check.fleet import check_fleet
from solver.fleet.options import Option, flops_per_step, options_of, problem_on
from solver.fleet.plan import plan_fleet
from solver.fleet.program import choose
from solver.problem import Backend, SearchOptions

OPTIONS = SearchOptions(time_limit_s=60.0)
TINY = Architecture("tiny", 4, 1024, 16, 4, 64, 2816, 32000, gated_mlp=True, tied_embeddings=False)
WIDE = replace(TINY, name="wide", hidden=2048, heads=32, mlp_hidden=5632)


def _pool(nodes: int, *, name: str = "own", kind: str = "H100-SXM5-80GB", price: float = 0.0) -> Pool:
    """Equal nodes of two GPUs that nobody measured."""
    names = tuple(f"{name}-{number}" for number in range(nodes))
    nics = NicGroup(2, 50e9, "infiniband")
    listed = tuple(Node(each, kind, 2, each, nics) for each in names)
    cluster = Cluster(name, listed, {kind: gpu_kinds()[kind]})
    return Pool(name, make_snapshot(cluster, ()), names, 2, kind, price, is_rented=price > 0)


def _job(name: str, architecture: Architecture = TINY, batch: int = 32, **limits: float | bool | None) -> FleetJob:
    return FleetJob(name, architecture, TrainingWorkload(sequence_length=2048, global_batch=batch), **limits)  # type: ignore[arg-type]  # what tests give fits


def _step_s(job: FleetJob, pool: Pool, nodes: int) -> float:
    """The step of the best plan of a job that is alone on so many nodes."""
    found = search.plan(problem_on(job, pool, nodes=nodes), replace(OPTIONS, alternatives=0))
    return math.inf if isinstance(found, NoPlan) else found.time.step_s


def test_no_way_to_share_the_nodes_out_does_more_work() -> None:
    """Three jobs on three equal nodes against every way to give these out, each planned for itself."""
    pool = _pool(3)
    jobs = (_job("a", batch=8, weight=2.0), _job("b", WIDE, batch=8), _job("c", batch=4, weight=1.5))
    found = plan_fleet(FleetProblem((pool,), jobs), OPTIONS)
    assert isinstance(found, FleetPlan)
    assert check_fleet(found, FleetProblem((pool,), jobs)) == ()
    steps = {(job.name, nodes): _step_s(job, pool, nodes) for job in jobs for nodes in range(1, 4)}
    best = max(
        sum(job.weight * flops_per_step(job) / steps[job.name, n] for job, n in zip(jobs, counts, strict=True) if n)
        for counts in itertools.product(range(4), repeat=3)
        if sum(counts) <= 3
    )
    assert found.value == pytest.approx(best, rel=1e-6)
    assert found.bound >= found.value
    assert found.gap <= 0.02
    assert found.stopped_by is StopReason.PROVEN


def test_bounds_of_options_are_below_every_plan_and_fall_with_nodes() -> None:
    """The curve that a choice starts from promises no less than the planner keeps."""
    pool, job = _pool(4), _job("a", WIDE)
    options = options_of(job, pool)
    assert [option.nodes for option in options] == [1, 2, 3, 4]
    bounds = [option.bound_step_s for option in options]
    late = options_of(job, pool, is_time_up=lambda: True)
    assert [option.nodes for option in late] == [1, 2, 3, 4]
    assert all(one.bound_step_s <= bound for one, bound in zip(late, bounds, strict=True))
    assert bounds == sorted(bounds, reverse=True)
    for option in options:
        assert option.bound_step_s <= _step_s(job, pool, option.nodes) * (1 + 1e-9)


def _brute_force(problem: FleetProblem, options: Sequence[Option]) -> float | None:
    """The best objective over every choice of at most one option a job."""
    best = None
    for chosen in itertools.product(*([None, *(o for o in options if o.job is job)] for job in problem.jobs)):
        taken = [option for option in chosen if option is not None]
        if any(option is None and job.must_run for option, job in zip(chosen, problem.jobs, strict=True)):
            continue
        if any(not option.is_allowed(option.step_s) for option in taken):
            continue
        if any(sum(o.nodes for o in taken if o.pool is pool) > len(pool.nodes) for pool in problem.pools):
            continue
        usd = sum(option.usd_per_hour for option in taken)
        if problem.budget_usd_per_hour is not None and usd > problem.budget_usd_per_hour:
            continue
        work = sum(option.work(option.step_s) for option in taken)
        value = work if problem.objective is FleetObjective.WORK else -usd
        best = value if best is None else max(best, value)
    return best


@pytest.mark.parametrize("objective", list(FleetObjective))
def test_the_program_finds_what_trying_every_choice_finds(objective: FleetObjective) -> None:
    """Random steps, prices, budgets, weights and deadlines."""
    random = np.random.default_rng(7)
    for _ in range(20):
        pools = (_POOLS[0], _POOLS[1])
        jobs = tuple(
            _job(
                f"j{number}",
                weight=float(random.uniform(0.5, 2.0)),
                tokens=1e6,
                deadline_s=12.0 if random.random() < 0.3 else None,
                required=bool(random.random() < 0.3) or (number == 0 and objective is FleetObjective.COST),
            )
            for number in range(3)
        )
        budget = float(random.choice([0.0, 9.0, 25.0]))
        problem = FleetProblem(pools, jobs, objective, budget)
        options = [
            Option(job, pool, nodes, 0.1, step_s=float(random.uniform(0.3, 1.5) / nodes**0.8))
            for job in jobs
            for pool in pools
            for nodes in (1, 2, 3)
        ]
        found = choose(problem, options, lambda o: o.step_s, backend=Backend.HIGHS, time_limit_s=30.0)
        expected = _brute_force(problem, options)
        assert (found is None) is (expected is None)
        if found is not None and expected is not None:
            taken, bound = found.options, found.bound
            assert found.is_best
            if objective is FleetObjective.WORK:
                value = sum(option.work(option.step_s) for option in taken)
                assert value == pytest.approx(expected, rel=1e-5)
                assert bound >= value
            else:
                value = sum(option.usd_per_hour for option in taken)
                assert value == pytest.approx(-expected, abs=1e-6)
                assert bound <= value


_POOLS = (_pool(3), _pool(2, name="rent", price=4.0))


def test_nodes_are_rented_as_far_as_the_budget_goes() -> None:
    """Two of three offered nodes are paid for; without money none is."""
    pools = (_pool(1), _pool(3, name="rent", price=10.0))
    jobs = (_job("a"), _job("b"))
    for budget, most in ((0.0, 0), (25.0, 2)):
        problem = FleetProblem(pools, jobs, budget_usd_per_hour=budget)
        found = plan_fleet(problem, OPTIONS)
        assert isinstance(found, FleetPlan)
        assert check_fleet(found, problem) == ()
        assert sum(len(share.nodes) for share in found.shares if share.pool == "rent") == most
        assert found.usd_per_hour == 10.0 * most


def test_a_deadline_is_kept_for_as_little_money_as_possible() -> None:
    """The cheapest number of rented nodes that is in time, as planning each number says."""
    rented = _pool(4, name="rent", price=10.0)
    job = _job("a", WIDE, tokens=1e9)
    steps = {nodes: _step_s(job, rented, nodes) for nodes in range(1, 5)}
    deadline_s = 1e9 / job.workload.tokens_per_step * (steps[2] + steps[4]) / 2
    problem = FleetProblem((rented,), (replace(job, deadline_s=deadline_s),), FleetObjective.COST)
    found = plan_fleet(problem, OPTIONS)
    assert isinstance(found, FleetPlan)
    assert check_fleet(found, problem) == ()
    assert found.usd_per_hour == 40.0
    assert found.bound == pytest.approx(40.0, rel=1e-5)


@pytest.mark.parametrize(
    ("jobs", "reason"),
    [
        ((_job("a", replace(TINY, layers=400, hidden=8192, mlp_hidden=28672), required=True),), "job_fits_nowhere"),
        ((_job("a", tokens=1e12, deadline_s=1.0),), "deadline"),
        (tuple(_job(name, required=True) for name in "abc"), "not_together"),
        ((_job("a", replace(TINY, layers=400, hidden=8192, mlp_hidden=28672)),), "nothing_runs"),
    ],
)
def test_what_cannot_be_is_said_with_the_reason(jobs: tuple[FleetJob, ...], reason: str) -> None:
    """Two nodes are too few for three jobs that must run, and too small for some."""
    found = plan_fleet(FleetProblem((_pool(2),), jobs), OPTIONS)
    assert isinstance(found, NoFleetPlan)
    assert found.reason is NoFleetReason(reason)


def test_what_contradicts_itself_is_refused() -> None:
    """A deadline without tokens, two jobs of one name, renting without a budget."""
    capped = TrainingWorkload(sequence_length=2048, global_batch=32, choose_power_caps=True)
    with pytest.raises(InvalidInput, match="not decided for jobs of a fleet"):
        FleetJob("a", TINY, capped)
    with pytest.raises(InvalidInput, match="tokens"):
        _job("a", deadline_s=1.0)
    with pytest.raises(InvalidInput, match="jobs"):
        FleetProblem((_pool(1),), (_job("a"), _job("a")))
    with pytest.raises(InvalidInput, match="budget_usd_per_hour"):
        FleetProblem((_pool(1, price=1.0),), (_job("a"),))
    with pytest.raises(InvalidInput, match="jobs"):
        FleetProblem((_pool(1, price=1.0),), (_job("a"),), FleetObjective.COST)


def test_a_search_that_is_cancelled_before_any_plan_says_that_it_found_none() -> None:
    """It has bounds but no plan: that is no proof."""
    told: list[object] = []
    problem = FleetProblem((_pool(2),), (_job("a", required=True),))
    found = plan_fleet(problem, OPTIONS, on_progress=told.append, is_cancelled=lambda: bool(told))
    assert isinstance(found, NoFleetPlan)
    assert found.reason is NoFleetReason.NOT_FOUND


def test_work_counts_the_passes_of_a_job() -> None:
    """Four of equal work with a reference model beside, two without gradients; the checker counts alike."""
    jobs = []
    for name, changes in (
        ("dpo", {"method": TrainingMethod.DPO}),
        ("mezo", {"optimizer": Optimizer.ZEROTH_ORDER}),
    ):
        job = _job(name)
        workload = replace(job.workload, framework=framework("transformers-2025"), **changes)  # type: ignore[arg-type]  # each fits
        jobs.append(replace(job, workload=workload))
    problem = FleetProblem((_pool(2),), tuple(jobs))
    found = plan_fleet(problem, OPTIONS)
    assert isinstance(found, FleetPlan)
    assert len(found.shares) == 2
    assert check_fleet(found, problem) == ()
    assert flops_per_step(jobs[0]) == pytest.approx(2.0 * flops_per_step(jobs[1]))


def test_the_checker_sees_what_is_wrong() -> None:
    """A node given twice, a figure that does not follow, a bound on the wrong side."""
    problem = FleetProblem((_pool(2),), (_job("a"), _job("b")))
    found = plan_fleet(problem, OPTIONS)
    assert isinstance(found, FleetPlan)
    first, second = found.shares
    twice = replace(found, shares=(first, replace(second, nodes=first.nodes, plan=first.plan)))
    assert any("given to 2 jobs" in broken for broken in check_fleet(twice, problem))
    faster = replace(found, shares=(replace(first, flops_per_s=2 * first.flops_per_s), second))
    assert any("A figure of" in broken for broken in check_fleet(faster, problem))
    assert any("gap" in broken for broken in check_fleet(replace(found, gap=0.5), problem))
    assert any("bound" in broken for broken in check_fleet(replace(found, bound=0.0), problem))
    assert any(
        "waits" in broken or "once" in broken for broken in check_fleet(replace(found, waiting=("a",)), problem)
    )
