"""Views of a plan for its pages, before any HTML is made of them."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from app.cli.planning.plan_view import plan_view
from app.documents.plan import PlanDocument
from app.presentation.configuration import degrees, settings
from app.presentation.costs import memory_rows, time_rows
from app.presentation.crossings import Places
from app.presentation.figures import count, gib, percent, plural, round_seconds, seconds, spans
from app.presentation.links import by_place, shown_flows
from app.presentation.plan import headline, plan_report
from app.presentation.proof import proof
from app.serialization import make_snapshot
from app.web.clusters.bandwidth import Colour, Known, MapChoice, heat_map, links_between
from app.web.clusters.leaf_map import leaf_map
from app.web.clusters.node_groups import NodeGroup, node_groups
from app.web.drawing import round_steps
from app.web.planning.memory import memory_bars
from app.web.planning.schedule import MOST_BOXES, Window, schedule
from app.web.planning.seats import HUES, layer_spans, seat_grid
from app.web.planning.step_time import time_bar
from app.web.shades import SHADES, rate_scale
from cluster_models.cluster.measurements import Direction
from cluster_models.links.model import effective_links
from cluster_models.remarks import remark
from cluster_models.training.placement_rules import PlacementRules, RankGroup, Spares, Spread
from cluster_models.training.plan import Degrees, Placement, RankPlace, StopReason, TimelineEvent
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import Objective
from cluster_models.units import GIB
from tests.plans import (
    small_cluster,
    small_configuration,
    small_placement,
    small_plan,
    small_samples,
    small_workload,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(6.4861, "6.486 s"), (0.0123, "12.30 ms"), (4.2e-5, "42.00 µs"), (0.0, "0 s"), (None, "\N{EN DASH}")],
)
def test_durations_take_the_unit_that_fits(value: float | None, shown: str) -> None:
    """Seconds, milliseconds or microseconds, with four digits at most."""
    assert seconds(value) == shown


def test_quantities_carry_their_unit() -> None:
    """GiB are binary, shares become per cent, counts have their thousands apart."""
    assert gib(3 * GIB) == "3.00 GiB"
    assert percent(0.4153) == "41.5 %"
    assert count(80834.4) == "80,834"
    assert (plural(1, "node"), plural(2, "node")) == ("1 node", "2 nodes")
    assert (round_seconds(0.5), round_seconds(0.02), round_seconds(0)) == ("0.5 s", "20 ms", "0 s")


@given(st.sets(st.integers(0, 200)))
def test_spans_name_every_number_once(numbers: set[int]) -> None:
    """Reading the joined neighbours back gives the same numbers."""
    read: list[int] = []
    for run in filter(None, spans(numbers).split(", ")):
        first, _, last = run.partition("\N{EN DASH}")
        read += range(int(first), int(last or first) + 1)
    assert read == sorted(numbers)


@given(st.floats(1e-9, 1e12))
def test_axis_steps_are_even_and_stay_below_the_end(highest: float) -> None:
    """Steps start at 0, keep one distance, and are neither too many nor too few."""
    steps = round_steps(highest)
    assert steps[0] == 0
    assert steps[-1] <= highest * 1.001
    assert 2 <= len(steps) <= 7


def test_grid_puts_every_rank_in_the_cell_of_its_stage_and_replica() -> None:
    """Stage 0 of the small plan sits on node b, two GPUs for each replica."""
    grid = seat_grid(small_configuration(), small_placement(), Places("node", {}))
    assert grid.replicas == (0, 1)
    first, second = grid.rows[0].cells
    assert [(seat.node, seat.gpus, seat.ranks) for seat in (*first, *second)] == [
        ("b", "0\N{EN DASH}1", "0\N{EN DASH}1"),
        ("b", "2\N{EN DASH}3", "2\N{EN DASH}3"),
    ]
    assert grid.rows[1].cells[0][0].node == "a"
    assert grid.colour_means == "node"


def test_grid_is_coloured_by_place_only_where_colours_tell_places_apart() -> None:
    """Hosts of one leaf need no colour, those of two have two; nine nodes do not share eight colours."""
    apart = seat_grid(small_configuration(), small_placement(), Places("leaf", {"a": "l1", "b": "l2"}))
    assert [group.name for group in apart.groups] == ["l2", "l1"]
    assert apart.rows[0].cells[0][0].style != apart.rows[1].cells[0][0].style
    together = seat_grid(small_configuration(), small_placement(), Places("leaf", {"a": "l1", "b": "l1"}))
    assert (together.groups, together.colour_means) == ((), "")
    hosts = tuple(f"n{index}" for index in range(HUES + 1))
    ranks = tuple(RankPlace(index, host, 0, 0, 0, index, 0) for index, host in enumerate(hosts))
    many = replace(small_configuration(), degrees=Degrees(data=len(hosts)), stage_layers=((3,),))
    assert seat_grid(many, Placement(hosts, 1, ranks), Places("node", {})).colour_means == ""


def test_layers_of_virtual_stages_come_back_to_the_same_rank() -> None:
    """With two virtual stages a rank holds two runs of layers; a stage may hold none."""

    def spans_of(*rows: tuple[int, ...], schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B) -> object:
        return layer_spans(
            replace(small_configuration(), degrees=Degrees(pipeline=2), stage_layers=rows, schedule=schedule)
        )

    assert spans_of((1, 2), (1, 0)) == ("2 layers: 0, 3", "2 layers: 1\N{EN DASH}2")
    assert spans_of((0, 4)) == ("no decoder layer", "4 layers: 0\N{EN DASH}3")
    zb_v = PipelineSchedule.ZB_V
    assert spans_of((1, 1), (1, 2), schedule=zb_v) == ("2 layers: 0, 4", "3 layers: 1\N{EN DASH}3")


def test_memory_bar_is_as_long_as_the_stage_is_full() -> None:
    """Widths of the parts add up to the share of the limit, on one scale for all stages."""
    plan = small_plan()
    drawing = memory_bars(plan.memory)
    limit = next(line.x1 for line in drawing.lines if line.style == "limit-line")
    first = [box for box in drawing.boxes if box.tip.startswith("stage 0")]
    start = first[0].x
    share = sum(box.width for box in first) / (limit - start)
    assert share == pytest.approx(plan.memory[0].total_bytes / plan.memory[0].limit_bytes)


def test_memory_table_tells_a_stage_that_does_not_fit() -> None:
    """A stage above its limit is marked."""
    stages = small_plan().memory
    tight = replace(stages[0], limit_bytes=stages[0].total_bytes - 1)
    assert [row.fits for row in memory_rows((tight, stages[1]))] == [False, True]


def test_kinds_are_told_where_stages_run_on_different_gpus() -> None:
    """Grid and memory table name each stage's kind and limit; a plan on one kind names none."""
    plan = small_plan()
    alike = tuple(replace(stage, gpu_kind="H100-SXM5-80GB") for stage in plan.stages)
    assert replace(plan, stages=alike).mixed_kinds == ()
    mixed = replace(plan, stages=(alike[0], replace(alike[1], gpu_kind="A100-SXM4-40GB")))
    memory = (plan.memory[0], replace(plan.memory[1], limit_bytes=36 * GIB))
    grid = seat_grid(mixed.configuration, mixed.placement, Places("node", {}), mixed.mixed_kinds)
    assert [row.gpu_kind for row in grid.rows] == ["H100-SXM5-80GB", "A100-SXM4-40GB"]
    rows = memory_rows(memory, mixed.mixed_kinds)
    assert [(row.gpu_kind, row.limit) for row in rows] == [
        ("H100-SXM5-80GB", "75.00"),
        ("A100-SXM4-40GB", "36.00"),
    ]
    assert sum(word.text.startswith("limit") for word in memory_bars(memory).words) == 2
    assert sum(word.text.startswith("limit") for word in memory_bars(plan.memory).words) == 1


