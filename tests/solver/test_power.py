"""Power of GPUs as a limit and an objective of training plans, and caps of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import Precision
from cluster_models.cluster.power import capped, power_curve
from cluster_models.errors import InvalidWorkload
from cluster_models.links.model import effective_links
from cluster_models.remarks import remark
from cluster_models.training.frameworks import framework
from cluster_models.training.plan import NoPlan, Plan, StopReason
from cluster_models.training.workload import Objective
from solver.check import check_plan
from solver.costs.calibration import calibration_of
from solver.costs.compute import processor
from solver.degrees.priced import mixed_prices, price_candidates
from solver.fitting.plan_runs import run_of_plan
from solver.placement.cluster_fabrics import mixed_fabrics
from solver.power_caps import caps_of, plan_with_caps
from solver.predict import predict
from solver.problem import PlanningProblem
from tests.cluster_models.clusters import host
from tests.solver.problems import EXACT, fabrics_of, nodes, planned, problem

TWO_KINDS = (*nodes(2, gpus=2), host("a0", gpu="A100-SXM4-80GB", gpus=2, cards=2))


def test_the_least_energy_is_the_least_of_all_candidates() -> None:
    """No candidate on either kind has a lower bound on joules than the plan, of which the check knows the watts."""
    asked = problem(TWO_KINDS, objective=Objective.ENERGY)
    found = planned(asked)
    kind = found.stages[0].gpu_kind
    watts = {"H100-SXM5-80GB": 700.0, "A100-SXM4-80GB": 400.0}[kind] * found.configuration.degrees.gpus
    assert found.certificate.objective == pytest.approx(watts * found.time.step_s, rel=1e-9)
    priced = price_candidates(asked, fabrics_of(asked))
    fits = priced.excess_bytes <= 0
    least = float((priced.bound_s * priced.weight)[fits].min())
    assert least <= found.certificate.objective <= least * 1.1
    assert check_plan(found, asked) == ()


def test_a_limit_of_power_is_one_of_gpus() -> None:
    """1.5 kW are two H100 or three A100, of which nodes have two; by caps of half, four H100."""
    few = planned(problem(nodes(2, gpus=2), max_power_watts=1500.0))
    assert few.configuration.degrees.gpus == 2
    asked = problem(nodes(2, gpus=2), max_power_watts=1500.0, gpu_power_cap_watts=375.0)
    four = planned(asked)
    assert four.configuration.degrees.gpus == 4
    over = replace(asked, workload=replace(asked.workload, max_power_watts=1400.0))
    assert any("1500 W but the workload allows 1400 W" in line for line in check_plan(four, over))


def test_as_many_gpus_as_the_power_is_for_may_be_used() -> None:
    """Whichever way sums are rounded: ten times 333.3 W add up to more than 3,333 W, a tenth of which is less."""
    ten = nodes(1, gpus=10, gpu="A100-SXM4-80GB")
    asked = problem(ten, gpu_power_cap_watts=333.3, max_power_watts=3333.0, global_batch=40)
    found = planned(asked)
    assert found.configuration.degrees.gpus == 10
    assert check_plan(found, asked) == ()
    for watts in (333.3, 412.7, 490.1):
        for count in range(1, 200):
            limited = replace(asked.workload, max_power_watts=count * watts)
            assert limited.most_gpus(watts) == count
            assert limited.most_gpus(watts * 1.000001) == count - 1


def test_a_mix_of_kinds_takes_no_more_power_than_may_be() -> None:
    """Four H100 and two A100 have 3.6 kW; were they all H100 they would have 4.2."""
    for watts, count in ((3600.0, 1), (3599.0, 0)):
        asked = problem(TWO_KINDS, max_power_watts=watts, pinned={"tensor": 2, "pipeline": 3, "data": 1})
        (mixed,) = mixed_fabrics(asked.snapshot, asked.workload, effective_links(asked.snapshot))
        assert (sum(len(part.batch) for part in mixed_prices(asked, mixed, 0)) > 0) == count


def test_caps_need_be_priced_on_usable_kinds_alone() -> None:
    """A cap below half of a B200's power is refused where B200 may be used."""
    both = (*nodes(1), host("b0", gpu="B200-SXM-180GB", gpus=2, cards=2))
    with pytest.raises(InvalidWorkload, match=r"B200.*give at least 500"):
        planned(problem(both, gpu_power_cap_watts=400.0))
    assert planned(problem(both, gpu_power_cap_watts=400.0, avoid_nodes=("b0",)))


def test_a_capped_step_is_as_slow_as_the_curve_says() -> None:
    """Between its share of matrix products and of memory, links alike; MFU is of the rated peak."""
    pinned = {"tensor": 1, "data": 1, "pipeline": 1}
    usual, slow = (
        planned(problem(nodes(1, gpus=1), pinned=pinned, gpu_power_cap_watts=cap)) for cap in (None, 490.0)
    )
    curve = power_curve("H100-SXM5-80GB")
    assert curve.compute_share(0.7) <= usual.time.step_s / slow.time.step_s <= curve.memory_share(0.7)
    assert slow.mfu / usual.mfu == pytest.approx(usual.time.step_s / slow.time.step_s)
    cluster = problem(nodes(1, gpus=1)).snapshot.cluster
    assert [run_of_plan(each, cluster, name="it").gpu.power_watts for each in (usual, slow)] == [700.0, 490.0]


