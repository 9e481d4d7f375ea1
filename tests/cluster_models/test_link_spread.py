"""How far links stray, and link models at the slow decile."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Collective, Direction, Sample
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.links.classes import Proximity
from cluster_models.links.model import effective_links
from cluster_models.links.spread import (
    ENOUGH_REPEATS,
    NORMAL_DECILE,
    PUBLISHED_DECILE,
    Spread,
    SpreadOrigin,
    link_spread,
    slow_decile,
)
from cluster_models.training.workload import LinkBandwidth
from cluster_models.units import MIB
from tests.cluster_models.clusters import BIG, FIVE, NAMES, host, sample, snapshot

SAMPLES = st.lists(
    st.builds(
        sample,
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
        st.floats(0.5, 45),
        collective=st.sampled_from([Collective.SEND_RECV, Collective.ALL_TO_ALL, Collective.POINT_TO_POINT]),
        ranks=st.sampled_from([1, 8]),
        mib=st.sampled_from([1, 256]),
        direction=st.sampled_from(list(Direction)),
        latency_s=st.none() | st.floats(1e-6, 1e-3),
        failed=st.booleans(),
    ),
    max_size=30,
)


def pessimistic(known: ClusterSnapshot, a: str, b: str) -> float:
    """GB/s of one large flow from ``a`` to ``b`` at the slow decile."""
    links = effective_links(known, bandwidth=LinkBandwidth.PESSIMISTIC)
    return float(links.bytes_per_s(BIG, 1)[links.nodes.index(a), links.nodes.index(b)]) / 1e9


def spread_of(known: ClusterSnapshot, a: int, b: int) -> Spread:
    """The spread of the link between two nodes by position."""
    found = link_spread(known)
    return found.by_class[int(found.link_classes[a, b])]


def repeated(a: str, b: str, ratio: float, pairs: int) -> list[Sample]:
    """``pairs`` runs of two tests of one link, the second ``ratio`` times as fast as the first."""
    return [sample(a, b, rate) for _ in range(pairs) for rate in (40.0, 40.0 * ratio)]


def test_two_runs_of_each_test_give_the_decile_of_their_difference() -> None:
    """The difference of two draws has twice the variance of one: ln(ratio) / sqrt(2)."""
    assert slow_decile([[0.0, 0.1]] * 9) == pytest.approx(0.1 / math.sqrt(2))


def test_the_decile_of_normal_draws_is_found() -> None:
    """Tests repeated three times on many links show the spread they were drawn with, no matter their medians."""
    generator = np.random.default_rng(1)
    draws = generator.normal(0, 0.07, (4000, 3)) + generator.normal(0, 2, (4000, 1))
    assert slow_decile(draws.tolist()) == pytest.approx(NORMAL_DECILE * 0.07, rel=0.03)


def test_a_broken_test_in_ten_does_not_move_the_decile() -> None:
    """Nine tests repeat to a hundredth; the tenth fell to a tenth."""
    steady = [[0.0, 0.01]] * 9
    assert slow_decile([*steady, [0.0, -math.log(10)]]) == pytest.approx(slow_decile(steady))


def test_nothing_repeated_takes_the_published_spread_of_the_class() -> None:
    """By closeness: none inside a node, little in a zone, much between zones."""
    nodes = [host("a", zone="east"), host("b", zone="east"), host("c", zone="west")]
    known = snapshot(nodes, [sample("a", "b"), sample("a", "c")])
    assert [spread_of(known, 0, end).decile for end in (0, 1, 2)] == [
        PUBLISHED_DECILE[proximity] for proximity in (Proximity.SAME_NODE, Proximity.SAME_ZONE, Proximity.OTHER)
    ]
    assert {spread_of(known, 0, end).origin for end in (0, 1, 2)} == {SpreadOrigin.PUBLISHED}


def test_a_class_that_was_not_repeated_takes_the_spread_of_the_cluster() -> None:
    """Links across leaves were repeated, links inside a leaf were not; the inside of nodes stays apart."""
    known = snapshot(FIVE, repeated("a", "c", 0.9, ENOUGH_REPEATS))
    across, inside, own = spread_of(known, 0, 2), spread_of(known, 0, 1), spread_of(known, 0, 0)
    assert (across.origin, inside.origin, own.origin) == (
        SpreadOrigin.CLASS,
        SpreadOrigin.CLUSTER,
        SpreadOrigin.PUBLISHED,
    )
    assert across.decile == inside.decile == pytest.approx(slow_decile([[0, math.log(0.9)] * ENOUGH_REPEATS]))


def test_other_tests_of_a_link_are_not_repetitions() -> None:
    """Twenty message sizes, tools or ranks measured once say nothing about change in time."""
    known = snapshot(FIVE, [sample("a", "c", 10 + mib, mib=mib) for mib in range(1, 21)])
    assert spread_of(known, 0, 2).origin is SpreadOrigin.PUBLISHED


def test_old_samples_say_nothing_about_spread() -> None:
    """A card that was replaced in spring does not make links unsteady in autumn."""
    now = datetime(2026, 10, 1, tzinfo=UTC)
    old = [sample("a", "c", 4.0, at=now - timedelta(days=150)) for _ in range(20)]
    fresh = [sample("a", "c", 40.0, at=now - timedelta(hours=hour)) for hour in range(20)]
    assert spread_of(snapshot(FIVE, [*old, *fresh]), 0, 2).decile == 0


def test_a_link_with_samples_enough_takes_its_own_decile() -> None:
    """The ninth tenth of five times lies between the two slowest: here 1/10 and 1/20 s per 256 MiB."""
    known = snapshot(FIVE, [sample("a", "b", rate) for rate in (40, 40, 40, 20, 10)])
    slow = 1 / (0.6 / 10 + 0.4 / 20)
    assert pessimistic(known, "a", "b") == pytest.approx(slow)


def test_a_link_with_few_samples_is_lowered_by_the_spread_of_its_class() -> None:
    """One sample of 40 GB/s, and links of its class that halve: ln 2 / sqrt 2 at the decile."""
    rates = [sample(a, b, rate) for a, b in (("a", "c"), ("a", "d"), ("b", "c")) for rate in (40, 20, 40, 20)]
    rates += [sample("b", "d", rate) for rate in (40, 20)]
    known = snapshot(FIVE, [*rates, sample("a", "e", 40)])
    decile = spread_of(known, 0, 4).decile
    assert decile > 0.3
    assert pessimistic(known, "a", "e") == pytest.approx(40 * math.exp(-decile))


def test_without_repetitions_a_link_loses_the_published_share() -> None:
    """A median of 40 GB/s counts as 40 exp(-0.05) where nothing was measured twice."""
    decile = PUBLISHED_DECILE[Proximity.SAME_LEAF]
    assert pessimistic(snapshot(FIVE, [sample("a", "b", 40)]), "a", "b") == pytest.approx(40 * math.exp(-decile))


def test_links_of_the_data_sheet_are_lowered_too() -> None:
    """Where nothing was measured at all, the class's nominal time grows by its published spread."""
    median, slow = (
        effective_links(snapshot(FIVE), bandwidth=bandwidth).transfer_s(BIG, 8) for bandwidth in LinkBandwidth
    )
    assert slow[0, 2] / median[0, 2] == pytest.approx(math.exp(PUBLISHED_DECILE[Proximity.SAME_ZONE]))


