"""A framework that its user describes: priced like the generation it starts from, never as sure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.presentation.sentences import sentence
from cluster_models.calibration.fitted import ErrorSpread, FittedParameters, FittedValue
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.remarks import remark
from cluster_models.training.frameworks import Framework, framework
from solver.costs.calibration import PARAMETERS, calibration_of, shipped_parameters
from solver.costs.confidence import OWN_RUNS, Novelty, confidence_of, family_names, family_of
from tests.remarks import codes
from tests.solver.problems import nodes, planned, problem
from tests.solver.test_confidence import subject

H100 = gpu_kind("H100-SXM5-80GB")
LIKE = "nemo-25.02"
EXACT = ErrorSpread(-0.01, 0.0, 0.01, runs=100)


def ours(*, name: str = "ours", like: str = LIKE, **facts: object) -> Framework:
    """A framework that differs from a shipped one in ``facts``."""
    return replace(framework(like), name=name, title="Ours", like=like, **facts)  # type: ignore[arg-type]


def fitted(name: str, value: float) -> FittedParameters:
    """A user's own value of one parameter of the framework called ``name``."""
    return FittedParameters({}, {name: {"kernel_share": FittedValue(value, value, value, 9)}}, "own", EXACT)


@pytest.mark.parametrize("like", [LIKE, "megatron-core-0.12"])
def test_parameters_are_those_of_the_generation_it_is_like(like: str) -> None:
    """Also where that one takes those of another; facts are the described ones."""
    shipped, own = calibration_of(H100, framework(like)), calibration_of(H100, ours(like=like, step_bytes=3.0))
    assert {name: getattr(own, name) for name in PARAMETERS} == {
        name: getattr(shipped, name) for name in PARAMETERS
    }
    assert own.framework.step_bytes == 3.0
    assert LIKE in shipped_parameters().frameworks


def test_own_parameters_win_over_those_of_the_generation_it_is_like() -> None:
    """Parameters fitted for its name come last, those fitted for the generation before them."""
    both = FittedParameters({}, {**fitted("ours", 0.9).frameworks, **fitted(LIKE, 0.7).frameworks}, "own")
    assert calibration_of(H100, ours(), both).kernel_share == 0.9
    assert calibration_of(H100, framework(LIKE), both).kernel_share == 0.7
    assert calibration_of(H100, ours(), fitted(LIKE, 0.7)).kernel_share == 0.7


def test_a_described_framework_is_as_unsure_as_one_that_nobody_measured() -> None:
    """However well the generation is known that it is like; own runs of that one do not help either."""
    asked, known = subject(), confidence_of(subject(), 1.0)
    asked = replace(asked, workload=replace(asked.workload, framework=ours()))
    own = confidence_of(asked, 1.0)
    assert family_of(asked).name == own.family
    assert own.family.startswith(Novelty.FRAMEWORK)
    assert own.step_high_s / own.step_low_s > known.step_high_s / known.step_low_s
    assert remark("unmeasured_framework", framework="ours", like=LIKE) in own.outside
    assert confidence_of(asked, 1.0, fitted(LIKE, 0.7)) == own


def test_own_runs_make_a_described_framework_known() -> None:
    """Their errors are drawn towards those of a known framework on a kind that is new to it."""
    asked = subject()
    asked = replace(asked, workload=replace(asked.workload, framework=ours()))
    sure = confidence_of(asked, 1.0, fitted("ours", 0.9))
    assert sure.family == f"{OWN_RUNS}{Novelty.PAIR}"
    assert sure.runs == EXACT.runs
    assert not {"unmeasured_framework", "unmeasured_gpu_kind"} & set(codes(sure.outside))


def test_a_name_makes_no_framework_known() -> None:
    """One that is called like the next release of a known product is in none of that product's families."""
    asked = subject()
    asked = replace(asked, workload=replace(asked.workload, framework=ours(name="nemo-99.01")))
    assert not any("nemo" in name for name in family_names(asked))


def test_a_plan_says_what_its_calibration_knows_of_a_described_framework() -> None:
    """No parameter of it; or other facts than the plan's, which are named with both values."""
    asked = problem(nodes(1, gpus=1, gpu=H100.name))
    asked = replace(asked, workload=replace(asked.workload, framework=ours(step_bytes=3.0)))
    of_kind = {H100.name: {"sustained_share": FittedValue(0.5, 0.4, 0.6, 9)}}
    other = replace(fitted(LIKE, 0.7), gpus=of_kind)
    same = replace(fitted("ours", 0.7), gpus=of_kind, described={"ours": ours(step_bytes=3.0)})
    changed = replace(same, described={"ours": ours(step_bytes=4.0)})
    told = [
        [each for each in planned(replace(asked, fitted=own)).warnings if each.code.startswith("calibrat")]
        for own in (other, same, changed)
    ]
    assert told[0] == [remark("calibration_lacks", calibration="own", gpu_kinds=(), framework="ours", like=LIKE)]
    assert told[1] == []
    [changed_fact] = told[2]
    assert sentence(changed_fact) == (
        "The calibration own was fitted to runs of ours with step_bytes 4.0, here 3.0."
    )
