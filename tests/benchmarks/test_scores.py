"""Scores of the choice inside sweeps, and rows that are not believed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measured import Measured, contradictions, flops_per_token, listed_doubts, with_doubts
from benchmarks.published import read_run
from benchmarks.scores import BELIEVED, grouped, missed_aims
from benchmarks.sweeps import summary, sweep_score, sweep_scores
from tests.benchmarks.test_published import ROW


def measured(**cells: str) -> Measured:
    """A look-alike row and its run."""
    row = ROW | cells
    return Measured(row, read_run(row))


def test_a_perfect_order_has_no_regret() -> None:
    """Whatever the scale of the predictions."""
    costs = np.array([3.0, 1.0, 2.0, 4.0])
    found = sweep_score("s", costs, 10 * costs)
    assert (found.regret, found.best_rank, found.spearman, found.kendall) == (0.0, 1, 1.0, 1.0)


def test_regret_is_what_our_pick_takes_longer() -> None:
    """The pick is the third best, 50 % slower; the best stands second among the predictions."""
    found = sweep_score("s", np.array([2.0, 2.5, 3.0, 4.0]), np.array([2.0, 3.0, 1.0, 4.0]))
    assert found.regret == pytest.approx(0.5)
    assert found.best_rank == 2
    assert found.spearman == pytest.approx(0.4)


@given(st.permutations(range(6)))
def test_kendall_counts_pairs(order: list[int]) -> None:
    """Concordant minus discordant over all pairs."""
    pairs = [(i, j) for i in range(6) for j in range(i)]
    agreeing = sum(1 if order[i] > order[j] else -1 for i, j in pairs)
    found = sweep_score("s", np.arange(1.0, 7.0), np.array(order, dtype=float))
    assert found.kendall == pytest.approx(agreeing / len(pairs))


def test_predictions_that_do_not_vary_rank_nothing() -> None:
    """Neither well nor badly, and the report stays free of NaN."""
    found = sweep_score("s", np.array([2.0, 1.0, 3.0, 4.0]), np.ones(4))
    assert (found.spearman, found.kendall) == (0.0, 0.0)


def test_only_sweeps_of_four_rows_count_and_tokens_and_gpus_are_divided_out() -> None:
    """A row with twice the batch and twice the time is as good."""
    rows = [
        measured(id=str(i), sweep_id="a", global_batch=str(128 * (1 + i)), iter_time_s=str(2.0 * (1 + i)))
        for i in range(4)
    ]
    rows += [measured(id=f"b{i}", sweep_id="b") for i in range(3)]
    predicted = {each.run.name: each.seconds for each in rows}
    (found,) = sweep_scores(rows, predicted)
    assert found.rows == 4
    assert found.regret == pytest.approx(0.0)
    assert summary([]) is None


def test_doubtful_rows_are_scored_apart() -> None:
    """The families and the second line leave them out."""
    good, bad = measured(id="g"), Measured(measured(id="b").row, measured(id="b").run, doubt="told so")
    scores = {score.group: score for score in grouped([good, bad], [0.02, 1.0])}
    assert scores["all"].rows == 2
    assert scores[BELIEVED].mean_absolute == pytest.approx(0.02)
    assert scores["doubtful rows"].rows == 1
    assert missed_aims(list(scores.values()), [], None, rejected=0.06, oom_missed=1) == [
        "runs that ran but are rejected: 6.0% of 5%",
        "runs out of memory that are not caught: 1 of 0",
    ]


def test_figures_that_disagree_cast_doubt() -> None:
    """Printed FLOP/s three times what the step time allows; a little off is fine."""
    run = measured().run
    tokens = run.workload.tokens_per_step / run.configuration.degrees.gpus
    honest = flops_per_token(run)[0] * tokens / 2.0 / 1e12
    fair, doubtful = with_doubts(
        [measured(tflops_per_gpu=str(1.05 * honest)), measured(tflops_per_gpu=str(3 * honest))]
    )
    assert fair.doubt == ""
    assert "printed FLOP/s" in doubtful.doubt


def test_tokens_per_second_must_fit_the_step_time() -> None:
    """The same source cannot print both."""
    (doubtful,) = with_doubts([measured(tokens_per_s_per_gpu="16384")])
    assert "tokens per second" in doubtful.doubt


def test_warnings_of_the_source_count() -> None:
    """A source that doubts its own row, or has runs that vary by half."""
    noisy, suspicious, calm = with_doubts(
        [
            measured(notes="authors warn of up to 50% run-to-run variation"),
            measured(notes="suspicious: slower than the day before"),
            measured(notes="up to 5% run-to-run variation"),
        ]
    )
    assert "50 %" in noisy.doubt
    assert suspicious.doubt
    assert not calm.doubt


def test_a_release_between_two_alike_contradicts_them() -> None:
    """One configuration in three releases, the middle one twice as slow."""
    times = {"25.09": "2.0", "25.11": "4.0", "26.02": "1.9"}
    rows = [
        measured(id=month, source=f"NVIDIA-NeMo/Megatron-Bridge pages, NeMo {month}", iter_time_s=seconds)
        for month, seconds in times.items()
    ]
    assert list(contradictions(rows)) == ["25.11"]


def test_listed_rows_say_why() -> None:
    """No row is left out without a reason."""
    assert listed_doubts()
    assert all(len(reason) > 20 for reason in listed_doubts().values())


def test_what_leaves_no_headroom_is_picked_last() -> None:
    """The fastest by prediction would fill the GPU, so that the next one is our pick."""
    costs = np.array([5.0, 1.0, 2.0, 3.0])
    found = sweep_score("s", costs, np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, False, False, False]))
    assert found.regret == 0.0
    assert found.best_rank == 1
