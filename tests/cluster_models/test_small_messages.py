"""Links that were measured with small messages only: for larger ones they are estimated, and that is said."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Collective, Sample
from cluster_models.links.model import LinkModel, effective_links
from cluster_models.links.suspicions import suspicions
from cluster_models.links.wire_flows import LARGE_BYTES
from cluster_models.remarks import remark
from cluster_models.units import KIB, MIB
from tests.cluster_models.clusters import BIG, FIVE, NAMES, sample, snapshot
from tests.cluster_models.test_links import estimated, rate
from tests.remarks import codes


def small(a: str, b: str, gbytes: float = 0.6, kib: int = 256, ranks: int = 1) -> Sample:
    """A transfer of a quarter of a mebibyte, slow as latency makes it."""
    return sample(a, b, gbytes, mib=kib / 1024, ranks=ranks, collective=Collective.POINT_TO_POINT)


def large(a: str, b: str, gbytes: float = 40, ranks: int = 1) -> Sample:
    return sample(a, b, gbytes, ranks=ranks, collective=Collective.POINT_TO_POINT)


def test_a_test_cut_short_takes_the_class_for_large_messages() -> None:
    """The link gets what a measured pair of its class has, and stays flagged."""
    links = effective_links(snapshot(FIVE, [small("a", "b"), large("a", "c", 40)]))
    assert rate(links, "a", "b") == pytest.approx(40, rel=0.01)
    assert estimated(links, "a", "b")
    assert not estimated(links, "a", "c")
    assert rate(links, "a", "b", message_bytes=256 * KIB) == pytest.approx(0.6), "its own size is its own"


def test_it_lowers_no_other_link_of_its_class() -> None:
    """A pair that was never measured takes the measured pair, not the one that failed early."""
    both = effective_links(snapshot(FIVE, [small("a", "b"), small("b", "c"), large("a", "c", 40)]))
    alone = effective_links(snapshot(FIVE, [large("a", "c", 40)]))
    assert rate(both, "a", "d") == pytest.approx(rate(alone, "a", "d"))


def test_without_any_large_message_the_data_sheet_counts() -> None:
    links = effective_links(snapshot(FIVE, [small("a", "b")]))
    nothing = effective_links(snapshot(FIVE, []))
    assert rate(links, "a", "b") == pytest.approx(rate(nothing, "a", "b"), rel=0.01)


def test_more_flows_with_small_messages_do_not_count_beside_one_with_large() -> None:
    """One flow to a gibibyte, eight flows until the test died: eight keep their share of the cards."""
    links = effective_links(snapshot(FIVE, [large("a", "b", 40), small("a", "b", 0.1, ranks=8)]))
    assert rate(links, "a", "b", flows=8) == pytest.approx(40, rel=0.01)
    assert estimated(links, "a", "b", flows=8)
    assert not estimated(links, "a", "b", flows=1)


def test_a_message_of_a_few_mebibytes_tells_of_larger_ones() -> None:
    links = effective_links(snapshot(FIVE, [small("a", "b", 20, kib=4096)]))
    assert rate(links, "a", "b") == pytest.approx(20)
    assert not estimated(links, "a", "b")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.sampled_from(NAMES),
            st.sampled_from([16, 256, 2048, 1 << 20]),
            st.sampled_from([1, 8]),
        ),
        max_size=8,
    ).map(lambda drawn: [small(a, b, 5.0, kib, ranks) for a, b, kib, ranks in drawn if a != b])
)
def test_a_larger_message_never_takes_less_time(samples: list[Sample]) -> None:
    """Nor where a figure ends and an estimate begins."""
    links: LinkModel = effective_links(snapshot(FIVE, samples))
    times = [
        links.transfer_s(size, flows)
        for flows in (1, 8)
        for size in (8 * KIB, 255 * KIB, 257 * KIB, MIB, 3 * MIB, BIG)
    ]
    for part in (times[:6], times[6:]):
        for less, more in itertools.pairwise(part):
            assert (more >= less * (1 - 1e-9)).all()
    assert np.isfinite(times).all()


def test_it_is_said() -> None:
    """With the number of pairs, apart from those that nobody measured."""
    told = suspicions(snapshot(FIVE, [small("a", "b"), large("a", "c")]))
    assert remark("only_small_messages", pairs=1, of=10, message_bytes=LARGE_BYTES) in told
    assert remark("never_measured", pairs=8, of=10) in told
    assert "only_small_messages" not in codes(suspicions(snapshot(FIVE, [large("a", "c")])))
    assert codes(suspicions(snapshot(FIVE, [small("a", "b")])))[0] == "only_small_messages"
