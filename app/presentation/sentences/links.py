"""Sentences about measurements of links and what to doubt about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from app.presentation.sentences.formats import Words, examples
from cluster_models.units import GBYTE, MIB


def _slow_links(
    *,
    pairs: int,
    share: float,
    fallbacks: int,
    sources: Sequence[str],
    destinations: Sequence[str],
    bytes_per_s: Sequence[float],
    usual_bytes_per_s: Sequence[float],
    flows: Sequence[float],
) -> str:
    lead = "1 node pair reaches" if pairs == 1 else f"{pairs:,} node pairs reach"
    shown = tuple(
        f"{a} to {b} {rate / GBYTE:.3g} GB/s where {usual / GBYTE:.3g} is usual "
        f"({'1 flow' if count == 1 else f'{count:g} flows'})"
        for a, b, rate, usual, count in zip(
            sources, destinations, bytes_per_s, usual_bytes_per_s, flows, strict=True
        )
    )
    tcp = f" {fallbacks} of them may have fallen back to TCP." if fallbacks else ""
    return (
        f"{lead} less than {100 * share:.0f} % of what others of the same class do at the same load: "
        f"{examples(shown, pairs)}.{tcp} Measure them again; if they stay slow, look at their "
        "cables, cards and routes."
    )


def _oversubscribed(
    *,
    label: str,
    few_flows: float,
    many_flows: float,
    inside_bytes_per_s: float,
    across_bytes_per_s: float,
    node_bytes_per_s: float,
) -> str:
    return (
        f"With {many_flows:g} flows per node, pairs in one {label} reach {inside_bytes_per_s / GBYTE:.3g} GB/s per "
        f"flow and pairs in two only {across_bytes_per_s / GBYTE:.3g}, though with {few_flows:g} they were nearly "
        f"alike: the uplinks of a {label} are probably oversubscribed.  One node alone gets an estimated "
        f"{node_bytes_per_s / GBYTE:.3g} GB/s out of it, and several may have to share that: measure with "
        "several pairs active, or state the uplinks under switches."
    )


def _only_small(*, pairs: int, of: int, message_bytes: float) -> str:
    return (
        f"On {pairs:,} of {of:,} node pairs only small messages were measured (below {message_bytes / MIB:g} MiB a "
        "flow), as by a test that ended early: larger ones are estimated from the class of the pair."
    )


def _never_measured(*, pairs: int, of: int) -> str:
    return (
        f"{pairs:,} of {of:,} node pairs ({100 * pairs / of:.0f} %) were never measured: they are estimated from "
        "their class."
    )


def _estimated(*, links: int, of: int, flows: int, pairs: tuple[str, ...]) -> str:
    return (
        f"{links:,} of the {of:,} directed links that the plan uses were not measured with {flows} flows at once "
        f"and are estimated: {examples(pairs, links)}."
    )


LINKS: Final[Mapping[str, Words]] = {
    "uneven_directions": "{source} to {destination} is {ratio:.1f} times faster than back ({flows:g} flows per "
    "node): check the cards and routes of both nodes, or measure again.",
    "more_uneven_directions": "{count} more pairs are as uneven between their two directions.",
    "above_data_sheet": "{source} to {destination} was measured at {bytes_per_s:gbytes} in each of {flows} flows, "
    "above the {limit_bytes_per_s:gbytes} that the stated hardware can carry: correct the nodes' NICs or NVLink "
    "domain.",
    "more_above_data_sheet": "{count:,} more pairs were measured above their data sheet.",
    "slow_links": _slow_links,
    "oversubscribed_uplinks": _oversubscribed,
    "nothing_measured": "No pair of nodes was measured: every link is estimated from the data sheet.",
    "only_small_messages": _only_small,
    "failed_tests": "{pairs:,} of {of:,} node pairs have failed tests ({succeeded:,} of them also succeeded in "
    "others): failed counts as unknown.",
    "never_measured": _never_measured,
    "node_without_measurement": "Node {node} has no measurement at all: all its links are estimated.",
    "more_nodes_without_measurement": "{count} more nodes have no measurement at all.",
    "estimated_links": _estimated,
    "plan_crosses_pair": "the plan's {uses:and} traffic crosses it, taken at {bytes_per_s:gbytes} a GPU",
    "class_unmeasured": "no pair like it was measured: {link_class}",
    "pair_could_win": "at the {bytes_per_s:gbytes} a GPU of its cards it would beat the plan's slowest link",
    "pair_taken_at": "taken at {bytes_per_s:gbytes} a GPU",
    "pair_test_failed": "a test of it failed",
    "pair_stands_out": "reaches {share:percent} of what others of its class do",
    "pair_half_measured": "not measured in both directions with {flows} GPUs of each node",
    "pair_unmeasured": "never measured",
    "pair_measured_long_ago": "last measured {days} days ago",
    "pair_directions_differ": "one direction is more than {ratio:g} times as slow as the other",
    "pair_measured_lately": "measured lately",
    "pair_measured_undated": "measured, nobody knows when",
}
