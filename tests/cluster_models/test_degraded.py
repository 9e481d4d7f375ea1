"""Clusters after failures."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.measurements import Collective, Direction, Sample, SampleStatus
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster, NicGroup, Node, NodeState
from cluster_models.health.conditions import Condition
from cluster_models.health.degraded import LEAST_SHARE, degraded
from cluster_models.health.events import Entity, EntityKind, HealthState
from cluster_models.links.model import effective_links

NOW = datetime(2026, 3, 1, tzinfo=UTC)
BIG = 2.0**28


def sample(source: str, destination: str, *, measured_at: datetime) -> Sample:
    """A measured pair at 40 GB/s for one flow."""
    return Sample(
        source,
        destination,
        Direction.BOTH,
        "nccl-tests",
        Collective.SEND_RECV,
        BIG,
        1,
        1,
        SampleStatus.OK,
        40e9,
        None,
        measured_at,
    )


def snapshot(*samples: Sample) -> ClusterSnapshot:
    """Two leaves of two nodes with eight GPUs and two network cards."""
    kind = gpu_kind("H100-SXM5-80GB")
    nodes = tuple(
        Node(f"n{i}", kind.name, 8, f"n{i}", NicGroup(2, 50e9, "infiniband"), {"leaf": f"l{i // 2}"})
        for i in range(4)
    )
    return ClusterSnapshot("s", Cluster("c", nodes, {kind.name: kind}), samples)


def condition(entity: Entity, state: HealthState, **more: float) -> Condition:
    """One that holds now."""
    return Condition(entity, state, NOW, 1, **more)  # type: ignore[arg-type]


def node_state(found: ClusterSnapshot, name: str) -> NodeState:
    """The state of one node."""
    return found.cluster.node(name).state


def test_nothing_told_changes_nothing() -> None:
    before = snapshot()
    assert degraded(before, ()) is before


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (HealthState.FAILED, NodeState.FAILED),
        (HealthState.DRAINING, NodeState.DRAINING),
        (HealthState.SUSPECTED, NodeState.UNKNOWN),
        (HealthState.DEGRADED, NodeState.DEGRADED),
    ],
)
def test_a_node_takes_the_state_that_was_told(state: HealthState, expected: NodeState) -> None:
    found = degraded(snapshot(), [condition(Entity(EntityKind.NODE, "n1"), state)])
    assert node_state(found, "n1") is expected
    assert [node_state(found, name) for name in ("n0", "n2", "n3")] == [NodeState.READY] * 3
    assert found.id != "s"


def test_a_lost_gpu_is_out_and_its_node_stays() -> None:
    found = degraded(snapshot(), [condition(Entity(EntityKind.GPU, "n2", "5"), HealthState.FAILED)])
    assert found.cluster.node("n2").gpus_in_use == (5,)
    assert node_state(found, "n2") is NodeState.READY


def test_a_gpu_that_nobody_can_number_takes_its_node_along() -> None:
    found = degraded(snapshot(), [condition(Entity(EntityKind.GPU, "n2", "PCI:4e:00"), HealthState.FAILED)])
    assert node_state(found, "n2") is NodeState.FAILED


def test_a_switch_takes_its_nodes_along() -> None:
    found = degraded(snapshot(), [condition(Entity(EntityKind.SWITCH, "", "leaf:l1"), HealthState.FAILED)])
    assert [node.state for node in found.cluster.nodes] == [NodeState.READY] * 2 + [NodeState.FAILED] * 2


def test_network_cards_that_fail_take_their_share_and_the_last_one_the_node() -> None:
    card = condition(Entity(EntityKind.NIC, "n0", "mlx5_0"), HealthState.FAILED)
    other = condition(Entity(EntityKind.NIC, "n0", "mlx5_1"), HealthState.FAILED)
    healthy, hurt = (
        effective_links(each).bytes_per_s(BIG, 8) for each in (snapshot(), degraded(snapshot(), [card]))
    )
    assert hurt[0, 1] == pytest.approx(healthy[0, 1] / 2, rel=0.01)
    assert hurt[3, 0] == pytest.approx(healthy[3, 0] / 2, rel=0.01)
    assert np.array_equal(hurt[1:, 1:], healthy[1:, 1:])
    assert hurt[0, 0] == healthy[0, 0]
    assert node_state(degraded(snapshot(), [card, other]), "n0") is NodeState.FAILED


@pytest.mark.parametrize(
    ("cards", "gpus", "failed", "slow", "left"),
    [(8, 8, 0, 0.5, 0.5), (8, 8, 1, 1.0, 0.5), (4, 8, 1, 1.0, 2 / 3), (8, 4, 1, 1.0, 0.5), (9, 8, 1, 1.0, 1.0)],
)
def test_the_rail_of_a_bad_card_paces_its_node(
    cards: int, gpus: int, failed: int, slow: float, left: float
) -> None:
    """Eight cards, one at half its rate: half, not 15/16; where one failed two GPUs share the next card."""
    whole = snapshot()
    nodes = tuple(replace(node, gpu_count=gpus, nics=NicGroup(cards, 50e9)) for node in whole.cluster.nodes)
    whole = replace(whole, cluster=replace(whole.cluster, nodes=nodes))
    told = [condition(Entity(EntityKind.NIC, "n0", f"mlx5_{i}"), HealthState.FAILED) for i in range(failed)]
    if slow < 1:
        slowed = Entity(EntityKind.NIC, "n0", "mlx5_7")
        told.append(condition(slowed, HealthState.DEGRADED, bandwidth_share=slow))
    shares = degraded(whole, told).link_shares
    assert [share.share for share in shares] == ([pytest.approx(left)] if left < 1 else [])


@pytest.mark.parametrize("measured", [False, True])
def test_a_link_at_half_speed_takes_twice_as_long_measured_or_not(*, measured: bool) -> None:
    before = snapshot(*([sample("n0", "n2", measured_at=NOW - timedelta(days=1))] if measured else []))
    half = condition(Entity(EntityKind.LINK, "n2", "n0"), HealthState.DEGRADED, bandwidth_share=0.5)
    healthy, hurt = (effective_links(each).bytes_per_s(BIG, 1) for each in (before, degraded(before, [half])))
    assert hurt[0, 2] == pytest.approx(healthy[0, 2] / 2, rel=0.01)
    assert hurt[2, 0] == pytest.approx(healthy[2, 0] / 2, rel=0.01)
    untouched = np.ones_like(healthy, dtype=bool)
    untouched[[0, 2], [2, 0]] = False
    assert np.array_equal(hurt[untouched], healthy[untouched])


def test_a_link_measured_since_counts_as_measured() -> None:
    before = snapshot(sample("n2", "n0", measured_at=NOW + timedelta(minutes=5)))
    half = condition(Entity(EntityKind.LINK, "n0", "n2"), HealthState.DEGRADED, bandwidth_share=0.5)
    assert degraded(before, [half]).link_shares == ()


def test_a_link_that_failed_is_next_to_nothing() -> None:
    found = degraded(snapshot(), [condition(Entity(EntityKind.LINK, "n0", "n3"), HealthState.FAILED)])
    [share] = found.link_shares
    assert (share.node, share.other, share.share) == ("n0", "n3", LEAST_SHARE)
