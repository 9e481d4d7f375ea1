"""Which plan is taken among those as good: the simplest, the fastest, or the most robust."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from app.presentation.sentences import sentence
from cluster_models.training.plan import Plan
from cluster_models.training.selection import Simplicity
from cluster_models.training.workload import Choice
from solver.answer import alternatives, choice
from solver.answer.simplicity import complications, simpler_in, simplest_first
from solver.check import check_plan
from solver.costs.confidence import Subject, family_of
from solver.costs.differences import DifferenceError
from solver.degrees.priced import price_candidates
from solver.problem import PlanningProblem
from tests.solver.problems import DENSE, EXACT, fabrics_of, names, nodes, planned, problem

BLIND = DifferenceError(settings=5.0, doubling=0.0, pairs=1, sweeps=1)
"""Predictions that tell nothing."""
SHARP = DifferenceError(settings=1e-6, doubling=0.0, pairs=1, sweeps=1)


def asked(rule: Choice = Choice.SIMPLEST) -> PlanningProblem:
    """Eight layers on three nodes of two, so that shapes with uneven layers are among the best."""
    return problem(nodes(3, gpus=2), global_batch=12, choice=rule)


def blind(monkeypatch: pytest.MonkeyPatch, error: DifferenceError, *, most: float = 10.0) -> None:
    """Let the choice believe in another error of differences, and in a higher price of simplicity."""
    for module in (choice, alternatives):
        monkeypatch.setattr(module, "difference_error", lambda: error)
    monkeypatch.setattr(choice, "MOST_GIVEN_UP", most)


def gives_up(plan: Plan) -> float:
    """Share of the objective above the best found."""
    assert plan.selection is not None
    return plan.selection.given_up


def test_the_simplest_is_the_fastest_where_predictions_tell_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certain lead is never given up."""
    blind(monkeypatch, SHARP)
    simplest, fastest = planned(asked()), planned(asked(Choice.FASTEST))
    assert gives_up(simplest) == gives_up(fastest) == 0
    assert simplest.time == fastest.time


def test_the_simplest_wins_where_predictions_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No parallelism but of data; it says what it costs and in what it is simpler; the proof is of the best."""
    blind(monkeypatch, BLIND)
    simplest, fastest = planned(asked()), planned(asked(Choice.FASTEST))
    degrees = simplest.configuration.degrees
    assert (degrees.tensor, degrees.pipeline, degrees.context) == (1, 1, 1)
    assert fastest.configuration != simplest.configuration
    assert simplest.selection is not None
    assert simplest.selection.fastest == 0
    assert simplest.alternatives[0].configuration == fastest.configuration
    assert simplest.time.step_s == pytest.approx(fastest.time.step_s * (1 + gives_up(simplest)))
    assert simplest.selection.simpler
    busiest, stages = simplest.alternatives[0].busiest, fastest.stages
    assert busiest is not None
    work = [stage.forward_s + stage.backward_s for stage in stages]
    assert work[busiest.stage] == max(work) == pytest.approx(busiest.micro_batch_s)
    assert busiest.median_s == pytest.approx(np.median(work))
    # The fastest is better by the objective, which is the step: it is not said to be worse.
    assert simplest.alternatives[0].reason.code == "faster"
    assert simplest.certificate.objective == fastest.certificate.objective
    assert simplest.certificate.bound == fastest.certificate.bound


@pytest.mark.parametrize("rule", Choice)
def test_every_choice_is_sound_and_costs_no_more_than_it_may(rule: Choice) -> None:
    """The checker finds nothing; simplicity costs 2 % at most, the fastest nothing."""
    found = planned(asked(rule))
    assert check_plan(found, asked(rule)) == ()
    assert found.selection is not None
    assert found.selection.choice is rule
    assert (
        gives_up(found) <= {Choice.SIMPLEST: choice.MOST_GIVEN_UP, Choice.FASTEST: 0.0, Choice.ROBUST: np.inf}[rule]
    )


def test_the_robust_choice_loses_least_in_nine_draws_of_ten() -> None:
    """No more than the fastest found; where predictions are certain and links steady the two are one."""
    found = planned(asked(Choice.ROBUST)).selection
    assert found is not None
    assert found.regret is not None
    assert found.fastest_regret is not None
    assert found.regret <= found.fastest_regret
    assert planned(asked(Choice.ROBUST)) == planned(asked(Choice.ROBUST))


def test_certain_predictions_make_the_fastest_the_most_robust(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one node no link drifts."""
    monkeypatch.setattr("solver.costs.differences.difference_error", lambda: SHARP)
    monkeypatch.setattr(choice, "doublings_outside", lambda *_: 0.0)
    one = problem(nodes(1, gpus=4), global_batch=12, choice=Choice.ROBUST)
    found = planned(one)
    assert gives_up(found) == 0
    assert found.selection is not None
    assert found.selection.regret == pytest.approx(0.0, abs=1e-4)