@given(SAMPLES, st.sampled_from([0.0, 1e3, 1.5 * MIB, 40.0 * MIB, 4096.0 * MIB]), st.integers(1, 16))
def test_pessimistic_links_are_never_faster(drawn: list[Sample], message_bytes: float, flows: int) -> None:
    """Whatever was measured, no transfer of any size gets quicker at the slow decile."""
    median, slow = (
        effective_links(snapshot(FIVE, drawn), bandwidth=bandwidth).transfer_s(message_bytes, flows)
        for bandwidth in LinkBandwidth
    )
    assert (slow >= median * (1 - 1e-12)).all()


@given(SAMPLES)
def test_every_spread_is_a_finite_share(drawn: list[Sample]) -> None:
    """A decile is never negative, and what nodes have in common is a part of it."""
    for spread in link_spread(snapshot(FIVE, drawn)).by_class:
        assert 0 <= spread.decile < math.inf
        assert 0 <= spread.node_share <= 1
        assert (spread.repeats > 0) is (spread.origin is not SpreadOrigin.PUBLISHED)


def test_a_median_of_few_samples_is_itself_unsure() -> None:
    """One sample of a link doubles the variance of the next, four add a quarter; other directions count too."""
    drawn = [sample("a", "b"), *[sample("a", "c", direction=Direction.FORWARD)] * 4]
    found = link_spread(snapshot(FIVE, drawn))
    pairs = np.array([[0, 1], [0, 2], [2, 0], [3, 4]])
    single = PUBLISHED_DECILE[Proximity.SAME_ZONE] / NORMAL_DECILE
    assert found.deviation(pairs) == pytest.approx(single * np.sqrt([2, 1.25, 1.25, 2]))
