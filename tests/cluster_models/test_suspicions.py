"""What looks wrong about measurements."""

from __future__ import annotations

from cluster_models.measurements import Collective, Direction
from cluster_models.suspicions import suspicions
from tests.cluster_models.clusters import host, sample, snapshot

NODES = tuple(host(name) for name in "abcd")
ALL_PAIRS = ("ab", "ac", "ad", "bc", "bd", "cd")


def test_a_clean_sweep_raises_no_suspicion() -> None:
    """Every pair measured alike, nothing above its cards: nothing to say."""
    assert suspicions(snapshot(NODES, [sample(*pair, 40) for pair in ALL_PAIRS])) == ()


def test_an_uneven_pair_is_named() -> None:
    """Three times faster one way than back."""
    samples = [sample(*pair, 40) for pair in ALL_PAIRS[1:]]
    samples += [
        sample("a", "b", 39, direction=Direction.FORWARD),
        sample("b", "a", 13, direction=Direction.FORWARD),
    ]
    (sentence,) = suspicions(snapshot(NODES, samples))
    assert "a to b is 3.0 times faster than back" in sentence


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
