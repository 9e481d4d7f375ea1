"""A plan as data: ranks as CSV, the whole plan as JSON, the timeline for Perfetto."""

from __future__ import annotations

import csv
import io
import json
from typing import Final

from app.documents.plan import PlanDocument
from app.exports.arithmetic import check_layers, check_world, expert_rank, expert_tensor_rank
from app.exports.contract import JSON, View
from cluster_models.errors import InvalidConfiguration
from cluster_models.training.plan import Plan
from cluster_models.units import MICROSECOND


def render_csv(plan: Plan) -> str:
    """A line for each rank: node, GPU and coordinates."""
    check_world(plan)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["rank", "node", "gpu", "tensor", "context", "data", "pipeline", "expert", "expert_tensor"])
    for place in plan.placement.ranks:
        table.writerow(
            [
                place.rank,
                _text(place.node),
                place.gpu,
                place.tensor,
                place.context,
                place.data,
                place.pipeline,
                expert_rank(place, plan.configuration.degrees),
                expert_tensor_rank(place, plan.configuration.degrees),
            ]
        )
    return text.getvalue()


def _text(cell: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def render_json(plan: Plan) -> str:
    """The plan document, timeline included."""
    check_world(plan)
    check_layers(plan)
    return PlanDocument.from_plan(plan).model_dump_json(indent=2) + "\n"


def render_perfetto(plan: Plan) -> str:
    """The timeline as trace events: a process for each replica, a thread for each pipeline rank.

    Format: "Trace Event Format" (Chromium project), complete events (``X``) with times in microseconds.
    """
    if not plan.timeline:
        raise InvalidConfiguration(
            "timeline", [], "the plan document has no timeline", "export a plan written with its timeline"
        )
    tracks = sorted({(event.replica, event.track) for event in plan.timeline})
    names = [
        {"ph": "M", "name": "process_name", "pid": replica, "args": {"name": f"data parallel rank {replica}"}}
        for replica in sorted({replica for replica, _ in tracks})
    ]
    threads = [
        {"ph": "M", "name": "thread_name", "pid": replica, "tid": track, "args": {"name": f"stage {track}"}}
        for replica, track in tracks
    ]
    boxes = [
        {
            "ph": "X",
            "name": event.name,
            "cat": event.category,
            "pid": event.replica,
            "tid": event.track,
            "ts": event.start_s / MICROSECOND,
            "dur": event.duration_s / MICROSECOND,
        }
        for event in plan.timeline
    ]
    return json.dumps({"traceEvents": [*names, *threads, *boxes], "displayTimeUnit": "ms"}) + "\n"


EXPORTS_HERE: Final = (
    View("perfetto", "timeline.json", JSON, "Timeline for the Perfetto viewer", render_perfetto),
    View("csv", "ranks.csv", "text/csv", "Place and coordinates of every rank", render_csv),
    View("json", "plan.json", JSON, "The whole plan", render_json),
)
