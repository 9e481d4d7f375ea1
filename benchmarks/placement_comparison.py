"""Compares placements: rank order, restarted descents, Pipette's annealer and the planner, on 8 to 256 nodes.

Printed are the tables of docs/placement_benchmark.md; ``--page`` puts them into it, ``--figures`` draws its curves.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Final

from benchmarks.marked_pages import has_part, put_part
from benchmarks.measured_links import SEVENTEEN_NODES
from benchmarks.placement_clusters import CLUSTERS, SHAPES, made_up_links, made_up_training
from benchmarks.placement_grid import LARGEST, InvalidQuestion, QuestionParser
from benchmarks.placement_real import gain, measured_twice
from benchmarks.placement_rivals import Course, annealed, planned, rank_order, restarted

SECONDS: Final = {8: 2.0, 16: 20.0, 32: 30.0, 64: 40.0, 128: 80.0, 256: 120.0}
"""Time the planner is given, by number of nodes."""
AIMED_GAP: Final = {8: 0.0, 16: 0.001, 32: 0.005, 64: 0.01, 128: 0.02, 256: 0.02}
SHARE: Final = 0.1
"""Share of that time in which the planner's search, and the rivals, are compared; the annealer has ten shares."""
REAL_SECONDS: Final = 3.0
MADE_UP: Final = {"even": "made-up clusters", "steep": "steep clusters", "enlarged": "enlarged clusters"}
REAL: Final = "real clusters"
MADE_UP_HEAD: Final = (
    "| nodes | seed | grid | rank order | restarts | annealer | planner | bound | gap | aim "
    "| found after | of | of CPUs |"
)
REAL_HEAD: Final = "| links | grid | promised | kept | noise | kept / noise | more than noise |"


def courses_on(
    nodes: int, *, seed: int, full: bool, share: float, kind: str = "even", processor_s: float = 0.0
) -> dict[str, Course]:
    """Every method on one made-up cluster; the planner has ``processor_s`` of processors where that is above 0."""
    links, training = CLUSTERS[kind].links(nodes, seed), CLUSTERS[kind].training(nodes)
    short = SECONDS[nodes] * share
    return {
        "rank order": rank_order(links, training),
        "restarts": restarted(links, training, seconds=short),
        "annealer": annealed(links, training, seconds=10 * short),
        "planner": planned(links, training, seconds=processor_s, clock=time.process_time)
        if processor_s > 0
        else planned(links, training, seconds=SECONDS[nodes] if full else short),
    }


def made_up_row(nodes: int, seed: int, courses: dict[str, Course]) -> str:
    """One row of a table of made-up clusters."""
    plan = courses["planner"]
    steps = " | ".join(f"{courses[name].step_s:.4f}" for name in ("rank order", "restarts", "annealer", "planner"))
    dp, pp = SHAPES[nodes]
    return (
        f"| {nodes} | {seed} | {dp} x {pp} | {steps} | {plan.bound_s:.4f} | {1 - plan.bound_s / plan.step_s:.2%} "
        f"| {AIMED_GAP[nodes]:.1%} | {plan.found_s:.1f} s | {plan.seconds:.1f} s | {plan.cpu_s:.1f} s |"
    )


def real_rows(seconds: float) -> Iterator[str]:
    """The rows of the table of real clusters."""
    for twice in measured_twice():
        for shape in twice.shapes:
            found = gain(twice, shape, seconds=seconds)
            yield (
                f"| {found.name} | {shape[0]} x {shape[1]} | {found.promised:.2%} | {found.kept:.2%} "
                f"| {found.noise:.2%} | {found.kept / found.noise:.1f} "
                f"| {'yes' if found.kept > found.noise else 'no'} |"
            )


def shown(head: str, rows: Iterable[str]) -> str:
    """A table, each row printed as soon as it is known."""
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    print("\n".join(["", *lines]))
    for row in rows:
        print(row, flush=True)
        lines.append(row)
    return "\n".join(lines)


def _check(asked: argparse.Namespace) -> None:
    """Raise ``InvalidQuestion`` for what would end a long run without its results."""
    if not 0 < asked.share <= LARGEST:
        raise InvalidQuestion(f"--share must be positive, got {asked.share}")
    if not 0 <= asked.processor_seconds <= LARGEST:
        raise InvalidQuestion(f"--processor-seconds must not be negative, got {asked.processor_seconds}")
    if min(asked.seeds) < 0:
        raise InvalidQuestion(f"--seeds must not be negative, got {min(asked.seeds)}")
    if asked.clusters == "enlarged" and not SEVENTEEN_NODES.exists():
        raise InvalidQuestion("--clusters enlarged needs the measurements of 17 nodes, which are not there")
    tables = (MADE_UP[asked.clusters], REAL)
    if asked.page is not None and not all(has_part(asked.page, name) for name in tables):
        raise InvalidQuestion(f"--page {asked.page} is not a page with the marks of the two tables")
    if asked.figures is not None and asked.figures.exists() and not asked.figures.is_dir():
        raise InvalidQuestion(f"--figures {asked.figures} is not a folder")


def main(arguments: Sequence[str]) -> int:
    """Command line of the comparison."""
    parser = QuestionParser(prog="python -m benchmarks.placement compare", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SHAPES), choices=list(SHAPES), metavar="N")
    parser.add_argument("--clusters", choices=list(CLUSTERS), default="even", help="kind of cluster (default even)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of the made-up clusters (default 1)")
    parser.add_argument("--quick", action="store_true", help="give the planner a tenth of its time as well")
    parser.add_argument("--share", type=float, default=SHARE, help=f"time of the rivals (default {SHARE})")
    parser.add_argument(
        "--processor-seconds", type=float, default=0.0, help="of the planner, where other work shares the cores"
    )
    parser.add_argument("--no-real", action="store_true", help="leave the real clusters out")
    parser.add_argument("--page", type=Path, help="page whose tables to renew")
    parser.add_argument("--figures", type=Path, help="folder to write the curves to")
    asked = parser.parse_args(arguments)
    _check(asked)
    _warm_up()
    courses: dict[int, dict[str, Course]] = {}

    def rows() -> Iterator[str]:
        for nodes, seed in product(asked.sizes, asked.seeds):
            found = courses_on(
                nodes,
                kind=asked.clusters,
                seed=seed,
                full=not asked.quick,
                share=asked.share,
                processor_s=asked.processor_seconds,
            )
            courses.setdefault(nodes, found)
            yield made_up_row(nodes, seed, found)

    tables = {MADE_UP[asked.clusters]: shown(MADE_UP_HEAD, rows())}
    if not asked.no_real and any(measured_twice()):
        tables[REAL] = shown(REAL_HEAD, real_rows(REAL_SECONDS))
    if asked.page:
        for name, table in tables.items():
            put_part(asked.page, name, table)
    if asked.figures:
        from benchmarks.placement_charts import draw_courses, draw_gaps  # noqa: PLC0415 - a dependency of tests

        draw_courses(courses, asked.figures / "placement_courses.svg")
        draw_gaps(courses, asked.figures / "placement_gaps.svg")
    return 0


def _warm_up() -> None:
    """Every method once, so that none is charged for being compiled."""
    links, training = made_up_links(8, 0), made_up_training(8)
    for method in (restarted, annealed, planned):
        method(links, training, seconds=0.1)
    planned(made_up_links(16, 0), made_up_training(16), seconds=1.0)
