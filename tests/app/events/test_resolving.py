"""Names of nodes, links and switches as sources use them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.events.part_lookup import resolve
from app.events.reading import ReportedEvent, ToldEvent
from app.services.clusters.aliases import StoredAlias, table_of
from cluster_models.health.events import Entity, EntityKind, HealthState
from tests.cluster_models.clusters import cluster_of, host

CLUSTER = cluster_of(
    [
        *(host(f"n{index}", leaf=f"leaf-{index // 2}") for index in range(4)),
        host("gpu-a.rack1.example"),
        host("gpu-b.rack1.example"),
        host("gpu-b.rack2.example"),
    ]
)
ALIASES = table_of(
    [
        StoredAlias("i-0abc", "instance_id", "n2"),
        StoredAlias("10.0.0.7", "ip", "n3"),
        StoredAlias("n0", "host", "n1"),
        StoredAlias("old", "host", "gone"),
    ]
)


def told(name: str, kind: EntityKind = EntityKind.NODE, part: str = "") -> ToldEvent:
    """One report, looked up."""
    event = ReportedEvent(kind, name, part, HealthState.FAILED, datetime(2026, 3, 1, tzinfo=UTC), "1", code="c")
    (found,) = resolve([replace(event, is_sighting=True)], source="s", cluster=CLUSTER, aliases=ALIASES)
    assert (found.event.source, found.event.code, found.is_sighting) == ("s", "c", True)
    return found


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("n1", "n1"),
        ("N1", "n1"),
        ("n1.cluster.local", "n1"),
        ("n1:9100", "n1"),
        ("n0", "n0"),  # the cluster's own name before an alias
        ("i-0abc", "n2"),
        ("aws:///eu-west-1a/i-0abc", "n2"),
        ("10.0.0.7:9400", "n3"),
        ("10.0.0.7", "n3"),
        ("gpu-a", "gpu-a.rack1.example"),
        ("gpu-a.other.domain", None),
        ("gpu-b", None),  # one of two
        ("gpu-b.rack2.example", "gpu-b.rack2.example"),
        ("10.0.0.8:9400", None),
        ("old", None),  # an alias of a node that the cluster has no longer
        ("n", None),
    ],
)
def test_a_node_is_found_by_any_of_its_names(name: str, node: str | None) -> None:
    found = told(name)
    assert found.known == (node is not None)
    assert found.event.entity.node == (node or name)
    assert found.told_name == name


@pytest.mark.parametrize(
    ("part", "known"), [("0", True), ("7", True), ("8", False), ("99", False), ("PCI:4e:00", True)]
)
def test_a_gpu_is_known_where_its_node_has_so_many(part: str, known: bool) -> None:
    """One that is told by its place on the bus may be any of them."""
    found = told("N1", EntityKind.GPU, part)
    assert CLUSTER.node("n1").gpu_count == 8
    assert found.known == known
    assert found.event.entity == Entity(EntityKind.GPU, "n1", part)
    assert found.told_name == ("N1" if known else f"GPU {part} of N1")


def test_a_link_is_known_by_both_ends() -> None:
    assert str(told("N3", EntityKind.LINK, "i-0abc").event.entity) == "link n2-n3"
    assert not told("n3", EntityKind.LINK, "elsewhere").known
    assert not told("n2", EntityKind.LINK, "i-0abc").known


@pytest.mark.parametrize(
    ("name", "place"),
    [("leaf-1", "leaf:leaf-1"), ("LEAF:leaf-1", "leaf:leaf-1"), ("leaf-9", None), ("zone:leaf-1", None)],
)
def test_a_switch_is_found_with_and_without_its_label(name: str, place: str | None) -> None:
    found = told("", EntityKind.SWITCH, name)
    assert found.known == (place is not None)
    assert found.event.entity.part == (place or name)


def test_leaves_of_two_zones_called_alike_are_told_apart() -> None:
    nodes = [host(f"z{zone}", leaf="leaf-0", zone=zone) for zone in ("a", "b")]
    event = ReportedEvent(
        EntityKind.SWITCH, "", "leaf-0", HealthState.FAILED, datetime(2026, 3, 1, tzinfo=UTC), "1"
    )
    reports = [event, replace(event, part="a/leaf-0"), replace(event, part="leaf:b/leaf-0")]
    found = resolve(reports, source="s", cluster=cluster_of(nodes), aliases=ALIASES)
    assert [each.known for each in found] == [False, True, True]
    assert [each.event.entity.part for each in found[1:]] == ["leaf:a/leaf-0", "leaf:b/leaf-0"]