@pytest.mark.parametrize(
    "asked", [{"objective": Objective.ENERGY}, {"max_power_watts": 1700.0}, {"max_power_watts": 650.0}]
)
def test_a_cap_that_is_chosen_is_the_best_of_all(asked: dict[str, Any]) -> None:
    """Each cap planned by itself; the bound is below all of them.  No board has 650 W without a cap."""
    hosts, pinned = nodes(1, gpus=4), {"tensor": 1, "pipeline": 1}
    free = problem(hosts, choose_power_caps=True, pinned=pinned, **asked)
    found, caps = planned(free), (None, 595.0, 490.0, 420.0)
    possible = caps[1:] if asked.get("max_power_watts") == 650.0 else caps
    one_by_one = [planned(problem(hosts, gpu_power_cap_watts=cap, pinned=pinned, **asked)) for cap in possible]
    best = min(one_by_one, key=lambda each: each.certificate.objective)
    assert found.certificate.objective == best.certificate.objective
    assert found.workload == best.workload
    assert found.workload is not None
    assert found.workload.gpu_power_cap_watts is not None
    assert found.certificate.bound <= min(each.certificate.bound for each in one_by_one) * (1 + 1e-9)
    assert check_plan(found, free) == ()
    assert check_plan(replace(found, workload=replace(found.workload, gpu_power_cap_watts=None)), free)
    low = replace(found, workload=replace(found.workload, gpu_power_cap_watts=100.0))
    assert "The power cap of 100 W is none of those to choose from." in check_plan(low, free)
    idle = replace(free, workload=replace(free.workload, objective=Objective.STEP_TIME, max_power_watts=None))
    assert any("neither power nor energy" in each for each in check_plan(found, idle))


def test_a_cap_whose_search_ended_early_leaves_the_bound_open() -> None:
    """Plans under a cap that none was found for in time may be better; where none exists, they may not."""
    free = problem(nodes(1, gpus=1), choose_power_caps=True, objective=Objective.ENERGY)
    made = planned(replace(free, workload=replace(free.workload, choose_power_caps=False)))
    for reason, bounded in (("rules_search_ended", False), ("rules_not_found", False), ("nothing_fits", True)):
        none = NoPlan((remark(reason),), None, None, (), made.provenance)

        def search_one(asked: PlanningProblem, *_: object, none: NoPlan = none) -> Plan | NoPlan:
            return none if asked.workload.gpu_power_cap_watts is None else made

        found = plan_with_caps(free, EXACT, search_one, None, lambda: False)
        assert isinstance(found, Plan)
        assert (found.certificate.bound > 0.0) == bounded
        assert (found.certificate.stopped_by is StopReason.PROVEN) == bounded


def test_no_cap_is_chosen_without_a_reason() -> None:
    """Where neither power is limited nor energy the objective; caps that some board cannot have are left out."""
    asked = problem(nodes(1), choose_power_caps=True)
    assert caps_of(asked) == (None,)
    limited = replace(asked, workload=replace(asked.workload, max_power_watts=900.0))
    assert caps_of(limited) == (None, 595.0, 490.0, 420.0)
    both = (*nodes(1), host("b0", gpu="B200-SXM-180GB", gpus=2, cards=2))
    assert caps_of(problem(both, choose_power_caps=True, max_power_watts=9e3)) == (None, 850.0, 700.0, 600.0, 595.0)


def test_a_cap_slows_no_kernel_that_power_does_not_throttle() -> None:
    """Old kernels on an H20 are at the end of their clock: a cap is felt where it sustains less than they need."""
    gpu, framework_ = gpu_kind("H20-96GB", field="gpu_kind"), framework("deepspeed-0.3")
    calibration = calibration_of(gpu, framework_)
    usual = processor(gpu, Precision.BF16, calibration)
    assert usual.matmul_flops == usual.unthrottled_flops
    for cap in (0.9, 0.7, 0.6):
        slow = processor(capped(gpu, cap * gpu.power_watts), Precision.BF16, calibration)
        share = power_curve(gpu.name).compute_share(cap)
        sustained = gpu.peak_flops[Precision.BF16] * gpu.achievable_fraction * calibration.sustained_share
        limited = share * sustained * calibration.kernel_share
        assert slow.matmul_flops == pytest.approx(min(usual.matmul_flops, limited))
        assert slow.matmul_flops > share * usual.matmul_flops


def test_caps_that_no_measurement_reaches_are_refused() -> None:
    """With the least that can be priced."""
    with pytest.raises(InvalidWorkload, match=r"gpu_power_cap_watts.*give at least 350"):
        planned(problem(nodes(1), gpu_power_cap_watts=300.0))
    with pytest.raises(InvalidWorkload, match=r"gpu_power_cap_watts.*give at least 350"):
        predict(problem(nodes(1), gpu_power_cap_watts=300.0), planned(problem(nodes(1))).configuration)
    with pytest.raises(InvalidWorkload, match="conflicts with choose_power_caps"):
        problem(nodes(1), gpu_power_cap_watts=500.0, choose_power_caps=True)
    with pytest.raises(InvalidWorkload, match=r"max_power_watts.*above 0"):
        problem(nodes(1), max_power_watts=0.0)
    with pytest.raises(InvalidWorkload, match=r"max_power_watts.*less than the 700 W of one GPU.*at least 700"):
        planned(problem(nodes(1), max_power_watts=699.0))
