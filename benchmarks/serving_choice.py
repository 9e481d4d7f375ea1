"""How well configurations are chosen: measured figures of the predicted best against the measured best.

A group is the rows of one model, GPU kind, generation, format, lengths and requests in flight.  Measured throughput
is that which times state, requests in flight over the time of an answer; nearly all rows have it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from benchmarks.serving_rows import MeasuredServing
from solver.serving.loads import FloatArray

LEAST_CHOICES: Final = 2
"""Configurations of a group of which one is chosen."""
NEAR: Final = 0.05
FAR: Final = 0.20


@dataclass(frozen=True, slots=True)
class Choice:
    """Regret of one kind of choice, as a share of the measured best.

    ``near``: share of the groups within 5 % of it, ``far``: worse than 20 %.
    """

    kind: str
    groups: int
    median_regret: float
    p90_regret: float
    near: float
    far: float


Kind = Callable[[MeasuredServing, FloatArray], float]
"""The figure of a row (higher is better) from its seconds per output token and to the first token."""


def _answer_s(run: MeasuredServing, figures: FloatArray) -> float:
    return float(figures[1] + (run.case.workload.output_tokens - 1) * figures[0])


def _tokens_per_s_per_gpu(run: MeasuredServing, figures: FloatArray) -> float:
    tokens = run.case.concurrency * run.case.workload.output_tokens
    return tokens / _answer_s(run, figures) / run.case.configuration.gpus


KINDS: Final[Mapping[str, tuple[bool, Kind]]] = MappingProxyType(
    {
        "most tokens/s of a GPU, any number of GPUs": (False, _tokens_per_s_per_gpu),
        "most tokens/s of a GPU, equal numbers of GPUs": (True, _tokens_per_s_per_gpu),
        "shortest answer, equal numbers of GPUs": (True, lambda run, figures: 1.0 / _answer_s(run, figures)),
        "least time per output token, equal numbers of GPUs": (True, lambda _, figures: 1.0 / float(figures[0])),
    }
)


def choices_of(runs: Sequence[MeasuredServing], predicted: FloatArray, measured: FloatArray) -> list[Choice]:
    """Regret of each kind of choice; figures (n, 2 or more): seconds per output token and to the first."""
    return [
        line
        for kind, (equal_gpus, figure) in KINDS.items()
        if (line := _choice(kind, _regrets(runs, predicted, measured, equal_gpus=equal_gpus, figure=figure)))
    ]


def _choice(kind: str, regrets: Sequence[float]) -> Choice | None:
    if not regrets:
        return None
    values = np.array(regrets)
    return Choice(
        kind,
        len(values),
        float(np.median(values)),
        float(np.quantile(values, 0.9)),
        float((values <= NEAR).mean()),
        float((values > FAR).mean()),
    )


def _regrets(
    runs: Sequence[MeasuredServing],
    predicted: FloatArray,
    measured: FloatArray,
    *,
    equal_gpus: bool,
    figure: Kind,
) -> list[float]:
    """By group with several configurations: 1 - measured figure of the predicted best / measured best."""
    groups: dict[tuple[object, ...], dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for run, guess, truth in zip(runs, predicted, measured, strict=True):
        case, load = run.case, run.case.workload
        if run.doubt or run.contradiction or run.mode in ("offline", "static batch"):
            continue
        if not np.isfinite([*guess[:2], *truth[:2]]).all():
            continue
        key = (
            case.architecture.name, case.gpu.name, load.engine.name, load.weights, load.input_tokens,
            load.output_tokens, case.concurrency, load.speculation, case.configuration.gpus if equal_gpus else 0,
        )  # fmt: skip
        groups[key][str(case.configuration)].append((figure(run, guess), figure(run, truth)))
    regrets = []
    for configurations in groups.values():
        if len(configurations) >= LEAST_CHOICES:
            middle = [
                (rows[0][0], float(np.median([value for _, value in rows]))) for rows in configurations.values()
            ]
            regrets.append(1.0 - max(middle)[1] / max(value for _, value in middle))
    return regrets
