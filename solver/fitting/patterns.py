"""Missing mechanisms: settings by which the errors of runs differ, though they were fitted.

For every setting the runs are cut in two where their errors differ most; the cut that separates best is a pattern
if chance would hardly make it (Mann and Whitney's test, with Bonferroni's correction for all cuts that were tried)
and if it matters.  The errors lose it, and what is left is searched again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.calibration.training_run import TrainingRun
from cluster_models.training.workload import Recompute
from solver.candidates import BoolArray, FloatArray
from solver.fitting.report import Pattern

MOST_PATTERNS: Final = 3
FEWEST: Final = 3
"""Runs on either side of a cut."""
BY_CHANCE: Final = 0.05
"""A pattern that chance makes more often than this is none."""
MATTERS: Final = math.log(1.1)
"""Nor is one by which steps differ less."""
SAME: Final = 1e-6
"""Cuts that separate equally well: the one is taken on whose upper side steps are slower."""
MOST_CUTS: Final = 12
"""Cuts of one setting, evenly spread over its values."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with its ``value`` for a run, and the ``mechanism`` to look at where errors differ by it.

    ``choice``: the value is 1 where what ``name`` says holds, else 0.
    """

    name: str
    value: Callable[[TrainingRun], float]
    mechanism: str
    choice: bool = False


Cut = tuple[Setting, float, BoolArray]
"""A setting, a value of it, and which runs (r,) have as much or more."""


def _micro_batches(run: TrainingRun) -> float:
    return float(run.configuration.micro_batches(run.workload.global_batch))


SETTINGS: Final[Sequence[Setting]] = (
    Setting(
        "nodes",
        lambda run: math.ceil(run.configuration.degrees.gpus / run.gpus_per_node),
        "the network between nodes: contention, the latency of long rings, slow nodes",
    ),
    Setting(
        "data ranks",
        lambda run: run.configuration.degrees.data,
        "the exchange of gradients and parameters: what hides it, its latency, copies of shards",
    ),
    Setting(
        "tensor ranks",
        lambda run: run.configuration.degrees.tensor,
        "tensor parallel collectives: their bandwidth, their launches on the host, ranks that come late",
    ),
    Setting(
        "pipeline stages",
        lambda run: run.configuration.degrees.pipeline,
        "transfers between stages: whether they block or stall the host, and how layers are spread",
    ),
    Setting(
        "context ranks",
        lambda run: run.configuration.degrees.context,
        "the exchange of keys and values between context ranks",
    ),
    Setting(
        "expert ranks",
        lambda run: run.configuration.degrees.expert,
        "dispatch and combination of tokens, and how evenly experts are loaded",
    ),
    Setting(
        "sequences of a micro-batch",
        lambda run: run.configuration.micro_batch,
        "the length of kernels: with few tokens launches on the host, with many memory traffic",
    ),
    Setting(
        "micro-batches",
        _micro_batches,
        "work that is done for each micro-batch, against work once a step, as the optimizer's",
    ),
    Setting("tokens of a sequence", lambda run: run.workload.sequence_length, "the kernels of attention"),
    Setting("elements of the hidden state", lambda run: run.architecture.hidden, "the rate of matrix products"),
    Setting("layers", lambda run: run.architecture.layers, "what the host does for each layer"),
    Setting(
        "experts",
        lambda run: float(run.architecture.experts is not None),
        "routing and grouped products",
        choice=True,
    ),
    Setting(
        "full recomputation",
        lambda run: float(run.configuration.recompute is Recompute.FULL),
        "what is recomputed",
        choice=True,
    ),
    Setting(
        "selective recomputation",
        lambda run: float(run.configuration.recompute is Recompute.SELECTIVE),
        "what is recomputed",
        choice=True,
    ),
)


def patterns_of(runs: Sequence[TrainingRun], errors: FloatArray) -> tuple[Pattern, ...]:
    """The settings by which the ``errors``, log(predicted / measured), differ most, the strongest first."""
    slower = -np.asarray(errors, dtype=np.float64)
    slower = slower.copy()
    columns = _columns(runs)
    found: list[Pattern] = []
    for _ in range(MOST_PATTERNS):
        cuts = [
            (setting, threshold, column >= threshold)
            for setting, column in columns.items()
            for threshold in _thresholds(column)
        ]
        if not cuts:
            break
        chances = [chance_of(slower, upper) for _, _, upper in cuts]
        least = min(chances)
        setting, threshold, upper = min(
            (cut for cut, chance in zip(cuts, chances, strict=True) if chance <= least * (1.0 + SAME)),
            key=lambda cut: float(np.median(slower[~cut[2]]) - np.median(slower[cut[2]])),
        )
        high, low = float(np.median(slower[upper])), float(np.median(slower[~upper]))
        if least * len(cuts) > BY_CHANCE or abs(high - low) < MATTERS:
            break
        found.append(_pattern(setting, threshold, upper, (high, low), _alike(setting, upper, cuts)))
        slower[upper] -= high
        slower[~upper] -= low
    return tuple(found)


def _alike(setting: Setting, upper: BoolArray, cuts: Sequence[Cut]) -> tuple[str, ...]:
    """Other settings that part the runs in the same two."""
    same = [other.name for other, _, cut in cuts if (cut == upper).all() or (cut == ~upper).all()]
    return tuple(name for name in dict.fromkeys(same) if name != setting.name)


def _pattern(
    setting: Setting, threshold: float, upper: BoolArray, middles: tuple[float, float], alike: tuple[str, ...]
) -> Pattern:
    return Pattern(
        setting=setting.name,
        threshold=threshold,
        runs=int(upper.sum()),
        ratio=math.exp(middles[0]),
        other_ratio=math.exp(middles[1]),
        mechanism=setting.mechanism,
        choice=setting.choice,
        alike=alike,
    )


def _columns(runs: Sequence[TrainingRun]) -> Mapping[Setting, FloatArray]:
    """The settings with their values (r,): choices of precision, sharding and GPU kind are found in the runs."""
    settings = [
        *SETTINGS,
        *_choices(
            runs,
            lambda run: f"sharding {run.configuration.sharding}",
            "what this sharding gathers and scatters, and when",
        ),
        *_choices(
            runs,
            lambda run: f"precision {run.workload.precision}",
            "the rate of products in this format, and casts to it",
        ),
        *_choices(runs, lambda run: run.gpu.name, "this GPU kind, whose rates a hardware profile tells"),
    ]
    return {each: np.array([float(each.value(run)) for run in runs]) for each in settings}


def _choices(runs: Sequence[TrainingRun], name_of: Callable[[TrainingRun], str], mechanism: str) -> list[Setting]:
    """A setting for each name that occurs."""

    def setting(name: str) -> Setting:
        return Setting(name, lambda run: float(name_of(run) == name), mechanism, choice=True)

    return [setting(name) for name in sorted({name_of(run) for run in runs})]


def _thresholds(column: FloatArray) -> list[float]:
    """Values that leave enough runs on both sides."""
    cuts = [
        value
        for value in np.unique(column)[1:].tolist()
        if min((column >= value).sum(), (column < value).sum()) >= FEWEST
    ]
    if not cuts:
        return []
    chosen = np.unique(np.linspace(0, len(cuts) - 1, MOST_CUTS).round().astype(int))
    return [float(cuts[i]) for i in chosen]


def chance_of(slower: FloatArray, upper: BoolArray) -> float:
    """Probability that errors (r,) part so by chance into ``upper`` (r,) and the others."""
    # Imported late: it takes a third of a second, and a service that fits nothing has no use for it.
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(slower[upper], slower[~upper]).pvalue)
