"""Measured rows that contradict arithmetic or one another, told by what they state and by data sheets alone.

Two bounds hold for whatever engine, model and GPU, so no prediction enters:

- **peak**: requests/s x 2 FLOPs x parameters that are active in the layers x tokens of a request stay below the
  dense peak of all its GPUs.  Requests/s are the stated throughput over the answer's tokens, else those in flight
  over the stated times of a request (Little's law).
- **turns**: of two runs of one configuration under the loads C < K, the time per output token of the second lies
  between that of the first (a step with more sequences reads no less) and K / C times that (whoever serves C at
  once can serve K in turns).

Times repeat to a few percent; a third is allowed.  Which of a sweep's rows is wrong cannot be told, so none of a
sweep that breaks the second bound is believed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

from benchmarks.rows import text

if TYPE_CHECKING:
    from benchmarks.serving_rows import MeasuredServing

ALLOWED: Final = 4.0 / 3.0
PEAK: Final = "needs more FLOP/s than its GPUs have"
TURNS: Final = "times per token of its sweep contradict one another"
_CELLS: Final = ("source", "model", "gpu", "engine+version", "precision", "kv_precision")


@dataclass(frozen=True, slots=True)
class Contradicted:
    """Rows of one engine generation that contradict something; ``believed_else`` of them state all that decides."""

    engine: str
    reason: str
    rows: int
    believed_else: int


def contradictions(runs: Sequence[MeasuredServing]) -> list[str]:
    """A contradiction for each run; empty where there is none."""
    found = [PEAK if peak_share(run) > 1.0 else "" for run in runs]
    sweeps: dict[object, list[int]] = defaultdict(list)
    for number, run in enumerate(runs):
        if run.tpot_s is not None and not found[number]:
            sweeps[_sweep_of(run)].append(number)
    for numbers in sweeps.values():
        points = sorted((runs[each].case.concurrency, runs[each].tpot_s or 0.0) for each in numbers)
        if any(map(_contradict, *zip(*combinations(points, 2), strict=True)) if len(points) > 1 else ()):
            for number in numbers:
                found[number] = TURNS
    return found


def peak_share(run: MeasuredServing) -> float:
    """Dense FLOP/s of the layers over the peak of the run's GPUs, 0 where the row says too little."""
    case, requests_per_s = run.case, 0.0
    load, gpus = case.workload, case.configuration.gpus
    if run.output_tok_s_per_gpu is not None:
        requests_per_s = run.output_tok_s_per_gpu * gpus / load.output_tokens
    elif run.tpot_s is not None and run.ttft_s is not None:
        requests_per_s = case.concurrency / (run.ttft_s + (load.output_tokens - 1.0) * run.tpot_s)
    shape = case.architecture
    active = shape.active_parameters() - shape.embedding_parameters() - shape.head_parameters()
    flops = 2.0 * active * (load.input_tokens + load.output_tokens)
    return requests_per_s * flops / (gpus * load.weights.peak_flops(case.gpu))


def contradicted(runs: Sequence[MeasuredServing]) -> list[Contradicted]:
    """How many rows of which engine generation contradict what."""
    groups: dict[tuple[str, str], list[MeasuredServing]] = defaultdict(list)
    for run in runs:
        if run.contradiction:
            groups[run.case.workload.engine.name, run.contradiction].append(run)
    return [
        Contradicted(engine, reason, len(rows), sum(not run.doubt for run in rows))
        for (engine, reason), rows in sorted(groups.items())
    ]


def _sweep_of(run: MeasuredServing) -> object:
    load = run.case.workload
    cells = tuple(text(run.row, name) for name in _CELLS)
    return cells, run.case.configuration, load.input_tokens, load.output_tokens, load.speculation


def _contradict(first: tuple[float, float], second: tuple[float, float]) -> bool:
    """Whether the time of the second, under as much load or more, is out of bounds."""
    ratio, growth = second[0] / first[0], second[1] / first[1]
    return not 1.0 / ALLOWED <= growth <= ratio * ALLOWED