def test_parts_of_the_step_fill_the_bar_and_the_table() -> None:
    """Boxes touch one another; the shares add up to the whole."""
    time = small_plan().time
    boxes = time_bar(time).boxes
    assert all(left.x + left.width == pytest.approx(right.x) for left, right in itertools.pairwise(boxes))
    assert sum(float(row.share.removesuffix(" %")) for row in time_rows(time)) == pytest.approx(100, abs=0.4)


def test_certificate_says_proven_only_without_a_gap() -> None:
    """A gap is named as what could still be gained; no gap is called optimal; no search proves nothing."""
    certificate = small_plan().certificate
    assert "0.20 %" in proof(certificate, Objective.STEP_TIME).verdict
    assert dict(proof(certificate, Objective.STEP_TIME).figures)["end of the search"] == "time limit"
    exact = replace(certificate, gap=0.0, bound=certificate.objective, stopped_by=StopReason.PROVEN)
    assert proof(exact, Objective.STEP_TIME).verdict.startswith("Proven optimal")
    given_in_full = replace(certificate, stopped_by=StopReason.NO_SEARCH)
    assert "gap" not in dict(proof(given_in_full, Objective.STEP_TIME).figures)


def test_terminal_page_and_document_say_the_same_of_a_proof() -> None:
    """The words of the certificate, limits included, and how many candidates there was no time for."""
    plan = small_plan()
    plan = replace(
        plan,
        certificate=replace(
            plan.certificate, candidates_total=1234 + 120, limits=(remark("limit_mixes", kinds=3),), unpriced=1234
        ),
    )
    shown = io.StringIO()
    Console(file=shown, width=900).print(plan_view(plan))
    report = plan_report(plan).proof
    assert PlanDocument.from_plan(plan).certificate.explanation == report.explanation
    assert "no time to price 1,234 candidates" in report.explanation
    assert "mixes of GPU kinds have at most 3" in report.explanation
    assert "for 1,234 there was no time" in report.candidates
    for sentence in (report.verdict, report.explanation, report.candidates, report.hint):
        assert sentence in shown.getvalue()


