"""Routing statistics as pages and terminal report them: skew of each workload, and how alike workloads are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from app.experts.statistics import RoutingStatistics, WorkloadStatistics
from app.presentation.figures import NOT_KNOWN, count, plural, spans

_ALIKE: Final = ((0.9, "are nearly the same"), (0.7, "are much alike"), (0.4, "differ"), (-2.0, "differ widely"))
_PLAN_FOR_ALL: Final = 0.9
_MOST_PAIRS: Final = 8


@dataclass(frozen=True, slots=True)
class WorkloadLine:
    """One workload: ``median`` and ``worst`` are of the heaviest expert of a layer over the mean one."""

    name: str
    layers: str
    selections: str
    median: str
    worst: str
    pairs: str


@dataclass(frozen=True, slots=True)
class RoutingReport:
    """Report on statistics.

    ``likeness`` in words; ``pairs``: correlation and names, the least alike first; ``more_pairs`` are not listed.
    """

    workloads: tuple[WorkloadLine, ...]
    likeness: str
    pairs: tuple[tuple[str, str], ...]
    more_pairs: int


def routing_report(statistics: RoutingStatistics) -> RoutingReport:
    """The report of counted routing."""
    pairs = _pairs(statistics)
    return RoutingReport(
        workloads=tuple(map(_workload_line, statistics.workloads)),
        likeness=_likeness(statistics, pairs),
        pairs=tuple((f"{value:.2f}", f"{one} and {other}") for value, one, other in pairs[:_MOST_PAIRS]),
        more_pairs=max(0, len(pairs) - _MOST_PAIRS),
    )


def _workload_line(each: WorkloadStatistics) -> WorkloadLine:
    worst = max(each.hottest)
    layer = each.layers[each.hottest.index(worst)]
    pairs = [
        f"{what} at {plural(layers, 'layer')}"
        for what, layers in (
            ("to the next layer", each.transition_layers),
            ("selected together", each.coactivation_layers),
        )
        if layers
    ]
    counted = each.selections >= 10 * len(each.layers)
    return WorkloadLine(
        name=each.name,
        layers=spans(each.layers),
        selections=count(each.selections) if counted else NOT_KNOWN,
        median=f"{median(each.hottest):.1f}",
        worst=f"{worst:.1f} (layer {layer})",
        pairs=", ".join(pairs) or "none",
    )


def _pairs(found: RoutingStatistics) -> list[tuple[float, str, str]]:
    names = [each.name for each in found.workloads]
    pairs = [
        (value, names[one], names[other])
        for one in range(len(names))
        for other in range(one + 1, len(names))
        if (value := found.correlations[one][other]) is not None
    ]
    return sorted(pairs)


def _likeness(found: RoutingStatistics, pairs: Sequence[tuple[float, str, str]]) -> str:
    if len(found.workloads) == 1:
        return "There is one workload; add others that run, since a map for one may serve another badly."
    if not pairs:
        return "The workloads have no layer in common, so nothing tells how alike they are."
    value, one, other = pairs[0]
    words = next(words for least, words in _ALIKE if value >= least)
    least = "" if len(pairs) == 1 else "Least alike: "
    sentence = f"{least}{one} and {other} {words} (correlation {value:.2f})."
    if value < _PLAN_FOR_ALL:
        return f"{sentence} A map for one would serve the other badly: plan for all that run."
    return f"{sentence} A map for one serves the others nearly as well."
