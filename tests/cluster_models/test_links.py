"""The effective link model: what is measured, what is estimated, and what neither may do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Collective, Direction, Sample
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidCluster
from cluster_models.links.model import LinkModel, effective_links
from cluster_models.links.tables import Recency
from cluster_models.units import MIB
from tests.cluster_models.clusters import BIG, FIVE, NAMES, host, sample, snapshot

SAMPLES = st.lists(
    st.builds(
        sample,
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
        st.floats(0.5, 45),
        collective=st.sampled_from([Collective.SEND_RECV, Collective.ALL_TO_ALL, Collective.POINT_TO_POINT]),
        ranks=st.sampled_from([1, 2, 4, 8]),
        mib=st.sampled_from([1, 16, 256]),
        direction=st.sampled_from(list(Direction)),
        failed=st.booleans(),
    ).filter(lambda drawn: drawn.source != drawn.destination),
    max_size=14,
)
MESSAGES = st.sampled_from([0.0, 1e3, 1.5 * MIB, 40.0 * MIB, 4096.0 * MIB])
FLOWS = st.integers(1, 16)


def rate(links: LinkModel, a: str, b: str, flows: int = 1, message_bytes: float = BIG) -> float:
    """GB/s of one flow from ``a`` to ``b``."""
    matrix = links.bytes_per_s(message_bytes, flows)
    return float(matrix[links.nodes.index(a), links.nodes.index(b)]) / 1e9


def estimated(links: LinkModel, a: str, b: str, flows: int = 1) -> bool:
    """Whether the pair is flagged."""
    return bool(links.estimated(flows)[links.nodes.index(a), links.nodes.index(b)])


def test_a_measured_pair_gets_its_own_figure() -> None:
    """The sample's bandwidth comes back at its own size, for both directions of a symmetric test."""
    links = effective_links(snapshot(FIVE, [sample("a", "b", 41.5)]))
    assert rate(links, "a", "b") == pytest.approx(41.5)
    assert rate(links, "b", "a") == pytest.approx(41.5)
    assert not estimated(links, "a", "b")
    assert not estimated(links, "b", "a")


def test_one_direction_lends_its_figure_to_the_other_and_says_so() -> None:
    """A forward sample fills its direction; the way back takes the same figure, flagged."""
    links = effective_links(snapshot(FIVE, [sample("a", "b", 30, direction=Direction.FORWARD)]))
    assert rate(links, "b", "a") == pytest.approx(30)
    assert not estimated(links, "a", "b")
    assert estimated(links, "b", "a")


def test_directed_samples_keep_both_directions_apart() -> None:
    """Two forward samples give an asymmetric matrix."""
    pair = [sample("a", "b", 30, direction=Direction.FORWARD), sample("b", "a", 20, direction=Direction.FORWARD)]
    links = effective_links(snapshot(FIVE, pair))
    assert (rate(links, "a", "b"), rate(links, "b", "a")) == (pytest.approx(30), pytest.approx(20))


def test_one_bad_sample_does_not_move_the_median() -> None:
    """Five samples of one key: the outlier is outvoted."""
    links = effective_links(snapshot(FIVE, [sample("a", "b", value) for value in (40, 41, 3, 40.5, 39)]))
    assert rate(links, "a", "b") == pytest.approx(40)


def test_old_samples_give_way_to_recent_ones() -> None:
    """A sample more than the window before the newest of its key does not count."""
    now = datetime(2026, 1, 31, tzinfo=UTC)
    old = [sample("a", "b", 10, at=now - timedelta(days=30)) for _ in range(4)]
    links = effective_links(snapshot(FIVE, [*old, sample("a", "b", 40, at=now)]))
    assert rate(links, "a", "b") == pytest.approx(40)
    kept = effective_links(snapshot(FIVE, [*old, sample("a", "b", 40, at=now)]), recency=Recency(days=60))
    assert rate(kept, "a", "b") == pytest.approx(10)


def test_measurements_under_load_win_over_idle_ones() -> None:
    """A training run loads the fabric: samples with more pairs active describe it better."""
    both = [sample("a", "b", 40), sample("a", "b", 25, pairs_active=2)]
    assert rate(effective_links(snapshot(FIVE, both)), "a", "b") == pytest.approx(25)


def test_bandwidth_is_interpolated_between_sizes_and_flat_beyond() -> None:
    """Half way between two sizes in the logarithm lies the geometric mean; above the largest nothing changes."""
    links = effective_links(snapshot(FIVE, [sample("a", "b", 10, mib=1), sample("a", "b", 40, mib=64)]))
    assert rate(links, "a", "b", message_bytes=8 * MIB) == pytest.approx(20)
    assert rate(links, "a", "b", message_bytes=6400 * MIB) == pytest.approx(40)