def test_alternatives_differ_in_shape() -> None:
    """None has the plan's tensor, pipeline, data, context and expert sizes, nor another's."""
    found = planned(problem(nodes(4, gpus=2), global_batch=16), replace(EXACT, alternatives=5))
    every = [found.configuration, *(other.configuration for other in found.alternatives)]
    shapes = [replace(each.degrees, virtual_pipeline=1) for each in every]
    assert len(set(shapes)) == len(shapes) > 3


def test_gains_and_losses_add_up_to_the_difference() -> None:
    """As parts in seconds, and as printed, to the last digit."""
    found = planned(problem(nodes(4, gpus=2), global_batch=16), replace(EXACT, alternatives=5))
    told = 0
    for other in found.alternatives:
        if other.time is None or "more_s" not in other.reason.figures:
            continue
        told += 1
        degrees, busiest = other.configuration.degrees, other.busiest
        assert busiest is not None
        assert set(busiest.nodes) <= set(names(4))
        assert len(busiest.nodes) == math.ceil(degrees.tensor * degrees.context / 2)
        assert busiest.micro_batch_s >= busiest.median_s > 0
        lead, parts = sentence(other.reason).split("):")
        total = re.search(r"\(([+-][\d.]+) (m?s)", lead)
        assert total is not None
        scale = 1e3 if total[2] == "ms" else 1.0
        assert float(total[1]) == pytest.approx((other.step_s - found.time.step_s) * scale, abs=0.06)
        assert sum(float(part) for part in re.findall(r"[+-][\d.]+(?= )", parts)) == pytest.approx(float(total[1]))
    assert told


def test_the_order_of_simplicity_is_the_stated_one() -> None:
    """Fewer kinds of parallelism come before even layers, these before fewer virtual stages."""
    many, uneven, virtual = (0, 3, 0, 0, 0, 1, 0, 0), (0, 2, 0, 1, 0, 1, 0, 0), (0, 2, 0, 0, 0, 4, 0, 0)
    keys = np.array([many, uneven, virtual])
    assert simplest_first(keys, np.zeros(3)).tolist() == [2, 1, 0]
    assert simpler_in(keys[2], keys[1]) == (Simplicity.EVEN_LAYERS,)
    assert simplest_first(keys[[0, 0]], np.array([2.0, 1.0])).tolist() == [1, 0]


def test_complications_are_counted() -> None:
    """Three pipeline ranks of eight layers and tensor 2: two kinds, uneven layers, one size no power of two."""
    every = asked()
    usable = fabrics_of(every)
    priced = price_candidates(every, usable)
    batch = priced.batch
    row = int(np.flatnonzero((batch.tensor == 2) & (batch.pipeline == 3) & (batch.micro_batch == 1))[0])
    subject = Subject(usable[0].gpu, DENSE, every.workload, planned(every).configuration)
    (found,) = complications(priced, usable, np.array([row]), family_of(subject))
    virtual = int(batch.virtual_pipeline[row])
    told = dict(zip(Simplicity, found.tolist(), strict=True))
    assert told[Simplicity.PARALLELISM] == 2
    assert told[Simplicity.EVEN_LAYERS] == 1
    assert told[Simplicity.POWERS_OF_TWO] == 1
    assert told[Simplicity.TENSOR_IN_NODE] == 0
    assert told[Simplicity.VIRTUAL_STAGES] == virtual


def test_close_calls_name_what_predictions_cannot_tell_and_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blind predictions leave all open; certain ones nothing, and then no trial is worth its steps."""
    blind(monkeypatch, BLIND)
    open_ = planned(asked(Choice.FASTEST)).selection
    assert open_ is not None
    assert 1 <= len(open_.close_calls) <= alternatives.MOST_CLOSE
    assert all(0.3 < call.chance_better <= 0.5 for call in open_.close_calls)
    assert open_.trial is not None
    assert open_.trial.alternative in [call.alternative for call in open_.close_calls]
    blind(monkeypatch, SHARP)
    certain = planned(asked(Choice.FASTEST)).selection
    assert certain is not None
    assert certain.close_calls == ()
    assert certain.trial is None


def test_a_trial_costs_the_steps_of_both() -> None:
    """Ten times its noise apart three steps tell; both configurations pay for these and for warming up."""
    found = planned(asked(Choice.FASTEST))
    call = alternatives.CloseCall(0, 0.8, 1.25, 0.5)
    trial = alternatives.cheapest_trial([call], (2.0, 4), found.alternatives)
    other = found.alternatives[0]
    assert trial is not None
    steps = trial.steps + trial.warm_up
    assert trial.steps == alternatives.FEWEST_STEPS
    assert trial.gpu_minutes == pytest.approx(
        steps * (2.0 * 4 + other.step_s * other.configuration.degrees.gpus) / 60
    )
    assert alternatives.cheapest_trial([], (2.0, 4), found.alternatives) is None
