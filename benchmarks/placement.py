"""Places a pipeline on nodes whose links are as measured, with a bound; without flags, compares with others.

    python -m benchmarks.placement --bandwidth CSV --dp R --pp S --forward-s F --backward-s B --activation-bytes A
        --gradient-bytes G --micro-batches M [--seconds T] [--seed N] [--json]
    python -m benchmarks.placement [compare [--help] ...]

``benchmarks.placement_grid`` says what a step is.  Bad input: one line on standard error, exit code 2.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.placement_grid import (
    InvalidQuestion,
    KnownLinks,
    QuestionParser,
    Training,
    grid_problem,
    known_links,
    rank_orders,
    read_bandwidth,
)
from solver.candidates import IntArray
from solver.compiled import step_seconds
from solver.placement.solve import PlacementOutcome, SolveOptions, solve_placement

MARGIN: Final = 0.02
MARGIN_S: Final = 0.25
"""Kept back from the seconds asked for: the last slice of work, printing, and the interpreter's end."""
ROUNDS: Final = 60
"""More than any time allows: the seconds end the search."""
SHOWN_LINKS: Final = 5
COMPARE: Final = "compare"


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """An outcome with the grid (dp, pp) of positions in ``links`` that it stands for."""

    training: Training
    links: KnownLinks
    outcome: PlacementOutcome
    given_s: float
    seconds: float

    @property
    def grid(self) -> IntArray:
        """Positions of nodes, rows are replicas."""
        return self.outcome.assignment.reshape(self.training.dp, self.training.pp)

    @property
    def names(self) -> list[list[str]]:
        """The grid as node names."""
        return [[self.links.names[node] for node in row] for row in self.grid]

    @property
    def guessed(self) -> list[tuple[str, str]]:
        """Links in use that nobody measured, sender first."""
        grid, names = self.grid, self.links.names
        forward = [(a, b) for row in grid for a, b in pairwise(row)]
        around = [(a, b) for stage in grid.T for a, b in zip(stage, np.roll(stage, -1), strict=True) if a != b]
        used = sorted({*forward, *((b, a) for a, b in forward), *around})
        return [(names[a], names[b]) for a, b in used if self.links.guessed[a, b]]


def process_age_s() -> float:
    """Seconds since this process began, the start of the interpreter included."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return time.process_time()
    return uptime_s - ticks / os.sysconf("SC_CLK_TCK")


def solve(bandwidth: Path, training: Training, *, seconds: float, seed: int) -> Answer:
    """The placement found in ``seconds`` since the process began."""
    before_s = process_age_s()
    started = time.perf_counter()
    links = known_links(read_bandwidth(bandwidth), training.slots)
    problem = grid_problem(links.bytes_per_s, training)
    limit_s = seconds * (1 - MARGIN) - MARGIN_S - before_s
    given_s = min(step_seconds(order, problem.arrays)[0] for order in rank_orders(training))
    outcome = solve_placement(
        problem,
        remaining_s=lambda: limit_s - (time.perf_counter() - started),
        starts=rank_orders(training),
        options=SolveOptions(seed=seed, rounds=ROUNDS),
    )
    return Answer(training, links, outcome, given_s, process_age_s())


def document(answer: Answer) -> dict[str, object]:
    """The document that ``--json`` prints."""
    return {
        "grid": answer.names,
        "step_s": answer.outcome.step_s,
        "bound_s": answer.outcome.bound_s,
        "gap": answer.outcome.gap,
        "seconds": round(answer.seconds, 3),
        "guessed_links": [list(pair) for pair in answer.guessed],
        "unmeasured_nodes_left_out": list(answer.links.left_out),
    }


def summary(answer: Answer) -> str:
    """The same for people."""
    outcome, given_s = answer.outcome, answer.given_s
    width = max(len(name) for row in answer.names for name in row)
    rows = [f"replica {r:<3} " + "  ".join(name.ljust(width) for name in row) for r, row in enumerate(answer.names)]
    proven = "proven optimal" if outcome.gap <= 0 else f"at most {outcome.gap:.3%} above the best there can be"
    lines = [
        *rows,
        f"step          {outcome.step_s:.6g} s, {proven} (bound {outcome.bound_s:.6g} s)",
        f"rank order    {given_s:.6g} s: the placement saves {(given_s - outcome.step_s) / given_s:.2%}",
        f"time          {answer.seconds:.1f} s",
    ]
    if answer.guessed:
        shown = ", ".join(f"{a} to {b}" for a, b in answer.guessed[:SHOWN_LINKS])
        more = len(answer.guessed) - SHOWN_LINKS
        lines.append(
            f"not measured  {shown}{f' and {more} more' if more > 0 else ''}: taken for the slowest measured link"
        )
    if answer.links.left_out:
        lines.append(f"left out      {', '.join(answer.links.left_out)}: no link of theirs was measured")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = QuestionParser(prog="python -m benchmarks.placement", description=__doc__.split("\n", maxsplit=1)[0])
    add = parser.add_argument
    add("--bandwidth", type=Path, required=True, metavar="CSV", help="square matrix of GB/s with node names")
    add("--dp", type=int, required=True, metavar="R", help="replicas: rows of the grid")
    add("--pp", type=int, required=True, metavar="S", help="stages: columns of the grid")
    add("--forward-s", type=float, required=True, metavar="F", help="forward of one micro-batch on one stage")
    add("--backward-s", type=float, required=True, metavar="B", help="backward of the same")
    add("--activation-bytes", type=float, required=True, metavar="A", help="sent between stages, each way")
    add("--gradient-bytes", type=float, required=True, metavar="G", help="all-reduced by each stage")
    add("--micro-batches", type=int, required=True, metavar="M", help="of one replica in a step")
    add("--seconds", type=float, default=60.0, metavar="T", help="time to answer, start included (default 60)")
    add("--seed", type=int, default=0, metavar="N", help="of the search (default 0)")
    add("--json", action="store_true", help="print the answer as JSON")
    return parser


def _training(asked: argparse.Namespace) -> Training:
    if not (asked.seconds > 0 and np.isfinite(asked.seconds)):
        raise InvalidQuestion(f"--seconds must be positive, got {asked.seconds}")
    if not 0 <= asked.seed < 2**32:
        raise InvalidQuestion(f"--seed must lie between 0 and {2**32 - 1}, got {asked.seed}")
    return Training(
        dp=asked.dp,
        pp=asked.pp,
        forward_s=asked.forward_s,
        backward_s=asked.backward_s,
        activation_bytes=asked.activation_bytes,
        gradient_bytes=asked.gradient_bytes,
        micro_batches=asked.micro_batches,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        if not given or given[0] == COMPARE:
            from benchmarks.placement_comparison import main as compare  # noqa: PLC0415 - slow, only needed here

            return compare(given[1:] if given else ["--quick"])
        asked = _parser().parse_args(given)
        answer = solve(asked.bandwidth, _training(asked), seconds=asked.seconds, seed=asked.seed)
    except InvalidQuestion as error:
        print(" ".join(f"python -m benchmarks.placement: {error}".split()), file=sys.stderr)
        return 2
    print(json.dumps(document(answer)) if asked.json else summary(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