def test_below_the_smallest_size_time_falls_to_the_latency() -> None:
    """Nothing to send costs the measured latency, half the smallest message half of the rest."""
    measured = [sample("a", "b", 10, mib=1), sample("a", "b", None, latency_s=4e-6)]
    links = effective_links(snapshot(FIVE, measured))
    whole = MIB / 10e9
    assert links.transfer_s(0, 1)[0, 1] == pytest.approx(4e-6)
    assert links.transfer_s(MIB / 2, 1)[0, 1] == pytest.approx(4e-6 + (whole - 4e-6) / 2)


def test_more_flows_share_what_the_node_has() -> None:
    """Beyond the cards of the node its aggregate stays: 16 flows on 8 cards run at half the pace of 8."""
    links = effective_links(snapshot(FIVE, [sample("a", "b", 40, collective=Collective.POINT_TO_POINT, ranks=8)]))
    assert rate(links, "a", "b", 16) == pytest.approx(20)
    assert estimated(links, "a", "b", 16)
    assert not estimated(links, "a", "b", 8)


def test_flows_with_cards_of_their_own_do_not_share() -> None:
    """One flow was measured; eight flows on eight cards are expected at its pace, on one card at an eighth."""
    one_card = tuple(host(name, cards=1) for name in "ab")
    assert rate(effective_links(snapshot(FIVE, [sample("a", "b", 40)])), "a", "b", 8) == pytest.approx(40)
    assert rate(effective_links(snapshot(one_card, [sample("a", "b", 40)])), "a", "b", 8) == pytest.approx(5)


def test_a_pair_measured_alone_is_no_faster_than_its_class_under_load() -> None:
    """Pair c-d has one-flow samples only; eight flows take what d-e reached with eight."""
    measured = [
        sample("c", "d", 40),
        sample("d", "e", 40),
        sample("d", "e", 10, collective=Collective.POINT_TO_POINT, ranks=8),
    ]
    links = effective_links(snapshot(FIVE, measured))
    assert rate(links, "c", "d", 8) == pytest.approx(10)
    assert estimated(links, "c", "d", 8)


def test_between_measured_numbers_of_flows_the_rate_is_interpolated() -> None:
    """Two flows lie half way between one and four in the logarithm."""
    p2p = Collective.POINT_TO_POINT
    links = effective_links(
        snapshot(FIVE, [sample("a", "b", 40, collective=p2p), sample("a", "b", 10, collective=p2p, ranks=4)])
    )
    assert rate(links, "a", "b", 2) == pytest.approx(20)


def test_fewer_flows_take_the_pace_that_more_flows_reached() -> None:
    """A slow single-flow test beside a fast eight-flow test was a bad moment, not the link."""
    p2p = Collective.POINT_TO_POINT
    links = effective_links(snapshot(FIVE, [sample("a", "b", 7), sample("a", "b", 12, collective=p2p, ranks=8)]))
    assert rate(links, "a", "b", 1) == pytest.approx(12)


def test_no_flow_passes_its_share_of_the_cards() -> None:
    """Two cards of 50 GB/s carry eight flows at 12.5 GB/s at most, whatever was measured."""
    pair = tuple(host(name, cards=2) for name in "ab")
    p2p = Collective.POINT_TO_POINT
    links = effective_links(snapshot(pair, [sample("a", "b", 30, collective=p2p, ranks=8)]))
    assert rate(links, "a", "b", 8) == pytest.approx(12.5)


def test_an_unmeasured_pair_takes_the_slower_quartile_of_its_class() -> None:
    """Four measured pairs of the class x-y: the fifth is as slow as the pair opening the slowest quarter."""
    across = [sample("a", "c", 40), sample("a", "d", 30), sample("a", "e", 20), sample("b", "c", 10)]
    links = effective_links(snapshot(FIVE, [sample("a", "b", 45), *across]))
    assert rate(links, "b", "d") == pytest.approx(10)
    assert estimated(links, "b", "d")


def test_an_unmeasured_class_takes_the_next_wider_one() -> None:
    """Nothing was measured inside leaf x; it is not assumed better than the way across leaves."""
    links = effective_links(snapshot(FIVE, [sample("a", "c", 17)]))
    assert rate(links, "a", "b") == pytest.approx(17)


def test_a_wider_class_is_no_better_than_the_narrower_one_that_was_measured() -> None:
    """Only one leaf was measured, and slowly: the way across is not assumed to be faster."""
    links = effective_links(snapshot(FIVE, [sample("a", "b", 6)]))
    assert rate(links, "a", "c") == pytest.approx(6)


def test_without_measurements_a_link_gets_three_quarters_of_its_card() -> None:
    """400 Gb/s cards, 8 flows on 8 cards: 37.5 GB/s each, and everything is flagged."""
    links = effective_links(snapshot(FIVE))
    assert rate(links, "a", "c", 8, 1e12) == pytest.approx(37.5, rel=1e-3)
    assert links.estimated(8).all()


def test_different_hardware_does_not_lend_figures() -> None:
    """Pairs of fast nodes say nothing about a pair with a slow card."""
    nodes = (host("a"), host("b"), host("c", gbits_per_s=100))
    links = effective_links(snapshot(nodes, [sample("a", "b", 45)]))
    assert rate(links, "a", "c", 1, 1e12) == pytest.approx(0.75 * 12.5, rel=1e-3)


