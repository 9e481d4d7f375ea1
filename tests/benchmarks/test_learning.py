"""The benchmark of learning: frameworks are really left out, and figures are summed up as stated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.accuracy import OWN_TABLE
from benchmarks.learning import Learnt, harm, read_results, summary
from benchmarks.left_out_frameworks import Knowledge, as_unmeasured
from benchmarks.measured import measured_runs
from solver.costs.calibration import PARAMETERS, Owner, calibration_of, default_values, kind_family

NOTHING = float("nan")


def test_nothing_of_a_left_out_framework_is_known() -> None:
    """Its own parameters are defaults, whatever was fitted or estimated; its facts stay."""
    run = next(each.run for each in measured_runs(OWN_TABLE))
    left_out = as_unmeasured(run)
    calibration = calibration_of(left_out.gpu, left_out.workload.framework)
    defaults = default_values(run.gpu)
    for name, parameter in PARAMETERS.items():
        if parameter.owner is Owner.FRAMEWORK:
            assert getattr(calibration, name) == defaults[name]
    assert replace(left_out.workload.framework, name="x").fused_attention == run.workload.framework.fused_attention


def test_a_gpu_kind_that_it_alone_ran_on_is_unknown_too() -> None:
    """Kinds of other frameworks keep fitted values, moved by what its rows said; its own kind has defaults."""
    measured = measured_runs(OWN_TABLE)
    name = measured[0].run.workload.framework.name
    alone = [each for each in measured if each.run.workload.framework.name == name]
    gpus = Knowledge(alone).gpus_of(name).gpus
    for each in alone:
        defaults = default_values(each.run.gpu)
        assert {key: value.value for key, value in gpus[each.run.gpu.name].items()} == {
            key: defaults[key] for key in gpus[each.run.gpu.name]
        }
    assert name not in Knowledge(measured).others(name).frameworks
    assert not {kind_family(each.run.gpu) for each in alone} & {
        family for family, entry in Knowledge(alone).others(name).gpus.items() if entry
    }


def test_draws_are_averaged_and_the_worst_is_told() -> None:
    """Two draws of one framework: means of both, and the change of the one that got worse."""
    draws = [
        Learnt("ours", 20, 0, (0.2, 0.1), (0.3, 0.2), (NOTHING, NOTHING)),
        Learnt("ours", 20, 1, (0.2, 0.22), (0.3, 0.3), (NOTHING, NOTHING)),
    ]
    line, median, worst = summary(draws)
    assert line == ("ours", "20", "20 %", "16 %", "+2.0 points", "30 %", "25 %", "", "")
    assert median[1:] == worst[1:] == line[1:]
    assert harm(draws) == "1 of 2 draws worse by more than a point, the worst by +2.0 points"


def test_results_are_taken_up_again() -> None:
    """A file that is not there has none."""
    assert read_results(Path("none")) == read_results(None) == []
