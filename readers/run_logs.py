"""Step times and peak memory in the log of a training run, as frameworks print them.

Forms, with the sources that print them: Megatron-LM and Megatron-Bridge (``training.py``: ``elapsed time per
iteration (ms)``, ``report_memory``), NeMo 2 (``train_step_timing in s``, ``peak_memory_usage``), torchtitan
(``metrics.py``: ``memory``, ``tps``), nanotron (``elapsed_time_per_iteration_ms`` with K and M), DeepSpeed (``iter
time (s)``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Final

from cluster_models.calibration.training_run import MemoryCounter
from cluster_models.errors import InvalidInput
from cluster_models.units import GIB, MIB

WARM_UP: Final = 5
"""Printed steps at the start of a run that are left out, where at least as many are left."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_FACTORS: Final = {"": 1.0, "K": 1e3, "M": 1e6}
_MILLISECONDS: Final = re.compile(r"elapsed.time.per.iteration.{0,2}ms\)?\s*[:=]\s*([\d.]+)([KM]?)")
_SECONDS: Final = re.compile(r"(?:train_step_timing in s|iter time \(s\)):\s*([\d.]+)")
_RATE: Final = re.compile(r"\bstep:\s*\d+.*\btps:\s*([\d,]+)")
_PEAKS: Final = (
    (re.compile(r"\| max reserved:\s*([\d.]+)"), MIB, MemoryCounter.RESERVED),
    (re.compile(r"\bstep:\s*\d+.*\bmemory:\s*([\d.]+)GiB"), GIB, MemoryCounter.RESERVED),
    (re.compile(r"\bpeak_memory_usage:\s*(\d+)"), 1.0, MemoryCounter.ALLOCATED),
)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Steps of a run without its warm-up: median, 10th and 90th percentile in seconds, and how many."""

    median_s: float
    low_s: float
    high_s: float
    steps: int


@dataclass(frozen=True, slots=True)
class RunLog:
    """Figures of a log: steps, and the highest peak memory of any GPU with what counted it."""

    times: StepTimes
    peak_memory_bytes: float | None
    memory_counter: MemoryCounter


def read_run_log(text: str, *, tokens_per_step_per_gpu: float) -> RunLog:
    """The step times and peak memory in the log of a run.

    ``tokens_per_step_per_gpu``: tokens of a step over the GPUs of the run, for logs that print a rate.  Raises
    ``InvalidInput`` where no step is printed in a form that is known.
    """
    plain = _COLOURS.sub("", text)
    steps = [1e-3 * float(value) * _FACTORS[unit] for value, unit in _MILLISECONDS.findall(plain)]
    steps += [float(value) for value in _SECONDS.findall(plain)]
    if not steps:
        rates = [float(value.replace(",", "")) for value in _RATE.findall(plain)]
        steps = [tokens_per_step_per_gpu / rate for rate in rates if rate > 0]
    steps = [step for step in steps if step > 0]
    if not steps:
        remedy = "give the log of the rank that prints steps, or --step-time"
        raise InvalidInput("log", "", "has no step time in a form that is known", remedy)
    return RunLog(_summary(steps), *_peak(plain))


def _summary(steps: list[float]) -> StepTimes:
    kept = steps[WARM_UP:] if len(steps) >= 2 * WARM_UP else steps[len(steps) // 2 :]
    if len(kept) == 1:
        return StepTimes(kept[0], kept[0], kept[0], 1)
    tenths = quantiles(kept, n=10, method="inclusive")
    return StepTimes(median(kept), tenths[0], tenths[-1], len(kept))


def _peak(text: str) -> tuple[float | None, MemoryCounter]:
    """The highest peak in the first form that occurs."""
    for form, unit, counter in _PEAKS:
        if found := form.findall(text):
            return max(map(float, found)) * unit, counter
    return None, MemoryCounter.DRIVER
