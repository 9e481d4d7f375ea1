"""Rollouts: dealing, the step-by-step simulation against its formula, and floors that no plan beats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_models.serving.requests import Lengths
from cluster_models.serving.workload import Speculation, Worker
from solver.reinforcement.parts import served_policy
from solver.reinforcement.rollout import Batch, drawn_batch, rollout_floors
from solver.serving.simulation import simulate_trace
from solver.serving.step_tables import step_tables
from tests.solver.reinforcement.cases import problem, workload


def test_samples_of_a_prompt_stay_together_and_share_its_prefill() -> None:
    """Two replicas get two prompts each; of more replicas than prompts each gets samples, and prefills for them."""
    batch = Batch(np.repeat([10.0, 20.0, 30.0, 40.0], 3), np.arange(12.0) + 1.0, 3)
    assert batch.dealt(2).tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]
    assert batch.trace(np.flatnonzero(batch.dealt(2) == 1)).cached_tokens == (0, 19, 19, 0, 39, 39)
    alone = batch.dealt(6)
    assert alone.tolist() == [0, 1, 2, 3, 4, 5] * 2
    assert batch.trace(np.flatnonzero(alone == 0)).cached_tokens == (0, 0)


def test_a_batch_has_every_length_as_often_as_its_share_says() -> None:
    """Half, four tenths and a tenth of 60 responses; prompts repeat for each of their samples."""
    batch = drawn_batch(workload(prompts=20, samples=3, updates=1))
    lengths, counts = np.unique(batch.responses, return_counts=True)
    assert dict(zip(lengths.tolist(), counts.tolist(), strict=True)) == {100.0: 30, 400.0: 24, 1500.0: 6}
    assert (batch.prompts.reshape(20, 3) == batch.prompts[::3, None]).all()


@pytest.mark.parametrize("drafts", [None, Speculation(3, 2.0)])
def test_a_closed_batch_ends_when_its_steps_add_up(drafts: Speculation | None) -> None:
    """One replica that holds all: a prefill, then a decode step for each token, of those that still run.

    With drafts a step is one that verifies them, for the tokens that stay.
    """
    asked = problem(1, responses=Lengths((40.0, 90.0, 333.0), (0.5, 0.3, 0.2)))
    asked = replace(
        asked, workload=replace(asked.workload, rollout=replace(asked.workload.rollout, speculation=drafts))
    )
    batch = drawn_batch(asked.workload)
    floors = rollout_floors(asked, served_policy(asked), batch)
    fast = next(each for each in floors.fast if each.worker == Worker(2))
    found = simulate_trace(fast.arrays, fast.rates, batch.trace(np.arange(len(batch.prompts)))).end_s.max()
    trace = batch.trace(np.arange(len(batch.prompts)))
    inputs, outputs = batch.prompts, batch.responses
    held = float((outputs * (inputs + outputs / 2.0)).sum() / outputs.sum())
    tables = step_tables(fast.arrays, fast.rates, context=held, longest=float(inputs.max()))
    expected = tables.prefill(list(zip(trace.cached_tokens, trace.input_tokens, strict=True)))
    for token in range(0, int(outputs.max()) - 1, 1 if drafts is None else 3):
        running = outputs - 1.0 > token
        expected += tables.decode(int(running.sum()), float((inputs + token)[running].mean()))
    assert found == pytest.approx(expected + float(fast.rates.request_s[0]), rel=0.01)


def test_more_gpus_never_raise_the_floor() -> None:
    """The floor falls with GPUs, to what the longest response needs alone; none fits nowhere."""
    asked = problem(4)
    floors = rollout_floors(asked, served_policy(asked), drawn_batch(asked.workload))
    least = [floors.least_s(gpus) for gpus in (1, 2, 4, 8)]
    assert least == sorted(least, reverse=True)
    assert least[0] > 1.2 * least[-1]
    assert floors.least_s(0) == np.inf
    in_order = list(floors.in_order(8))
    assert [seconds for seconds, _ in in_order] == sorted(seconds for seconds, _ in in_order)
    assert len({worker for _, worker in in_order}) == len(in_order)
