"""How long decisions after failures take, how far they are proven, and what they gain over spares first come.

    python -m benchmarks.replanning [--limit S] [--json]

The clusters and jobs are made up (``benchmarks.replanning_cases``); every decision is checked.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from benchmarks.first_come import first_come
from benchmarks.replanning_cases import KINDS, SMALLER, leaf_lost, one_node_lost
from cluster_models.jobs.recovery import BatchDecision
from solver.replanning.check import check_decision
from solver.replanning.decide import decide, safe_answer
from solver.replanning.problem import ReplanOptions, ReplanProblem

CASES: Final[tuple[tuple[str, Callable[[], ReplanProblem], float], ...]] = (
    ("one node lost, a spare on its leaf", one_node_lost, 15.0),
    ("20 jobs, 128 nodes, 4 of a leaf lost", lambda: leaf_lost(20, 128, 4, spares=2, kinds=KINDS), 15.0),
    ("200 jobs, 1,024 nodes, a leaf lost", lambda: leaf_lost(200, 1024, 16, spares=8, kinds=SMALLER), 60.0),
)
"""Name, problem, and the seconds aimed at for the decision; the safe answer is to come within one."""
REPEATS: Final = 3
"""Repeats of the safe answer, of which the fastest counts: others disturb what takes so little."""


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision.

    ``seconds`` are of the processor, so that other processes do not count.  ``value_flop`` is useful work over the
    horizon less what the move costs, weighted.
    """

    seconds: float
    actions: dict[str, int]
    moved_ranks: int
    moved_bytes: float
    value_flop: float
    gap: float
    stopped_by: str


@dataclass(frozen=True, slots=True)
class Case:
    """The three answers to one batch of failures."""

    case: str
    aim_s: float
    touched: int
    spares: int
    safe: Decided
    best: Decided
    first_come: Decided


def measured(limit_s: float | None = None) -> list[Case]:
    """All cases, one after the other.  Compiled code is loaded before; links are worked out anew each time.

    ``limit_s``: the time limit of a decision where that is not what is aimed at.
    """
    found = []
    for name, make, aim_s in CASES:
        problem = make()
        safe = min((_timed(problem, safe_answer) for _ in range(REPEATS)), key=lambda decided: decided.seconds)
        options = ReplanOptions(time_limit_s=limit_s or aim_s)
        best = _timed(problem, lambda asked, options=options: decide(asked, options))
        plain = _timed(problem, first_come)
        found.append(Case(name, aim_s, sum(best.actions.values()), len(problem.spares), safe, best, plain))
    return found


def _timed(problem: ReplanProblem, answer: Callable[[ReplanProblem], BatchDecision]) -> Decided:
    fresh = replace(problem)
    started = time.process_time()
    decision = answer(fresh)
    seconds = time.process_time() - started
    wrong = check_decision(problem, decision)
    assert not wrong, wrong
    return Decided(
        seconds,
        dict(sorted(Counter(str(made.action) for made in decision.jobs).items())),
        sum(len(made.migration.moved) for made in decision.jobs),
        sum(made.migration.bytes.total for made in decision.jobs),
        decision.objective,
        decision.gap,
        str(decision.stopped_by),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replanning", description="decisions after failures")
    parser.add_argument("--limit", type=float, help="time limit of a decision in seconds by the clock")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    asked = parser.parse_args(arguments)
    found = measured(asked.limit)
    if asked.json:
        print(json.dumps([asdict(case) for case in found], indent=2))
        return 0
    for case in found:
        print(f"{case.case}: {case.touched} jobs touched, {case.spares} spares (aims: 1 s and {case.aim_s:.0f} s)")
        for name, decided in (("safe", case.safe), ("best", case.best), ("first come", case.first_come)):
            gap = f"gap {100 * decided.gap:.2f} % ({decided.stopped_by})" if name == "best" else ""
            actions = ", ".join(f"{count} {action}" for action, count in decided.actions.items())
            moved = f"{decided.moved_ranks:4d} ranks {decided.moved_bytes / 1e9:8.1f} GB"
            print(
                f"  {name:<10} {decided.seconds:6.2f} s  {decided.value_flop:.4g} FLOP  {moved}  {actions}  {gap}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
