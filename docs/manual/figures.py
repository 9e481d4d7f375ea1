"""Draws the figures of the manual with the drawings of the pages: ``make figures``.

    python docs/manual/figures.py [FOLDER]

Each is a file that shows itself light or dark by what the reader's system asks for.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from app.cli.failures.failure_options import ToldFailures, looked_up, reported
from app.cli.failures.replan_options import TypedJobs, read_jobs
from app.cli.files import read_architecture, read_snapshot, read_workload
from app.presentation.crossings import crossing_stages, places
from app.services.decisions.replan_views import AnswerView
from app.web.drawing import Box, Drawing, Key, Line, Words
from app.web.failures.seats import seats_before_after
from app.web.planning.rack_map import rack_map
from app.web.planning.schedule import Window, schedule
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.health.conditions import conditions_of
from cluster_models.health.degraded import degraded
from cluster_models.links.model import effective_links
from cluster_models.training.plan import TimelineEvent
from solver.answer.conclusion import conclude
from solver.candidates import FloatArray
from solver.pipeline.schedule import Schedule, build_schedule
from solver.pipeline.simulation import simulate
from solver.problem import PlanningProblem, SearchOptions
from solver.replanning.joint_decision import decide_together
from solver.replanning.problem import ReplanOptions, ReplanProblem
from solver.replanning.shared import SharedProblem
from solver.search import Searched, promising_space, search_within
from solver.search_state import SearchState

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "examples"
STYLES: Final = ROOT / "app" / "web" / "static" / "pages.css"
EXAMPLE_S: Final = (
    np.array([[10, 10, 12.5, 10], [20, 20, 25, 20]]) / 1e3,
    np.array([[2, 6, 2, 0], [0, 2, 6, 2]]) / 1e3,
)
"""Seconds of forwards and backwards (2, 4) and of transfers (2, 4) of the example in docs/pipeline.md."""
EXAMPLE_MICRO_BATCHES: Final = 8
_ON_PATH: Final = ".on-path { stroke: var(--limit); stroke-width: 2.5; }"
_CANDIDATES: Final = 24
_KEY_WIDTH, _KEY_HEIGHT, _LETTER = 26.0, 26.0, 7.2


def main(folder: Path = ROOT / "docs" / "figures") -> None:
    """Draw all of them."""
    search, placement = searched()
    drawings = {
        "pipeline": (pipeline_example(), 17),
        "search": (search, 13),
        "placement": (placement, 12),
        "replanning": (replanned(), 12),
    }
    for name, (drawing, letters) in drawings.items():
        (folder / f"{name}.svg").write_text(svg_file(drawing, letters), encoding="utf-8")


def pipeline_example() -> Drawing:
    """The schedule of the example, with the path that decides how long it takes."""
    graph = build_schedule(4, 1, EXAMPLE_MICRO_BATCHES)
    ends = simulate(graph, *EXAMPLE_S)
    lasting = EXAMPLE_S[0][graph.events.kind, graph.events.chunk]
    names = [f"{'FB'[kind]}{batch}" for kind, batch in zip(graph.events.kind, graph.micro_batch, strict=True)]
    events = [
        TimelineEvent(name, ("forward", "backward")[kind], 0, int(rank), float(end - long), float(long))
        for name, kind, rank, end, long in zip(names, graph.events.kind, graph.rank, ends, lasting, strict=True)
    ]
    drawn = schedule(events, Window())
    assert drawn is not None
    path = {f"{names[event]}, stage {graph.rank[event]}:" for event in _longest_path(graph, ends, lasting)}

    def marked(box: Box) -> Box:
        on_path = box.tip[: box.tip.index(":") + 1] in path
        return replace(box, style=f"{box.style} on-path") if on_path else box

    return replace(drawn.drawing, boxes=tuple(marked(box) for box in drawn.drawing.boxes))


def _longest_path(graph: Schedule, ends: FloatArray, lasting: FloatArray) -> list[int]:
    """Events that end when the next begins, a transfer between them or none, up to the last one."""
    event, path = int(np.argmax(ends)), []
    while event >= 0:
        path.append(event)
        begins, feed, before = ends[event] - lasting[event], graph.events.feed[event], graph.events.previous[event]
        waits_for_own = before >= 0 and np.isclose(ends[before], begins)
        event = int(before if waits_for_own else feed)
    return path


def searched() -> tuple[Drawing, Drawing]:
    """The search for a plan of gpt-oss-120b on eight nodes under four leaves, and where that plan sits."""
    problem = PlanningProblem(
        read_snapshot(str(EXAMPLES / "clusters" / "h100-8-nodes-oversubscribed.yaml")),
        read_architecture("gpt-oss-120b"),
        read_workload(str(EXAMPLES / "workloads" / "gpt-oss-120b-8k.yaml")),
    )
    links, options = effective_links(problem.snapshot), SearchOptions()
    space = promising_space(problem, links, options, is_time_up=lambda: False)
    found = search_within(problem, space, options, choice=problem.workload.choice)
    assert isinstance(found, Searched)
    made = conclude(problem, options, found.state, found.stopped_by, found.chosen)
    where = places(problem.snapshot.cluster, made.placement.hosts)
    return search_drawing(found.state), rack_map(made, where, crossing_stages(made, where))


def search_drawing(state: SearchState) -> Drawing:
    """The first candidates in the order of their bounds: what each could take at best, and what it does take."""
    left, right, top, bottom, slot = 64.0, 8.0, 12.0, 40.0, 26.0
    height, width = 260.0, left + right + slot * _CANDIDATES
    bounds = state.first_bounds[:_CANDIDATES].tolist()
    order = np.argsort(state.candidates.bound_s * state.candidates.weight, kind="stable")
    fits = order[state.candidates.excess_bytes[order] <= 0][:_CANDIDATES].tolist()
    steps = [state.objective(index) if index in state.known else None for index in fits]
    low, high = bounds[0], max(step or 0.0 for step in steps)
    low, high = low - 0.06 * (high - low), high + 0.03 * (high - low)

    def down(seconds: float) -> float:
        return height - bottom - (height - top - bottom) * (seconds - low) / (high - low)

    boxes, best = [], down(state.best_objective)
    for number, (bound, step) in enumerate(zip(bounds, steps, strict=True)):
        x, lowest = left + slot * number + 4, down(bound)
        if step is not None:
            boxes.append(Box(x + 6, down(step), slot - 20, lowest - down(step), "hue-6"))
            boxes.append(Box(x, down(step) - 2, slot - 8, 4, "part-4", f"placed: {step:.3f} s"))
        boxes.append(Box(x, lowest - 2, slot - 8, 4, "part-1", f"bound: {bound:.3f} s"))
    axis = height - bottom
    return Drawing(
        width=width,
        height=height,
        name="A search with its bounds",
        description=f"{_CANDIDATES} candidates by their bounds; none after the line can be the best.",
        boxes=tuple(boxes),
        lines=(Line(left, axis, width - right, axis, "axis"), Line(left, best, width - right, best, "limit-line")),
        words=(
            *(Words(left - 8, down(each) + 4, f"{each:.2f} s", anchor="end") for each in (bounds[0], high)),
            Words(left - 8, best + 4, f"{state.best_objective:.2f} s", "strong", "end"),
            Words((left + width) / 2, axis + 22, "candidates, in the order of their bounds", anchor="middle"),
        ),
        legend=(
            Key("part-1", "could take at best"),
            Key("part-4", "takes, placed"),
            Key("hue-6", "what placing costs"),
        ),
    )


def replanned() -> Drawing:
    """Who sits where before and after the decision of the README."""
    folder = EXAMPLES / "failures"
    snapshot = read_snapshot(str(folder / "cluster.yaml"))
    with TemporaryDirectory() as made:
        plans = []
        for job in ("pretrain", "tuning"):
            kept = Path(made, f"{job}.json")
            command = ("plan", "--cluster", "cluster.yaml", "--model", "llama-3-8b", "--workload", f"{job}.yaml")
            subprocess.run(  # noqa: S603 - our own command
                (Path(sys.executable).with_name("meshwright"), *command, "--output", kept),
                cwd=folder,
                check=True,
                stdout=-3,
            )
            plans.append(f"{job}={kept}")
        jobs = read_jobs(TypedJobs(plans, (), [str(folder / "policy.yaml")]), snapshot.cluster)
    told = looked_up(reported(ToldFailures(("n2",), (), ()), snapshot.cluster), snapshot.cluster)
    events = tuple(each.event for each in told)
    left: ClusterSnapshot = degraded(snapshot, conditions_of(events, now=datetime.now(UTC)))
    problem = ReplanProblem(snapshot=left, jobs=jobs, spares=("n4", "n8"), events=events)
    decision = decide_together(SharedProblem(problem, ()), ReplanOptions())
    answer = AnswerView(decision, {job.id: job.plan for job in jobs}, cluster=left.cluster)
    drawn = seats_before_after(answer, decision.jobs)
    assert drawn is not None
    return drawn


def svg_file(drawing: Drawing, letters: float) -> str:
    """The drawing with its legend on top, as a file of its own; ``letters`` is their height in pixels."""
    head = _KEY_HEIGHT if drawing.legend else 0.0
    width, height = drawing.width, drawing.height + head
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}"',
        f'height="{height:g}" role="img" aria-label={quoteattr(f"{drawing.name}. {drawing.description}")}>',
        f"<style>{escape(_styles(letters))}</style>",
        '<rect width="100%" height="100%" style="fill: var(--panel)"/>',
        *_legend(drawing, letters),
        f'<g transform="translate(0 {head:g})">',
        *map(_line, drawing.lines),
        *map(_box, drawing.boxes),
        *map(_words, drawing.words),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend(drawing: Drawing, letters: float) -> list[str]:
    parts, x = [], 12.0
    for key in drawing.legend:
        parts += [_box(Box(x, 6, 14, 14, key.style)), _words(Words(x + 20, 6 + 12, key.text))]
        x += _KEY_WIDTH + 12 + len(key.text) * _LETTER * letters / 12
    return parts


def _box(box: Box) -> str:
    tip = f"<title>{escape(box.tip)}</title>" if box.tip else ""
    size = f'x="{box.x:.5g}" y="{box.y:.5g}" width="{box.width:.4g}" height="{box.height:.4g}"'
    return f'<rect {size} class="{box.style}">{tip}</rect>'


def _line(line: Line) -> str:
    ends = f'x1="{line.x1:.5g}" y1="{line.y1:.5g}" x2="{line.x2:.5g}" y2="{line.y2:.5g}"'
    return f'<line {ends} class="{line.style}"/>'


def _words(words: Words) -> str:
    place = f'x="{words.x:.5g}" y="{words.y:.5g}" text-anchor="{words.anchor}"'
    return f'<text {place} class="{words.style}">{escape(words.text)}</text>'


def _styles(letters: float) -> str:
    """Colours of the pages, and their rules for drawings."""
    text = STYLES.read_text(encoding="utf-8")
    colours = text[text.index(":root") : text.index("* { box-sizing")]
    rules = [line.strip() for line in text.splitlines() if line.strip().startswith((*_DRAWN, "svg text", "svg ."))]
    family = "svg { font-family: system-ui, sans-serif; }"
    sizes = f"svg text {{ font-size: {letters:g}px; }} svg .in-box {{ font-size: {0.85 * letters:g}px; }}"
    return "\n".join([colours, *rules, family, sizes, _ON_PATH])


_DRAWN: Final = (
    ".part-",
    ".event-",
    ".hue-",
    ".seat-cell",
    ".seat-moved",
    ".seat-lost",
    ".kept-free",
    "rect.line-",
)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
