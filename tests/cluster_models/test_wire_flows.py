"""From bus bandwidth to the rate of one flow."""

from __future__ import annotations

import pytest

from cluster_models.cluster.measurements import Collective
from cluster_models.links.wire_flows import wire_flow
from cluster_models.units import MIB
from tests.cluster_models.clusters import sample


def test_all_to_all_sends_half_of_each_buffer_across() -> None:
    """8 ranks a node at 23.6 GB/s bus bandwidth: 8/15 of it per GPU, 12.6 GB/s, in eight flows."""
    flow = wire_flow(sample("a", "b", 23.6, collective=Collective.ALL_TO_ALL, ranks=8, mib=64))
    assert flow is not None
    assert (flow.flows, flow.message_bytes, flow.exact) == (8, 32 * MIB, True)
    assert flow.bytes_per_s == pytest.approx(23.6e9 * 8 / 15)


def test_a_ring_of_sends_crosses_once_whatever_the_ranks() -> None:
    """A sendrecv with 8 ranks a node has one flow between the nodes, at its bus bandwidth."""
    flow = wire_flow(sample("a", "b", 15.2, ranks=8))
    assert flow is not None
    assert (flow.flows, flow.bytes_per_s) == (1, 15.2e9)


def test_an_all_reduce_is_a_lower_bound_of_the_wire() -> None:
    """480 GB/s over 2 x 8 GPUs is at least 32 GB/s per card."""
    flow = wire_flow(sample("a", "b", 480, collective=Collective.ALL_REDUCE, ranks=8, mib=80))
    assert flow is not None
    assert not flow.exact
    assert (flow.message_bytes, flow.bytes_per_s) == (10 * MIB, 32e9)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("collective", list(Collective))
def test_the_time_of_the_flow_is_the_time_of_the_test(collective: Collective, ranks: int) -> None:
    """Bytes over rate of the flow gives the tool's own time, size over algorithm bandwidth, for every test."""
    n, size, bus = 2 * ranks, 256.0 * MIB, 10e9
    factor = {Collective.SEND_RECV: 1, Collective.POINT_TO_POINT: 1, Collective.ALL_REDUCE: 2 * (n - 1) / n}
    tool_time = size / (bus / factor.get(collective, (n - 1) / n))
    flow = wire_flow(sample("a", "b", 10, collective=collective, ranks=ranks))
    assert flow is not None
    assert flow.time_s == pytest.approx(tool_time)


def test_a_failed_or_latency_only_sample_has_no_flow() -> None:
    """Failed means unknown, never zero."""
    assert wire_flow(sample("a", "b", failed=True)) is None
    assert wire_flow(sample("a", "b", None, latency_s=3e-6)) is None


def test_inside_a_node_switch_reduction_says_nothing_about_links() -> None:
    """All-reduce inside one node may pass the speed of the links, so it is not taken as theirs."""
    assert wire_flow(sample("a", "a", 480, collective=Collective.ALL_REDUCE, ranks=8)) is None
    flow = wire_flow(sample("a", "a", 348, collective=Collective.ALL_TO_ALL, ranks=8))
    assert flow is not None
    assert flow.bytes_per_s == 348e9
