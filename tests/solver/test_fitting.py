"""Fitting: known parameters come back, untold ones stay, and errors of unseen runs are told honestly."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from benchmarks.fitted_files import confidence_text, fitted_text
from benchmarks.step_fit import fit
from benchmarks.unseen import held_out, never_fitted, omissions_of
from cluster_models.calibration.fitted import FittedParameters, FittedValue
from cluster_models.calibration.training_run import TrainingRun
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import Precision
from cluster_models.model.architecture import Architecture
from cluster_models.training.frameworks import framework
from cluster_models.training.plan import Configuration, Degrees, RankOrder
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.costs.calibration import PARAMETERS, Owner, default_values, kind_family, longest_prefix
from solver.costs.confidence import Novelty
from solver.costs.differences import DifferenceError
from solver.fitting.families import families_of
from solver.fitting.least_squares import Problem, solve
from solver.fitting.left_out import free_without
from solver.fitting.report import FitOptions, FitReport, estimated_prior
from solver.fitting.unknowns import Unknown, kind_itself, unknowns_of
from solver.fitting.unseen import HeldOut
from solver.runs import predict_run

KIND, FRAMEWORK = "H100-SXM5-80GB", "nemo-25.02"
OPTIONS = FitOptions(prior_of=estimated_prior)


def run(hidden: int = 4096, tensor: int = 4, micro_batch: int = 1, kind: str = KIND) -> TrainingRun:
    """A dense model of eight layers on one node."""
    return TrainingRun(
        name=f"{kind} {hidden} tp{tensor} mbs{micro_batch}",
        architecture=Architecture(
            "dense", 8, hidden, hidden // 128, 8, 128, 3 * hidden, 32000, gated_mlp=True, tied_embeddings=False
        ),
        workload=TrainingWorkload(4096, 64, precision=Precision.BF16, framework=framework(FRAMEWORK)),
        configuration=Configuration(
            Degrees(tensor=tensor, data=8 // tensor),
            micro_batch=micro_batch,
            recompute=Recompute.NONE,
            sharding=Sharding.OPTIMIZER,
            rank_order=RankOrder.DATA_BEFORE_PIPELINE,
            stage_layers=((8,),),
        ),
        gpu=gpu_kind(kind),
        gpus_per_node=8,
        gpus_per_domain=8,
        network_bytes_per_s=50e9,
    )


def measured(
    runs: Sequence[TrainingRun], truth: FittedParameters, noise: float = 0.0, seed: int = 0
) -> list[TrainingRun]:
    """``runs`` with the step times of ``truth`` and lognormal noise."""
    errors = np.random.default_rng(seed).normal(0.0, noise, len(runs))
    steps = [predict_run(each, truth).step_s * float(np.exp(e)) for each, e in zip(runs, errors, strict=True)]
    return [replace(each, step_s=step_s) for each, step_s in zip(runs, steps, strict=True)]


def truth(**values: float) -> FittedParameters:
    """Parameters that the runs were made with."""
    owners: dict[Owner, dict[str, FittedValue]] = {Owner.GPU: {}, Owner.FRAMEWORK: {}}
    for name, value in values.items():
        owners[PARAMETERS[name].owner][name] = FittedValue(value, value, value, 0)
    return FittedParameters({KIND: owners[Owner.GPU]}, {FRAMEWORK: owners[Owner.FRAMEWORK]}, "truth")


def value(report: FitReport, parameter: str) -> FittedValue:
    """The report's line about ``parameter``."""
    return next(each.fitted for each in report.unknowns if each.unknown.parameter == parameter)


SWEEP = [run(*shape) for shape in product((2048, 4096, 8192), (1, 2, 8), (1, 4))]


