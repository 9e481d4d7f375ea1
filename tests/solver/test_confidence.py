"""Intervals of step times and what lies outside of what was calibrated."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cluster_models.calibration.fitted import ErrorSpread, FittedParameters
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import Precision
from cluster_models.remarks import remark
from cluster_models.training.frameworks import framework, frameworks
from cluster_models.training.plan import Configuration, Degrees, RankOrder
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.costs.confidence import (
    EVERY_RUN,
    LEVEL,
    OWN_RUNS,
    Novelty,
    Subject,
    blend,
    confidence_of,
    doublings_outside,
    family_names,
    family_of,
    novelty_of,
    outside_calibration,
    widened,
)
from solver.fitting.families import error_spread
from tests.plans import small_architecture
from tests.remarks import codes


def subject(*, kind: str = "H100-SXM5-80GB", tensor: int = 8, name: str = "nemo-25.02") -> Subject:
    """A dense model on ``tensor`` GPUs."""
    return Subject(
        gpu_kind(kind),
        replace(small_architecture(), hidden=8192),
        TrainingWorkload(8192, 128, precision=Precision.BF16, framework=framework(name)),
        Configuration(
            Degrees(tensor=tensor, pipeline=4, data=4),
            micro_batch=1,
            recompute=Recompute.NONE,
            sharding=Sharding.OPTIMIZER,
            rank_order=RankOrder.DATA_BEFORE_PIPELINE,
            stage_layers=((1, 1, 1, 1),),
        ),
    )


def test_families_widen_from_framework_and_kind_to_every_run() -> None:
    """The narrowest family names both, the widest neither, and none twice."""
    names = family_names(subject())
    assert names[0] == "nemo-25.02 on H100, dense models"
    assert names[1] == "every nemo on H100, dense models"
    assert names[-1] == EVERY_RUN
    assert len(set(names)) == len(names)


def test_the_interval_scales_with_the_step_and_holds_it() -> None:
    """Both ends double with the step; the prediction itself lies between them."""
    one, two = (confidence_of(subject(), step_s) for step_s in (1.0, 2.0))
    assert one.step_low_s <= 1.0 <= one.step_high_s
    assert two.step_low_s == pytest.approx(2 * one.step_low_s)
    assert two.step_high_s == pytest.approx(2 * one.step_high_s)
    assert one.level == LEVEL


def test_an_unseen_gpu_kind_is_less_sure_than_a_measured_one() -> None:
    """Its interval is wider and it says that no run was fitted."""
    known, new = (confidence_of(subject(kind=kind), 1.0) for kind in ("H100-SXM5-80GB", "MI300X"))
    assert new.step_high_s / new.step_low_s > known.step_high_s / known.step_low_s
    assert remark("unmeasured_gpu_kind", gpu_kind="MI300X") in new.outside
    assert not {"unmeasured_gpu_kind", "unmeasured_framework", "unmeasured_pair"} & set(codes(known.outside))


def test_sizes_and_settings_beyond_the_calibrated_ones_are_told() -> None:
    """Twice the largest tensor size of the family is told with the range; so does an odd precision."""
    low, high = family_of(subject()).extents["tensor"]
    inside, outside = (outside_calibration(subject(tensor=tensor)) for tensor in (high, 2 * high))
    assert remark("uncalibrated_size", size="tensor", value=2 * high, low=low, high=high) in outside
    assert "tensor" not in {each.figures.get("size") for each in inside}
    odd = subject()
    odd = replace(odd, workload=replace(odd.workload, precision=Precision.FP32))
    [setting] = [each for each in outside_calibration(odd) if each.code == "uncalibrated_setting"]
    assert (setting.figures["setting"], setting.figures["value"]) == ("precision", "fp32")


def test_own_errors_draw_the_interval_towards_them() -> None:
    """Many exact own runs narrow the interval; those of another GPU kind and framework leave it alone."""
    exact = ErrorSpread(-0.01, 0.0, 0.01, runs=100)
    own = FittedParameters({"H100-SXM5-80GB": {}}, {}, "own runs", exact)
    others = FittedParameters({"A100-SXM4-80GB": {}}, {}, "own runs", exact)
    shipped, narrow = confidence_of(subject(), 1.0), confidence_of(subject(), 1.0, own)
    assert narrow.step_high_s - narrow.step_low_s < shipped.step_high_s - shipped.step_low_s
    assert narrow.runs == 100
    assert confidence_of(subject(), 1.0, others) == shipped


def test_own_runs_of_a_framework_make_it_known() -> None:
    """An unmeasured framework is warned of, unless own runs of it told something; those of another do not help."""
    new = next(name for name in frameworks() if novelty_of(subject(name=name)) is Novelty.FRAMEWORK)
    exact = ErrorSpread(-0.01, 0.0, 0.01, runs=10)
    ours = FittedParameters({"H100-SXM5-80GB": {}}, {new: {}}, "own runs", exact)
    others = FittedParameters({"H100-SXM5-80GB": {}}, {"nemo-25.02": {}}, "own runs", exact)
    shipped, told = confidence_of(subject(name=new), 1.0), confidence_of(subject(name=new), 1.0, ours)
    assert "unmeasured_framework" in codes(shipped.outside)
    assert "unmeasured_framework" not in codes(told.outside)
    assert told.family.startswith(OWN_RUNS)
    assert confidence_of(subject(name=new), 1.0, others) == shipped


def test_blending_weighs_by_the_number_of_independent_runs() -> None:
    """Eight independent runs count as much as the wider family, very many alone decide."""
    wide = ErrorSpread(-0.4, 0.0, 0.4, runs=500)
    few = ErrorSpread(-0.2, 0.0, 0.2, runs=80)
    assert blend(few, wide, 8.0).p90 == pytest.approx(0.3)
    assert blend(few, wide, 1e6).p10 == pytest.approx(-0.2, abs=1e-4)


def test_a_framework_never_measured_on_a_kind_is_less_known_than_one_that_was() -> None:
    """None of MLPerf's rows ran on H200: each is known, but not both together, and the plan says so."""
    pair = subject(kind="H200-SXM-141GB", name="mlperf-4")
    assert novelty_of(pair) is Novelty.PAIR
    assert "unmeasured_pair" in codes(outside_calibration(pair))
    assert novelty_of(subject(kind="MI300X", name="mlperf-4")) is Novelty.KIND


