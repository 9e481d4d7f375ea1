"""Work that recomputation runs again under each framework's policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.cluster.gpus import Precision
from cluster_models.training.framework_choices import SelectiveRecompute
from cluster_models.training.workload import Recompute
from solver.candidates import RECOMPUTE_CODES
from solver.costs.calibration import Calibration
from solver.costs.compute import matmul_s, processor
from tests.solver.cost_cases import H100, WORKLOAD, behaviour, candidates, costs

POLICIES = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
ROWS = [{"recompute": RECOMPUTE_CODES.index(policy)} for policy in POLICIES]


def repeated_s(calibration: Calibration, precision: Precision = Precision.BF16) -> tuple[float, float]:
    """Seconds that selective and full recomputation add to backward, without collectives between GPUs."""
    calibration = replace(calibration, straggling_share=0.0)
    result = costs(candidates(*ROWS), workload=replace(WORKLOAD, precision=precision), calibration=calibration)
    none, selective, full = (float(seconds) for seconds in result.backward_s[:, 0])
    return selective - none, full - none


def test_stopping_early_saves_the_last_product() -> None:
    """Each of 80 layers leaves out 8192 tokens x 28672 by 28672 x 8192; a selective core is no different."""
    whole, early = (repeated_s(behaviour(stops_recompute=stops)) for stops in (False, True))
    chip = processor(H100, Precision.BF16, behaviour())
    assert whole[1] - early[1] == pytest.approx(80 * float(matmul_s(chip, 8192.0, 8192.0, 28672.0)), rel=1e-6)
    assert whole[0] == pytest.approx(early[0])


def test_every_second_product_costs_more_than_the_core_and_less_than_all() -> None:
    """At 8192 tokens attention's core is a small part of a layer, half of its products a large one."""
    core, full = repeated_s(behaviour())
    alternate, same = repeated_s(behaviour(selective_recompute=SelectiveRecompute.ALTERNATE_PRODUCTS))
    assert core < alternate < full
    assert same == pytest.approx(full)


def test_products_of_eight_bits_all_run_again() -> None:
    """In FP8 only the core of attention separates torchtitan's selective policy from the full one."""
    known = behaviour(selective_recompute=SelectiveRecompute.ALTERNATE_PRODUCTS)
    alternate, full = repeated_s(known, Precision.FP8)
    core, _ = repeated_s(behaviour(), Precision.FP8)
    assert full - alternate == pytest.approx(core, rel=1e-6)