def test_known_parameters_come_back_from_runs_made_with_them() -> None:
    """Two shares that act on different parts of the step, from noisy runs: inside their intervals and close."""
    made = measured(SWEEP, truth(sustained_share=0.7, step_overhead_s=0.1), noise=0.01)
    report = fit(made, ["sustained_share", "step_overhead_s"], options=OPTIONS)
    for name, true in (("sustained_share", 0.7), ("step_overhead_s", 0.1)):
        found = value(report, name)
        assert found.low < true < found.high
        assert found.value == pytest.approx(true, rel=0.1)
        assert found.steps > 0
    assert np.abs(report.errors_after).mean() < 0.02 < np.abs(report.errors_before).mean()


def test_parameters_that_no_run_tells_keep_their_values() -> None:
    """Runs in 16 bits say nothing of 8 bits: the value stays, is not written, and a warning counts."""
    made = measured(SWEEP, truth(sustained_share=0.7))
    report = fit(made, ["sustained_share", "fp8_share"], options=OPTIONS)
    untold = next(each for each in report.unknowns if each.unknown.parameter == "fp8_share")
    assert not untold.told
    assert untold.fitted.value == untold.prior
    assert set(report.parameters.gpus[KIND]) == {"sustained_share"}
    assert "tell 1 of 2 parameters" in report.warnings[0]


def test_one_run_moves_few_parameters_and_is_then_met_better() -> None:
    """All parameters are allowed; a single run moves a handful at most."""
    made = measured([run()], truth(kernel_share=0.7))
    report = fit(made, options=OPTIONS)
    assert 1 <= sum(each.told for each in report.unknowns) <= 4
    assert abs(report.errors_after[0]) < 0.5 * abs(report.errors_before[0])


def test_one_wrong_run_does_not_carry_the_fit_away() -> None:
    """A step measured at three times its length moves the share by little."""
    made = measured(SWEEP, truth(sustained_share=0.7))
    spoilt = [replace(made[0], step_s=3 * (made[0].step_s or 0.0)), *made[1:]]
    report = fit(spoilt, ["sustained_share"], options=OPTIONS)
    assert value(report, "sustained_share").value == pytest.approx(0.7, rel=0.05)


def test_runs_of_one_group_weigh_less_than_as_many_groups() -> None:
    """Nine copies of one run in one group pull less on a shared parameter than in groups of their own."""
    slow = measured([run(2048)] * 9, truth(sustained_share=0.5))
    fast = measured([run(8192)] * 2, truth(sustained_share=0.9))
    grouped, alone = (
        value(fit([*slow, *fast], ["sustained_share"], groups=groups, options=OPTIONS), "sustained_share").value
        for groups in (["slow"] * 9 + ["a", "b"], [str(i) for i in range(11)])
    )
    assert grouped > alone


def test_held_out_errors_are_those_of_a_fit_without_the_group() -> None:
    """One Newton step gives what fitting again without the group gives."""
    made = measured(SWEEP, truth(sustained_share=0.7), noise=0.05)
    groups = [each.name.split()[1] for each in made]
    report = fit(made, ["sustained_share"], groups=groups, options=OPTIONS)
    left = [i for i, group in enumerate(groups) if group == "8192"]
    rest = [i for i, group in enumerate(groups) if group != "8192"]
    again = fit([made[i] for i in rest], ["sustained_share"], groups=[groups[i] for i in rest], options=OPTIONS)
    steps = [predict_run(made[i], again.parameters).step_s / (made[i].step_s or 1.0) for i in left]
    assert [report.errors_held_out[i] for i in left] == pytest.approx(list(np.log(steps)), abs=0.005)


def test_without_all_runs_the_priors_are_left_however_far_the_search_had_come() -> None:
    """A search stops near its optimum; what it stopped short of must not be taken for the pull of the runs."""
    made = measured(SWEEP[:4], truth(sustained_share=0.7))
    unknown = Unknown(Owner.GPU, KIND, "sustained_share")
    problem = Problem(made, np.ones(len(made)), {unknown: 0.9}, OPTIONS)
    short = replace(solve(problem, {unknown: np.arange(len(made))}), free={unknown: unknown.to_free(0.6)})
    left = free_without(problem, short, np.arange(len(made)))
    assert unknown.to_value(left[unknown]) == pytest.approx(0.9)


