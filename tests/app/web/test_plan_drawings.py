"""Drawings of a plan: racks, the axis of steps, bars by stage, waterfalls of losers."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.presentation.crossings import Places, busiest_sentence, crossing_sentence, crossing_stages, places
from app.presentation.plan_lead import lead_sentence
from app.web.drawing import round_ratios
from app.web.planning.rack_map import rack_map
from app.web.planning.stage_times import stage_times
from app.web.planning.step_axis import step_axis
from app.web.planning.waterfall import waterfall
from cluster_models.training.plan import BusiestStage
from cluster_models.training.rank_costs import StageTime, TimeBreakdown
from cluster_models.training.workload import Objective
from tests.plans import small_cluster, small_plan, small_workload


def test_groups_that_cross_are_named_and_outlined() -> None:
    """The small plan has tensor groups inside nodes; with its two nodes on two leaves only the pipeline crosses."""
    plan = small_plan()
    nodes = tuple(
        replace(node, labels={"leaf": leaf}) for node, leaf in zip(small_cluster().nodes, "xyx", strict=True)
    )
    where = places(replace(small_cluster(), nodes=nodes), plan.placement.hosts)
    assert where.kind == "leaf"
    crossing = crossing_stages(plan, where)
    assert crossing == {"tensor parallel": (), "data parallel": ()}
    assert "stay on one leaf" in crossing_sentence(crossing, where, 2)
    turned = {"a": "b", "b": "a"}
    swapped = tuple(
        replace(rank, node=turned[rank.node] if rank.tensor and rank.pipeline else rank.node)
        for rank in plan.placement.ranks
    )
    broken = replace(plan, placement=replace(plan.placement, ranks=swapped))
    crossing = crossing_stages(broken, where)
    assert crossing["tensor parallel"] == (1,)
    assert "Tensor parallel groups of 1 stage (1) cross leaves." in crossing_sentence(crossing, where, 2)
    outlined = [box for box in rack_map(broken, where, crossing).boxes if "ringed" in box.style]
    assert outlined
    assert all("stage 1" in box.tip for box in outlined)


def test_racks_of_many_hosts_stand_in_columns_by_name() -> None:
    """A cell a host, each place a line in two columns; an outline around everything would say nothing."""
    plan = small_plan()
    first = plan.placement.ranks[0]
    hosts = tuple(f"h{number:03d}" for number in range(320))
    ranks = tuple(replace(first, rank=n, node=host, pipeline=n % 2) for n, host in enumerate(hosts))
    many = replace(plan, placement=replace(plan.placement, hosts=hosts, ranks=ranks, gpus_per_node=1))
    where = Places("leaf", {host: f"leaf{31 - n // 10:02d}" for n, host in enumerate(hosts)})
    drawn = rack_map(many, where, {"tensor parallel": (0, 1)})
    assert len(drawn.boxes) == 320
    assert drawn.width >= max(box.x + box.width for box in drawn.boxes)
    assert drawn.height < 320
    assert [word.text for word in drawn.words] == sorted(f"leaf{number:02d}" for number in range(32))
    assert len({word.x for word in drawn.words}) == 2
    assert "Every stage has a group that crosses." in drawn.description
    assert not [box for box in drawn.boxes if "ringed" in box.style]


@given(
    changes=st.lists(st.floats(0, 3.0), min_size=8, max_size=8),
    base=st.lists(st.floats(0.01, 3.0), min_size=8, max_size=8),
)
def test_a_waterfall_adds_up_to_the_loss_as_printed(changes: list[float], base: list[float]) -> None:
    """From the plan's bar through every signed part to the other's, digit by digit."""
    own, its = (TimeBreakdown(sum(parts), *parts) for parts in (base, changes))
    figures = [word.text for word in waterfall(its, own, "other").words if word.style == "figure"]
    first, *parts, last = (round(float(text.split()[0]) * 1000) for text in figures)
    assert first + sum(parts) == last


def test_a_loser_says_where_its_busiest_stage_lies() -> None:
    """By nodes, and by racks where nodes have them; nothing of one that was not placed."""
    other = small_plan().alternatives[0]
    assert busiest_sentence(other, Places("node", {})) == ""
    placed = replace(other, busiest=BusiestStage(1, ("n3", "n7"), 0.136, 0.07))
    told = busiest_sentence(placed, Places("rack", {"n3": "r2", "n7": "r3"}))
    assert told == (
        "Its busiest stage, 1 of 2, lies on n3, n7 (rack r2, r3): a micro-batch takes 136.0 ms there, "
        "70.00 ms on the median one. "
    )
    assert "(" not in busiest_sentence(placed, Places("node", {}))


@given(extent=st.floats(0.09, 3.0), apart=st.floats(0.01, 0.5))
def test_axes_of_ratios_are_marked_at_round_percents(extent: float, apart: float) -> None:
    """1 among them, none outside, none too near to another."""
    marks = round_ratios(extent, apart=apart)
    logs = [math.log(mark) for mark in marks]
    assert 0.0 in logs
    assert max(map(abs, logs)) <= extent
    assert all(after - before >= apart - 1e-12 for before, after in pairwise(logs))
    assert round_ratios(0.2, apart=0.08) == (0.9, 1.0, 1.1, 1.2)


def test_bars_by_stage_fill_the_step_and_mark_the_slowest() -> None:
    """Each bar is as long as the step, and the stage that works longest is named."""
    slow = TimeBreakdown(1.0, 0.8, 0.0, 0.0, 0.0, 0.1, 0.0, 0.05, 0.05)
    quick = replace(slow, compute_s=0.5, pipeline_bubble_s=0.4)
    stages = [StageTime(index, 0.1, 0.2, 0.0, "", time) for index, time in enumerate((quick, slow))]
    drawn = stage_times(stages, 1.0)
    assert drawn is not None
    assert drawn.description.startswith("Stage 1 works longest")
    ends = {box.y: max(other.x + other.width for other in drawn.boxes if other.y == box.y) for box in drawn.boxes}
    assert len(ends) == 2
    assert len({round(end, 6) for end in ends.values()}) == 1
    assert stage_times([replace(stages[0], time=None)], 1.0) is None


def test_the_axis_has_the_bound_the_plan_and_every_loser_that_fits() -> None:
    """One mark each, in order from left to right."""
    plan = small_plan()
    drawn = step_axis(plan, Objective.STEP_TIME)
    assert sum(box.style == "dot-loser" for box in drawn.boxes) == len(plan.alternatives)
    at = {box.style: box.x for box in drawn.boxes}
    assert at["bar-proof"] <= at["dot-plan"] + 10 <= at["dot-loser"] + 10
    assert lead_sentence(plan, small_workload()).endswith("space can be more than 0.20 % faster.")