def test_objective_has_its_own_unit_in_the_certificate() -> None:
    """A bound in dollars is not printed as seconds."""
    figures = dict(proof(small_plan().certificate, Objective.COST).figures)
    assert figures["no plan can beat"] == "0.4990 USD per step"


def test_degrees_of_one_are_named_only_where_everybody_looks_for_them() -> None:
    """TP, PP and DP always; context, expert and virtual stages where they are used."""
    assert [degree.short for degree in degrees(Degrees())] == ["TP", "PP", "DP"]
    assert [degree.short for degree in degrees(Degrees(expert=4))] == ["TP", "PP", "DP", "EP"]
    assert [degree.short for degree in degrees(Degrees(expert_tensor=2))] == ["TP", "PP", "DP", "ETP"]


def test_summary_of_the_small_plan() -> None:
    """Throughput, settings and the alternative as the page words them."""
    plan = small_plan()
    assert dict(headline(plan))["throughput"] == "32,768 tokens/s"
    assert dict(settings(plan.configuration, small_workload()))["micro-batches per replica and step"] == "4"
    assert dict(settings(plan.configuration, small_workload()))["layers of each stage"] == "2 in each of 2 stages"
    rules = PlacementRules(spread=(Spread(RankGroup.DATA, "leaf", 2),), spares=(Spares(1),), require_nodes=("n0",))
    ruled = replace(small_workload(), placement=rules)
    told = dict(settings(plan.configuration, ruled))["placement rules"]
    assert told == "spread data over leaf (at least 2); 1 spare; with n0"
    limit_bytes = max(stage.limit_bytes for stage in plan.memory)
    too_large = replace(plan.alternatives[0], slower_by=-0.2, peak_memory_bytes=2 * limit_bytes)
    with_too_large = plan_report(replace(plan, alternatives=(*plan.alternatives, too_large)))
    assert [other.slower for other in with_too_large.alternatives] == ["10.0 %", "too large"]


def test_schedule_shows_only_the_replica_and_window_asked_for() -> None:
    """The second half of the small timeline holds the end of one backward and all of another."""
    timeline = small_plan().timeline
    whole = schedule(timeline, Window())
    assert whole is not None
    assert len(whole.drawing.boxes) == 4
    half = schedule(timeline, Window(zoom=2, part=1))
    assert half is not None
    assert [row.boxes for row in half.rows] == [1, 1]
    assert all(box.x >= 74 for box in half.drawing.boxes)


@given(st.integers(-5, 99), st.integers(-5, 99), st.integers(-5, 99))
def test_any_window_asked_for_becomes_one_that_exists(replica: int, zoom: int, part: int) -> None:
    """Numbers from an address bar never break the page."""
    shown = schedule(small_plan().timeline, Window(replica, zoom, part))
    assert shown is not None
    assert shown.window.replica == 0
    assert 0 <= shown.window.part < shown.window.zoom


def test_the_whole_step_is_in_view_however_many_boxes_it_has() -> None:
    """Boxes too short to be seen are drawn as one, which ends where the last of them does; a gap stays a gap."""
    ways = ("forward", "backward")
    events = [TimelineEvent(f"{ways[at % 2]} {at}", ways[at % 2], 0, 0, at * 1.0, 1.0) for at in range(20_000)]
    events.append(TimelineEvent("optimizer step", "optimizer", 0, 0, 30_000.0, 500.0))
    shown = schedule(events, Window())
    assert shown is not None
    assert shown.window == Window(replica=0, zoom=1, part=0)
    assert len(shown.drawing.boxes) <= MOST_BOXES
    assert "look closer" in shown.left_out
    *_, run, last = sorted(shown.drawing.boxes, key=lambda box: box.x)
    assert last.style == "event-optimizer"
    assert run.x + run.width < last.x - 100
    closer = schedule(events[:50], Window())
    assert closer is not None
    assert len(closer.drawing.boxes) == 50
    assert closer.left_out == ""


def test_gradients_of_weights_are_work_of_their_own() -> None:
    """Where a schedule runs them apart they have their colour, their name, and count as busy."""
    events = [TimelineEvent(f"{name} 0", name, 0, 0, at, 1.0) for at, name in enumerate(("backward", "weights"))]
    shown = schedule([*events, TimelineEvent("gather", "gather", 0, 0, 2.0, 1.0)], Window())
    assert shown is not None
    assert shown.rows[0].busy == seconds(2.0)
    assert ("event-weights", "gradients of weights") in [(key.style, key.text) for key in shown.drawing.legend]


def test_no_timeline_makes_no_schedule() -> None:
    """A plan without a timeline has no such section."""
    assert schedule((), Window()) is None


def test_heat_map_marks_what_was_not_measured() -> None:
    """Two of six directed links were measured; the four others are crossed out, and all have a shade."""
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