def test_nodes_of_one_nvlink_domain_talk_over_nvlink() -> None:
    """Two GB200 trays of one rack reach hundreds of GB/s, a third outside goes over its cards."""
    nodes = [
        host(name, domain=domain, gpu="GB200", gpus=4, cards=4)
        for name, domain in (("a", "r"), ("b", "r"), ("c", "s"))
    ]
    links = effective_links(snapshot(nodes))
    assert rate(links, "a", "b", 4) > 400
    assert rate(links, "a", "c", 4) < 50
    assert "NVLink" in links.link_class("a", "b")


def test_a_failed_test_is_the_same_as_no_test() -> None:
    """Failed means unknown: the model is the one without the sample, and no link is at zero."""
    known = [sample("a", "c", 20)]
    without = effective_links(snapshot(FIVE, known))
    failed = effective_links(snapshot(FIVE, [*known, sample("b", "d", failed=True)]))
    np.testing.assert_array_equal(without.transfer_s(BIG, 8), failed.transfer_s(BIG, 8))


def test_a_bandwidth_in_the_wrong_unit_is_refused() -> None:
    """40 000 GB/s were MB/s."""
    with pytest.raises(InvalidCluster, match="check the unit"):
        effective_links(snapshot(FIVE, [sample("a", "b", 40_000)]))


def test_nonsense_queries_are_refused() -> None:
    """Negative bytes and no flows are mistakes of the caller."""
    links = effective_links(snapshot(FIVE))
    with pytest.raises(ValueError, match="bytes >= 0"):
        links.transfer_s(-1, 1)
    with pytest.raises(ValueError, match="flows >= 1"):
        links.transfer_s(1, 0)


@given(SAMPLES, MESSAGES, FLOWS)
def test_every_time_is_finite_and_positive(drawn: list[Sample], message_bytes: float, flows: int) -> None:
    """Whatever was measured, failed or left out, every pair has a time and none is zero."""
    times = effective_links(snapshot(FIVE, drawn)).transfer_s(message_bytes, flows)
    assert np.isfinite(times).all()
    assert (times > 0).all()


@given(SAMPLES, MESSAGES, FLOWS)
def test_more_flows_are_never_faster(drawn: list[Sample], message_bytes: float, flows: int) -> None:
    """One more flow leaving each node shortens no transfer, measured or estimated."""
    links = effective_links(snapshot(FIVE, drawn))
    fewer, more = links.transfer_s(message_bytes, flows), links.transfer_s(message_bytes, flows + 1)
    assert (more >= fewer * (1 - 1e-9)).all()


@given(SAMPLES, MESSAGES, FLOWS, st.permutations(range(len(FIVE))))
def test_the_order_of_nodes_only_permutes_the_matrix(
    drawn: list[Sample], message_bytes: float, flows: int, order: list[int]
) -> None:
    """Listing the nodes in another order moves rows and columns and changes no figure."""
    plain = effective_links(snapshot(FIVE, drawn)).transfer_s(message_bytes, flows)
    moved = effective_links(snapshot([FIVE[i] for i in order], drawn)).transfer_s(message_bytes, flows)
    np.testing.assert_allclose(moved, plain[np.ix_(order, order)], rtol=1e-12)


@given(SAMPLES, MESSAGES, FLOWS)
def test_symmetric_samples_give_a_symmetric_matrix(drawn: list[Sample], message_bytes: float, flows: int) -> None:
    """Tests that cannot tell directions apart leave no direction better than the other."""
    both = [one for one in drawn if one.direction is Direction.BOTH]
    times = effective_links(snapshot(FIVE, both)).transfer_s(message_bytes, flows)
    np.testing.assert_allclose(times, times.T, rtol=1e-12)


@given(SAMPLES, FLOWS)
def test_an_estimate_is_never_better_than_all_of_its_class(drawn: list[Sample], flows: int) -> None:
    """An unmeasured pair is never faster than the fastest measured pair of its class."""
    links = effective_links(snapshot(FIVE, drawn))
    times = links.transfer_s(BIG, flows)
    for k in range(len(links.classes)):
        inside = links.link_classes == k
        measured = times[inside & (links.row >= 0)]
        unmeasured = times[inside & (links.row < 0)]
        if measured.size and unmeasured.size:
            assert unmeasured.min() >= measured.min() * (1 - 1e-9)


@given(SAMPLES, FLOWS)
def test_a_repeated_sweep_changes_nothing(drawn: list[Sample], flows: int) -> None:
    """The same samples twice have the same medians."""
    once: ClusterSnapshot = snapshot(FIVE, drawn)
    twice = snapshot(FIVE, [*drawn, *drawn])
    matrices = [effective_links(one, recency=Recency(samples=1000)).transfer_s(BIG, flows) for one in (once, twice)]
    np.testing.assert_allclose(matrices[0], matrices[1], rtol=1e-12)
