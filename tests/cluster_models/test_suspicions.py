"""Measurements that look wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.cluster.measurements import Collective, Direction
from cluster_models.cluster.switches import Switch
from cluster_models.links.oversubscription import shared_uplinks
from cluster_models.links.suspicions import SLOW_LINKS, suspicions
from cluster_models.remarks import Remark, remark
from tests.cluster_models.clusters import host, sample, snapshot

NODES = tuple(host(name) for name in "abcd")
ALL_PAIRS = ("ab", "ac", "ad", "bc", "bd", "cd")


def test_a_clean_sweep_raises_no_suspicion() -> None:
    """Every pair measured alike, nothing above its cards: nothing to say."""
    assert suspicions(snapshot(NODES, [sample(*pair, 40) for pair in ALL_PAIRS])) == ()


def test_an_uneven_pair_is_named() -> None:
    """Twice as fast one way as back, and neither way far from the others."""
    samples = [sample(*pair, 40) for pair in ALL_PAIRS[1:]]
    samples += [
        sample("a", "b", 50.5, direction=Direction.FORWARD),
        sample("b", "a", 25, direction=Direction.FORWARD),
    ]
    doubt = remark("uneven_directions", source="a", destination="b", ratio=50.5 / 25, flows=1.0)
    assert suspicions(snapshot(NODES, samples)) == (doubt,)


def test_bandwidth_above_the_cards_is_named() -> None:
    """Eight flows of 60 GB/s do not fit eight cards of 50."""
    samples = [sample(*pair, 40) for pair in ALL_PAIRS]
    samples.append(sample("a", "b", 60, collective=Collective.POINT_TO_POINT, ranks=8))
    (doubt,) = suspicions(snapshot(NODES, samples))
    assert (doubt.code, doubt.figures["limit_bytes_per_s"]) == ("above_data_sheet", 50e9)


def test_a_link_ten_times_below_its_class_smells_of_tcp() -> None:
    """1.5 GB/s among links of 40."""
    samples = [sample(*pair, 40) for pair in ALL_PAIRS[1:]] + [sample("a", "b", 1.5)]
    (slow,) = (doubt for doubt in suspicions(snapshot(NODES, samples)) if doubt.code == SLOW_LINKS)
    assert (slow.figures["sources"], slow.figures["destinations"], slow.figures["fallbacks"]) == (("a",), ("b",), 1)


def test_unmeasured_pairs_and_silent_nodes_are_counted() -> None:
    """Only a-b was measured: five of six pairs are estimated, c and d are unknown, one test failed."""
    assert suspicions(snapshot(NODES, [sample("a", "b"), sample("a", "c", failed=True)])) == (
        remark("failed_tests", pairs=1, of=6, succeeded=0),
        remark("never_measured", pairs=5, of=6),
        remark("node_without_measurement", node="c"),
        remark("node_without_measurement", node="d"),
    )


def test_no_measurement_at_all_is_one_doubt() -> None:
    """Nothing is listed node by node when nothing is known."""
    assert suspicions(snapshot(NODES)) == (remark("nothing_measured"),)
    assert suspicions(snapshot(NODES[:1])) == ()


def test_long_lists_are_cut_short() -> None:
    """Twenty silent nodes make five doubts and a count."""
    nodes = [host(f"n{index}") for index in range(22)]
    last = suspicions(snapshot(nodes, [sample("n0", "n1")]))[-1]
    assert last == remark("more_nodes_without_measurement", count=15)


def _leaves(across_of_eight: float) -> tuple[Remark, ...]:
    """Suspicions of two leaves, alike with one GPU per node; ``across_of_eight`` GB/s between them with all."""
    nodes = [host(name, leaf=leaf) for name, leaf in zip("abcd", "xxyy", strict=True)]
    samples = [sample(*pair, 24, collective=Collective.POINT_TO_POINT) for pair in ALL_PAIRS]
    samples += [
        sample(
            *pair, 40 if pair in {"ab", "cd"} else across_of_eight, collective=Collective.POINT_TO_POINT, ranks=8
        )
        for pair in ALL_PAIRS
    ]
    return suspicions(snapshot(nodes, samples))


def test_leaves_that_only_many_flows_slow_down_look_oversubscribed() -> None:
    """40 GB/s per flow in a leaf and 8 across: one node alone gets 64 out of it."""
    (doubt,) = _leaves(8)
    assert (doubt.code, doubt.figures["label"]) == ("oversubscribed_uplinks", "leaf")
    assert doubt.figures["node_bytes_per_s"] == pytest.approx(64e9)
    assert _leaves(32) == ()


def test_leaves_whose_uplinks_are_stated_raise_no_suspicion() -> None:
    """A known fact need not be suspected."""
    nodes = [host(name, leaf=leaf) for name, leaf in zip("ab", "xy", strict=True)]
    plain = snapshot(nodes, [sample("a", "b", 40)])
    stated = replace(plain, cluster=replace(plain.cluster, switches=(Switch("leaf", None, 64e9),)))
    assert not shared_uplinks(stated.cluster, {(1.0, 1.0): {("a", "b"): 1.0}})
