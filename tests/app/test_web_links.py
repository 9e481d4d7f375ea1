"""Drawings of links on the page of a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.presentation.links import by_place, shown_flows
from app.serialization import make_snapshot
from app.web.views.bandwidth import Colour, Known, MapChoice, heat_map, links_between
from app.web.views.leaf_map import leaf_map
from app.web.views.node_groups import NodeGroup, node_groups
from app.web.views.shades import SHADES, rate_scale
from cluster_models.links import effective_links
from cluster_models.measurements import Direction
from tests.plans import (
    small_cluster,
    small_samples,
)


def test_heat_map_marks_what_was_not_measured() -> None:
    """Of six directed links two were measured; the four others are crossed out, and all have a shade."""
    model = effective_links(make_snapshot(small_cluster(), small_samples()))
    choice = MapChoice(shown_flows(model, 4))
    shown = heat_map(model, choice, range(3), range(3))
    assert len(shown.drawing.boxes) == 6
    assert [link.known for link in links_between(model, choice, range(3), range(3))].count(Known.MEASURED) == 2
    assert shown.counts == "Directed links: 2 measured, 0 adapted, 4 estimated"
    assert shown.drawing.lines == ()
    assert shown.rows[0].bandwidth.endswith("GB/s")
    some = heat_map(model, choice, [0, 1], [0, 1, 2])
    assert len(some.drawing.boxes) == 4
    assert len(some.drawing.lines) == 2 * 2
    assert some.counts.endswith("2 estimated (crossed)")


def test_colours_of_links_show_the_share_of_the_class_or_the_direction() -> None:
    """Three links of one class: half the median is 50 %, and one way over the other is its inverse back."""
    there = replace(small_samples()[0], direction=Direction.FORWARD)
    back = replace(there, source="b", destination="a", bytes_per_s=(there.bytes_per_s or 0) / 2)
    model = effective_links(make_snapshot(small_cluster(), (there, back)))
    values = {
        colour: {
            (link.source, link.destination): link.value
            for link in links_between(model, MapChoice(1, colour=colour), [0, 1], [0, 1])
        }
        for colour in Colour
    }
    assert values[Colour.DIRECTION]["a", "b"] == pytest.approx(2, rel=0.01)
    assert values[Colour.DIRECTION]["b", "a"] == pytest.approx(0.5, rel=0.01)
    share = values[Colour.SHARE]
    assert share["a", "b"] == pytest.approx(2 * share["b", "a"], rel=0.01)


def test_groups_of_nodes_are_drawn_by_their_median_and_count_links_that_stand_out() -> None:
    """Two groups of the three nodes: a cell a pair of groups but where a node would meet itself alone."""
    model = effective_links(make_snapshot(small_cluster(), small_samples()))
    groups = (NodeGroup("x", (0, 1)), NodeGroup("y", (2,)))
    drawn = leaf_map(model, MapChoice(1), groups, {("a", "c")}, {}, {})
    assert [box.tip.partition(":")[0] for box in drawn.boxes] == ["x to x", "x to y", "y to x"]
    assert ["ringed" in box.style for box in drawn.boxes] == [False, True, False]
    assert "rows=x&columns=y" in drawn.boxes[1].address


def test_every_node_is_in_one_group_and_no_group_is_too_large() -> None:
    """A thousand nodes on leaves of 100: each leaf in two parts."""
    first = small_cluster().nodes[0]
    nodes = tuple(
        replace(first, name=f"n{index}", nvlink_domain=f"n{index}", labels={"leaf": f"{index // 100}"})
        for index in range(1000)
    )
    groups = node_groups(replace(small_cluster(), nodes=nodes), range(1000))
    assert sorted(position for group in groups for position in group.members) == list(range(1000))
    assert max(len(group.members) for group in groups) <= 64
    assert len({group.name for group in groups}) == len(groups) == 20


@given(low=st.floats(1e6, 1e11), ratio=st.floats(1.0, 100.0))
def test_a_scale_of_rates_rises_and_has_a_shade_for_every_value(low: float, ratio: float) -> None:
    """Edges rise, the legend has one entry a shade, the fastest gets the last shade."""
    scale = rate_scale([low, low * ratio])
    assert list(scale.edges) == sorted(set(scale.edges))
    assert len(scale.legend) == len(scale.edges) + 1
    assert scale.style(low * ratio) == scale.legend[-1].style == f"heat-{SHADES - 1}"
    assert scale.style(low) == scale.legend[0].style


def test_nodes_of_one_leaf_stand_together() -> None:
    """Zone goes before leaf and leaf before rack; equal places keep the cluster's order."""
    cluster = small_cluster()
    labels = ({"zone": "z", "leaf": "b"}, {"zone": "z", "leaf": "a", "rack": "9"}, {"leaf": "c"})
    nodes = tuple(replace(node, labels=place) for node, place in zip(cluster.nodes, labels, strict=True))
    assert by_place(replace(cluster, nodes=nodes)) == [2, 1, 0]
    assert by_place(cluster) == [0, 1, 2]


def test_links_are_shown_at_the_load_most_were_measured_at() -> None:
    """A measurement inside a node does not count, and without any between nodes all GPUs of a node do."""
    inside = replace(small_samples()[0], destination="a", ranks_per_node=2)
    measured = effective_links(make_snapshot(small_cluster(), (*small_samples(), inside)))
    assert shown_flows(measured, 4) == 1
    assert shown_flows(effective_links(make_snapshot(small_cluster(), (inside,))), 4) == 4