def test_intervals_hold_the_true_value_as_often_as_they_say() -> None:
    """Over 12 noisy repetitions the 90 % interval holds the true share at least 9 times."""
    runs = SWEEP[::3]
    held = 0
    for seed in range(12):
        made = measured(runs, truth(sustained_share=0.75), noise=0.05, seed=seed)
        found = value(fit(made, ["sustained_share"], options=OPTIONS), "sustained_share")
        held += found.low <= 0.75 <= found.high
    assert held >= 9


def test_runs_without_a_step_are_left_out() -> None:
    """Nothing measured is nothing fitted, with a warning; the start is kept."""
    start = truth(sustained_share=0.7)
    report = fit([run()], options=replace(OPTIONS, start=start))
    assert report.runs == ()
    assert report.warnings == ("No run has a measured step: nothing was fitted.",)
    assert report.parameters.gpus == {KIND: start.gpus[KIND]}


def test_unknowns_belong_to_what_was_used_and_stay_in_their_range() -> None:
    """Each GPU kind and framework once; any number on the free scale is a possible value."""
    runs = [run(), run(2048), run(kind="A100-SXM4-80GB")]
    found = unknowns_of(runs, ["sustained_share", "kernel_share"], kind_itself)
    assert [(each.name, each.parameter) for each in found] == [
        (FRAMEWORK, "kernel_share"),
        ("A100-SXM4-80GB", "sustained_share"),
        (KIND, "sustained_share"),
    ]
    unknown = Unknown(Owner.GPU, KIND, "sustained_share")
    assert unknown.to_value(unknown.to_free(0.42)) == pytest.approx(0.42)
    assert 0.1 <= unknown.to_value(-1e9) < unknown.to_value(1e9) <= 1.0


def test_a_name_covers_whole_words_only() -> None:
    """Every H100 by H100, no H200 by H20."""
    assert longest_prefix({"H100": 0, "H20": 0}, "H100-SXM5-80GB") == "H100"
    assert longest_prefix({"H20": 0, "L4": 0}, "H200-SXM-141GB") is None
    assert longest_prefix({"L4": 0}, "L40S") is None


def test_the_files_are_the_same_whenever_the_fit_is() -> None:
    """Order of the runs aside; the text reads back as what was fitted, to three digits."""
    made = measured(SWEEP, truth(sustained_share=0.7), noise=0.02)
    options = replace(OPTIONS, kind_name=kind_family)
    one, other = (fit(runs, ["sustained_share", "kernel_share"], options=options) for runs in (made, made[::-1]))
    assert fitted_text(one.parameters) == fitted_text(other.parameters)
    table = tomllib.loads(fitted_text(one.parameters))
    assert table["gpus"]["H100"]["sustained_share"]["value"] == pytest.approx(
        one.parameters.gpus["H100"]["sustained_share"].value, rel=5e-3
    )


def test_families_know_their_errors_and_ranges() -> None:
    """Eighteen runs of three models make a family with the sizes met; the text reads back as the same families."""
    made = measured(SWEEP, truth(sustained_share=0.7), noise=0.05)
    report = fit(made, ["sustained_share"], options=OPTIONS)
    units = [str(each.architecture.hidden) for each in made]
    held = [
        HeldOut(run, novelty, unit, "one", scale * error)
        for novelty, scale in ((Novelty.MODEL, 1.0), (Novelty.KIND, 2.0))
        for run, unit, error in zip(made, units, report.errors_held_out, strict=True)
    ]
    known = families_of(made, held)
    family = known.families[f"{FRAMEWORK} on H100, dense models"]
    assert family.spread.runs == len(made)
    assert 3 <= family.independent <= len(made)
    assert family.extents["tensor"] == (1, 8)
    assert family.choices["precision"] == ("bf16",)
    assert known.families[Novelty.KIND].spread.p90 == pytest.approx(
        2 * known.families["every measured run"].spread.p90
    )
    assert known.kinds_of == {FRAMEWORK: ("H100",)}
    table = tomllib.loads(confidence_text(known, DifferenceError(0.1, 0.2, 30, 4)))
    assert table["kinds"] == {"H100": len(made)}
    assert table["differences"] == {"settings": 0.1, "doubling": 0.2, "pairs": 30, "sweeps": 4}
    assert set(table["families"]) == set(known.families)


