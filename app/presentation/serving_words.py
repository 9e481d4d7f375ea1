"""Words and figures of serving that several reports share."""

from __future__ import annotations

from typing import Final

from app.presentation.figures import count, percent, seconds
from cluster_models.serving.figures import Interval
from cluster_models.serving.goal import ServingObjective
from cluster_models.serving.replicas import Phase
from cluster_models.serving.workload import ServingConfiguration

PHASES: Final = {Phase.BOTH: "prefill and decode", Phase.PREFILL: "prefill", Phase.DECODE: "decode"}
OBJECTIVES: Final = {
    ServingObjective.THROUGHPUT: "output tokens a second",
    ServingObjective.GOODPUT: "output tokens a second within the limits",
    ServingObjective.GPUS: "number of GPUs",
    ServingObjective.COST: "list price an hour",
    ServingObjective.POWER: "power",
    ServingObjective.ENERGY: "power drawn, estimated",
}
FIRST_TOKEN: Final = "time to first token"  # noqa: S105 - a latency's name
TOKEN: Final = "time per output token"  # noqa: S105 - a latency's name

ANSWER: Final = "time to last token"


def statistic_words(share: float | None) -> str:
    """Statistic that limits hold for: "mean" or "90th percentile"."""
    return "mean" if share is None else f"{ordinal(100 * share)} percentile"


def ordinal(number: float) -> str:
    """An ordinal number in digits: 90th, 99.9th, 51st."""
    shown = f"{number:.6g}"
    ending = "th" if shown[-2:-1] == "1" or "." in shown else {"1": "st", "2": "nd", "3": "rd"}.get(shown[-1], "th")
    return shown + ending


def range_words(interval: Interval) -> str:
    """The range of a latency: "350 ms to 480 ms"."""
    return f"{seconds(interval.low)} to {seconds(interval.high)}"


def rate_words(interval: Interval) -> str:
    """A throughput with its range."""
    return f"{count(interval.value)} tokens/s ({count(interval.low)} to {count(interval.high)})"


def objective_words(objective: ServingObjective, value: float) -> str:
    """A value of the objective with its unit."""
    match objective:
        case ServingObjective.COST:
            return f"{value:,.2f} USD an hour"
        case ServingObjective.GPUS:
            return f"{value:,.4g} GPUs"
        case ServingObjective.POWER | ServingObjective.ENERGY:
            return f"{value / 1000:,.4g} kW"
    return f"{count(value)} tokens/s"


def configuration_words(configuration: ServingConfiguration) -> str:
    """The workers of a group: "tp4", or "prefill 2 x tp4, decode tp8"."""
    pools = configuration.pools
    shown = [str(pool.worker) if pool.replicas == 1 else str(pool) for pool in pools]
    return shown[0] if len(pools) == 1 else f"prefill {shown[0]}, decode {shown[1]}"


def share_words(share: float) -> str:
    """A share of 1 without digits that say nothing."""
    return percent(share, places=0 if abs(100 * share - round(100 * share)) < 0.05 else 1)
