"""How often parts of a cluster fail, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.presentation.figures import duration, plural
from app.presentation.recovery import moment
from app.services.health.reliability import CONFIDENCE, KindReliability, Reliability
from cluster_models.health.events import EntityKind

_KINDS: Final[Mapping[EntityKind, str]] = {
    EntityKind.NODE: "whole nodes",
    EntityKind.GPU: "GPUs",
    EntityKind.NIC: "network cards",
    EntityKind.LINK: "links",
    EntityKind.SWITCH: "switches",
}


LEAST_NODE_DAYS: Final = 10.0
"""Below this a rate would say more of the moment when the cluster was stored than of its nodes."""


def reliability_figures(found: Reliability) -> tuple[tuple[str, str], ...]:
    """Each figure with its name; the rate as ``meshwright resilience --rate`` takes it."""
    per_thousand, low, high = (
        f"{1000 * rate:.3g}"
        for rate in (
            found.failures_per_node_day,
            found.failures_per_node_day_low,
            found.failures_per_node_day_high,
        )
    )
    if found.node_days < LEAST_NODE_DAYS:
        per_thousand, range_ = "not known yet", f"a rate needs {LEAST_NODE_DAYS:.0f} node-days"
    else:
        range_ = f"{low} to {high} with {100 * CONFIDENCE:.0f} %"
    figures = [
        ("since", moment(found.since)),
        ("failures of nodes", f"{found.failures} in {found.node_days:,.1f} node-days"),
        ("per 1,000 nodes a day", f"{per_thousand} ({range_})"),
    ]
    figures += [(_KINDS[each.kind], _kind_words(each)) for each in found.kinds if each.outages]
    if found.worst:
        figures.append(("failed most often", ", ".join(f"{node} {count}" for node, count in found.worst)))
    return tuple(figures)


def _kind_words(each: KindReliability) -> str:
    words = plural(each.outages, "outage")
    if each.between_s is not None:
        words += f", one every {duration(each.between_s)}"
    if each.repair_s is not None:
        words += f"; back after {duration(each.repair_s)} on average ({each.repaired} of them)"
    return words