def test_own_fits_know_the_errors_of_runs_that_they_did_not_see() -> None:
    """The parameters carry the spread of held-out errors, no wider than the noise that they were made with."""
    report = fit(measured(SWEEP, truth(sustained_share=0.7), noise=0.05), ["sustained_share"], options=OPTIONS)
    errors = report.parameters.errors
    assert errors is not None
    assert errors.runs == len(SWEEP)
    assert -0.12 < errors.p10 < errors.p50 < errors.p90 < 0.12


def test_something_unseen_is_priced_with_defaults_and_without_its_runs() -> None:
    """Runs made with the defaults of their kind are met exactly when it is unseen, whatever they told of it."""
    other = "A100-SXM4-80GB"
    defaults = {
        name: FittedValue(number, number, number, 0)
        for name, number in default_values(gpu_kind(KIND)).items()
        if PARAMETERS[name].owner is Owner.GPU
    }
    made = measured(SWEEP[:4], replace(truth(), gpus={KIND: defaults}))
    made += measured([run(tensor=tensor, kind=other) for tensor in (1, 2)], truth())
    omissions = omissions_of(made, ([str(i) for i in range(len(made))],))
    options = replace(OPTIONS, kind_name=kind_family)
    report = fit(made, ["sustained_share"], without=list(omissions.values()), options=options)
    errors = dict(zip(omissions, report.errors_without, strict=True))
    assert errors[Novelty.KIND][:4] == pytest.approx([0.0] * 4, abs=1e-9)
    assert np.abs(report.errors_before[:4]).max() > 0.001
    held = held_out(made, ["one"] * len(made), errors)
    assert {each.novelty for each in held} >= {Novelty.KIND, Novelty.BOTH}


def test_what_nobody_else_knows_is_no_test_of_a_new_model() -> None:
    """A kind with one model is left out as a new kind, not as a new model; two of a kind judge each other."""
    made = [run(tensor=1), run(tensor=2), run(kind="A100-SXM4-80GB")]
    assert omissions_of(made, (["a", "b", "c"],))[Novelty.MODEL] == ()
    wider = omissions_of([*made, run(hidden=2048)], (["a", "b", "c", "d"],))[Novelty.MODEL]
    assert sorted(np.concatenate([omission.rows for omission in wider]).tolist()) == [0, 1, 3]


def test_a_framework_of_one_kind_alone_is_no_test_of_a_new_kind() -> None:
    """Without its only kind nothing is known of it; the other framework's runs there are still left out with it."""
    other = replace(run().workload, framework=framework("maxtext-2025"))
    made = [run(), run(kind="A100-SXM4-80GB"), replace(run(), workload=other)]
    found = omissions_of(made, (["a", "b", "c"],))
    assert [each.rows.tolist() for each in found[Novelty.KIND]] == [[1], [0]]
    assert [each.removed.tolist() for each in found[Novelty.KIND]] == [[1], [0, 2]]
    assert sorted(row for each in found[Novelty.FRAMEWORK] for row in each.rows.tolist()) == [0, 2]


def test_runs_never_fitted_test_what_the_fitted_ones_do_not_know() -> None:
    """A kind that was not fitted is new; so is a framework; a known pair tests a new model."""
    fitted = [run(), run(kind="A100-SXM4-80GB")]
    strange = replace(run(), workload=replace(run().workload, framework=framework("maxtext-2025")))
    runs = [run(hidden=2048), run(kind="V100-SXM2-16GB"), strange]
    found = never_fitted(runs, ["s"] * 3, [0.1, 0.2, 0.3], fitted)
    assert [each.novelty for each in found] == [Novelty.MODEL, Novelty.KIND, Novelty.FRAMEWORK]
    assert [each.error for each in found] == [-0.1, -0.2, -0.3]
