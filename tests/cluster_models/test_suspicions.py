"""What looks wrong about measurements."""

from __future__ import annotations

from dataclasses import replace

from cluster_models.cluster.measurements import Collective, Direction
from cluster_models.cluster.switches import Switch
from cluster_models.links.oversubscription import shared_uplinks
from cluster_models.links.suspicions import suspicions
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
    (sentence,) = suspicions(snapshot(NODES, samples))
    assert "a to b is 2.0 times faster than back" in sentence


def test_bandwidth_above_the_cards_is_named() -> None:
    """Eight flows of 60 GB/s do not fit eight cards of 50."""
    samples = [sample(*pair, 40) for pair in ALL_PAIRS]
    samples.append(sample("a", "b", 60, collective=Collective.POINT_TO_POINT, ranks=8))
    (sentence,) = suspicions(snapshot(NODES, samples))
    assert "above the 50 GB/s" in sentence


def test_a_link_ten_times_below_its_class_smells_of_tcp() -> None:
    """1.5 GB/s among links of 40."""
    samples = [sample(*pair, 40) for pair in ALL_PAIRS[1:]] + [sample("a", "b", 1.5)]
    sentences = suspicions(snapshot(NODES, samples))
    assert any("a to b" in sentence and "TCP" in sentence for sentence in sentences)


def test_unmeasured_pairs_and_silent_nodes_are_counted() -> None:
    """Only a-b was measured: five of six pairs are estimated, c and d are unknown, one test failed."""
    sentences = suspicions(snapshot(NODES, [sample("a", "b"), sample("a", "c", failed=True)]))
    assert any(sentence.startswith("1 of 6 node pairs have failed tests (0 of them") for sentence in sentences)
    assert any(sentence.startswith("5 of 6 node pairs (83 %)") for sentence in sentences)
    assert [sentence.split()[1] for sentence in sentences if sentence.startswith("Node ")] == ["c", "d"]


def test_no_measurement_at_all_is_one_sentence() -> None:
    """Nothing is listed node by node when nothing is known."""
    assert len(suspicions(snapshot(NODES))) == 1
    assert suspicions(snapshot(NODES[:1])) == ()


def test_long_lists_are_cut_short() -> None:
    """Twenty silent nodes make five sentences and a count."""
    nodes = [host(f"n{index}") for index in range(22)]
    sentences = suspicions(snapshot(nodes, [sample("n0", "n1")]))
    assert sentences[-1].startswith("15 more nodes")


def _leaves(across_of_eight: float) -> tuple[str, ...]:
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
    (sentence,) = _leaves(8)
    assert "uplinks of a leaf are probably oversubscribed" in sentence
    assert "estimated 64 GB/s" in sentence
    assert _leaves(32) == ()


def test_leaves_whose_uplinks_are_stated_raise_no_suspicion() -> None:
    """What is known need not be suspected."""
    nodes = [host(name, leaf=leaf) for name, leaf in zip("ab", "xy", strict=True)]
    plain = snapshot(nodes, [sample("a", "b", 40)])
    stated = replace(plain, cluster=replace(plain.cluster, switches=(Switch("leaf", None, 64e9),)))
    assert not shared_uplinks(stated.cluster, {(1.0, 1.0): {("a", "b"): 1.0}})
