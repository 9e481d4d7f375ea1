"""Power of GPUs as a limit and an objective of training plans, and caps of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.cluster.power import power_curve
from cluster_models.errors import InvalidWorkload
from cluster_models.training.workload import Objective
from solver.check import check_plan
from solver.degrees.priced import price_candidates
from tests.cluster_models.clusters import host
from tests.solver.problems import fabrics_of, nodes, planned, problem

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
    capped = planned(asked)
    assert capped.configuration.degrees.gpus == 4
    over = replace(asked, workload=replace(asked.workload, max_power_watts=1400.0))
    assert any("1500 W but the workload allows 1400 W" in line for line in check_plan(capped, over))


def test_a_capped_step_is_as_slow_as_the_curve_says() -> None:
    """Between its share of matrix products and of memory, links alike; MFU is of the rated peak."""
    pinned = {"tensor": 1, "data": 1, "pipeline": 1}
    usual, slow = (
        planned(problem(nodes(1, gpus=1), pinned=pinned, gpu_power_cap_watts=cap)) for cap in (None, 490.0)
    )
    curve = power_curve("H100-SXM5-80GB")
    assert curve.compute_share(0.7) <= usual.time.step_s / slow.time.step_s <= curve.memory_share(0.7)
    assert slow.mfu / usual.mfu == pytest.approx(usual.time.step_s / slow.time.step_s)


def test_caps_that_no_measurement_reaches_are_refused() -> None:
    """With the least that can be priced."""
    with pytest.raises(InvalidWorkload, match=r"gpu_power_cap_watts.*give at least 350"):
        planned(problem(nodes(1), gpu_power_cap_watts=300.0))
    with pytest.raises(InvalidWorkload, match=r"max_power_watts.*above 0"):
        problem(nodes(1), max_power_watts=0.0)