def test_an_interval_widens_with_every_doubling_outside_of_what_was_measured() -> None:
    """At the edge it is the family's; four times the largest tensor size lie two doublings away and widen it."""
    family = family_of(subject())
    _, high = family.extents["tensor"]
    inside, outside = (subject(tensor=tensor) for tensor in (high, 4 * high))
    apart = doublings_outside(outside, family) - doublings_outside(inside, family)
    assert apart == pytest.approx(
        2 + max(0, math.log2(outside.configuration.degrees.gpus / family.extents["gpus"][1]))
    )
    near, far = (confidence_of(each, 1.0) for each in (inside, outside))
    assert far.step_low_s < near.step_low_s < near.step_high_s < far.step_high_s
    assert far.doublings_outside == doublings_outside(outside, family)
    assert widened(0.3, 4.0, 0.2) == pytest.approx(0.5)


def test_a_new_framework_is_less_sure_of_steps_full_of_overheads() -> None:
    """Twice the step of one configuration is twice as far from its products: wider, and the plan says why."""
    new, known = (subject(name=name) for name in ("megatron-core-0.8", "nemo-25.02"))
    new = replace(new, workload=replace(new.workload, framework=replace(new.workload.framework, name="ours")))
    assert novelty_of(new) is Novelty.FRAMEWORK
    tuned, slow = (confidence_of(new, step_s) for step_s in (1e-3, 1e3))
    assert slow.step_high_s / 1e3 > tuned.step_high_s / 1e-3
    assert slow.step_low_s / 1e3 == pytest.approx(tuned.step_low_s / 1e-3)
    assert "unmeasured_overheads" in codes(slow.outside)
    assert "unmeasured_overheads" not in codes((*tuned.outside, *confidence_of(known, 1e3).outside))


def test_percentiles_of_few_errors_hold_the_next_one_as_often_as_they_say() -> None:
    """Between p10 and p90 of 19 errors the twentieth lies in 80 % of trials."""
    trials = np.random.default_rng(0).normal(size=(4000, 20))
    spreads = [error_spread(trial[:-1]) for trial in trials]
    inside = [s.p10 <= trial[-1] <= s.p90 for s, trial in zip(spreads, trials, strict=True)]
    assert np.mean(inside) == pytest.approx(LEVEL, abs=0.02)
    assert math.isclose(spreads[0].p50, float(np.median(trials[0][:-1])))
