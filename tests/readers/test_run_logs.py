"""Logs of training runs are read whatever framework printed them."""

from __future__ import annotations

import pytest

from cluster_models.calibration.training_run import MemoryCounter
from cluster_models.errors import InvalidInput
from cluster_models.units import GIB, MIB
from readers.run_logs import read_run_log

MEGATRON = (
    "[n1:0]:[Rank 0] (after 50 iterations) memory (MB) | allocated: 9909.07 | max allocated: 50277.15 "
    "| reserved: 53386.0 | max reserved: 53386.0\n"
    "[n2:3]: [2025-03-31 05:54:07] iteration       {n}/  242204 | consumed samples:        50400 | "
    "elapsed time per iteration (ms): {ms:.1f} | learning rate: 8.000000E-06 |\n"
)
NEMO = (
    "[default0]:Training epoch 0, iteration {n}/99 | lr: 9.8e-08 | global_batch_size: 4 | global_step: {n} | "
    "peak_memory_usage: 70833405952 | reduced_train_loss: 14.66 | train_step_timing in s: {s:.3f}\n"
)
TORCHTITAN = (
    "[rank0]:[titan] 2025-01-01 - INFO - \x1b[31mstep: {n:2}  \x1b[32mloss:  8.12345  \x1b[36mmemory: "
    "61.37GiB(77.60%)  \x1b[34mtps: {tps:,.0f}  \x1b[36mtflops: 300.12  \x1b[35mmfu: 30.1%\x1b[0m\n"
)
NANOTRON = (
    "[default0]:01/01/2025 [INFO|DP=0|PP=0|TP=0|n1]: iteration: {n} / 50 | consumed_tokens: 1.05M | "
    "elapsed_time_per_iteration_ms: {s:.3f}K | tokens_per_sec: 100K |\n"
)
DEEPSPEED = "steps: {n} loss: 5.5508 iter time (s): {s:.3f} samples/sec: 136.706\n"
TOKENS = 16384.0


@pytest.mark.parametrize(
    ("line", "peak", "counter"),
    [
        (MEGATRON, 53386.0 * MIB, MemoryCounter.RESERVED),
        (NEMO, 70833405952.0, MemoryCounter.ALLOCATED),
        (TORCHTITAN, 61.37 * GIB, MemoryCounter.RESERVED),
        (NANOTRON, None, MemoryCounter.DRIVER),
        (DEEPSPEED, None, MemoryCounter.DRIVER),
    ],
    ids=["megatron", "nemo", "torchtitan", "nanotron", "deepspeed"],
)
def test_steps_and_memory_are_found_without_the_warm_up(
    line: str, peak: float | None, counter: MemoryCounter
) -> None:
    """Twenty steps of 2 s after five slow ones."""
    steps = [30.0, 8.0, 4.0, 3.0, 3.0] + [2.0] * 20
    text = "".join(line.format(n=n, s=s, ms=1e3 * s, tps=TOKENS / s) for n, s in enumerate(steps))
    log = read_run_log("loading ...\n" + text + "done\n", tokens_per_step_per_gpu=TOKENS)
    assert log.times.median_s == pytest.approx(2.0, rel=1e-3)
    assert (log.times.steps, log.memory_counter) == (20, counter)
    assert log.peak_memory_bytes == (None if peak is None else pytest.approx(peak))


def test_percentiles_are_those_of_the_steps() -> None:
    """The middle of steps from 1 to 11 s is 6, and a tenth lies below 2."""
    text = "".join(DEEPSPEED.format(n=n, s=float(s)) for n, s in enumerate([99] * 5 + list(range(1, 12))))
    times = read_run_log(text, tokens_per_step_per_gpu=TOKENS).times
    assert (times.low_s, times.median_s, times.high_s) == (2.0, 6.0, 10.0)


def test_few_steps_lose_their_first_half() -> None:
    """Three steps are hardly more than warm-up."""
    text = "".join(DEEPSPEED.format(n=n, s=s) for n, s in enumerate([9.0, 2.0, 2.0]))
    assert read_run_log(text, tokens_per_step_per_gpu=TOKENS).times.median_s == 2.0


def test_a_log_without_steps_is_refused() -> None:
    """The remedy names the other way."""
    with pytest.raises(InvalidInput, match="--step-time"):
        read_run_log("nothing to see", tokens_per_step_per_gpu=TOKENS)
