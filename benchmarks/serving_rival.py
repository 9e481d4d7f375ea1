"""Serving predictions and plans beside those of aiconfigurator, where it is installed.

    python -m benchmarks.serving_rival --table FILE [--table FILE] [--rows N] [--seed N] [--python INTERPRETER]

``--python`` is an interpreter that has aiconfigurator, ``$AICONFIGURATOR_PYTHON`` or this one where not given: it
needs other versions of libraries that both use, so give it an environment of its own.

Both predict published rows that state their configuration: ours once as shipped, which was fitted to them, and once
each by fits that saw no run of the model, or none of the engine on that kind of GPU.  Aiconfigurator interpolates
operators measured on each kind.
"""

from __future__ import annotations

import argparse
import os
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.rows import rows_of, text
from benchmarks.serving_choice import choices_of
from benchmarks.serving_fit import (
    fitted_to,
    held_out_figures,
    measured_figures,
    model_of,
    pair_of,
    problem_of,
)
from benchmarks.serving_rival_plans import OwnPlan, own_plans, plan_rows
from benchmarks.serving_rival_questions import CHECKPOINTS, SYSTEMS, ask, question_of, why_not
from benchmarks.serving_rows import MeasuredServing, serving_runs
from cluster_models.errors import InvalidInput
from solver.serving.fitting import predicted_figures
from solver.serving.loads import FloatArray
from solver.serving.rates import rates_of

FIGURES: Final = ("time per output token", "time to first token")
LEAST_ROWS: Final = 5


@dataclass(frozen=True, slots=True)
class Rival:
    """Predictions of one side: (n, 2) seconds per output token and to the first, NaN where it refuses."""

    name: str
    figures: FloatArray


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_rival", description=__doc__)
    parser.add_argument("--table", type=Path, action="append", required=True, help="measured rows; repeatable")
    parser.add_argument("--rows", type=int, default=100, help="about how many rows both predict (1 s each)")
    parser.add_argument("--seed", type=int, default=0, help="which rows")
    parser.add_argument(
        "--python",
        default=os.environ.get("AICONFIGURATOR_PYTHON", sys.executable),
        help="interpreter that has aiconfigurator",
    )
    given = parser.parse_args(arguments)
    if (lacking := why_not(given.python)) is not None:
        print(lacking, file=sys.stderr)
        return os.EX_UNAVAILABLE
    try:
        runs = fitted_to(serving_runs(rows_of(given.table))[0])
        chosen = sample(runs, rows=given.rows, seed=given.seed)
        plans = own_plans()
        questions = [estimate_question(runs[index]) for index in chosen]
        questions += [question for plan in plans for question in plan.estimate_questions]
        answers = ask(given.python, questions, [plan.plan_question for plan in plans])
    except InvalidInput as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(report(runs, chosen, plans, answers)))
    return 0


def is_comparable(run: MeasuredServing) -> bool:
    """Whether both can be asked: workers of both phases, no drafts, a checkpoint and a GPU kind that it knows."""
    case = run.case
    return (
        run.mode == "aggregated"
        and case.workload.speculation is None
        and (case.architecture.name, case.workload.weights.value) in CHECKPOINTS
        and case.gpu.name in SYSTEMS
        and case.workload.engine.family in ("vllm", "sglang", "trtllm")
    )


def sample(runs: Sequence[MeasuredServing], *, rows: int, seed: int) -> list[int]:
    """Indices of about ``rows`` rows: whole groups of configurations under one load, drawn by ``seed``.

    Raises ``InvalidInput`` where there is none.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        if is_comparable(run):
            load = run.case.workload
            key = f"{model_of(run)} {pair_of(run)} {load.weights} {load.input_tokens} {load.output_tokens}"
            groups[f"{key} {run.case.concurrency}"].append(index)
    chosen: list[int] = []
    if not groups:
        raise InvalidInput("table", len(runs), "has no row that both can be asked about")
    for key in sorted(groups, key=lambda name: zlib.crc32(f"{seed} {name}".encode())):
        if len(chosen) < rows:
            chosen += groups[key]
    return chosen


def estimate_question(run: MeasuredServing) -> dict[str, Any]:
    """The row's configuration as arguments of ``cli_estimate``."""
    case = run.case
    return question_of(
        case.configuration,
        case.workload,
        requests=case.concurrency,
        checkpoint=CHECKPOINTS[case.architecture.name, case.workload.weights.value],
        system=SYSTEMS[case.gpu.name],
        sparse=case.architecture.experts is not None,
    )


def report(
    runs: Sequence[MeasuredServing], chosen: Sequence[int], plans: Sequence[OwnPlan], answers: Mapping[str, Any]
) -> Iterator[str]:
    """Tables of both figures and of plans, and how well each chooses."""
    whole = problem_of(runs)
    shipped = predicted_figures(whole.arrays, rates_of(whole.properties))
    index = np.array(chosen)
    ours = [
        Rival("ours, model unseen", held_out_figures(runs, whole, model_of, 3)[index, :2]),
        Rival("ours, engine on GPU unseen", held_out_figures(runs, whole, pair_of, 3)[index, :2]),
    ]
    estimates = answers["estimates"][: len(chosen)]
    theirs = Rival("aiconfigurator", np.array([_seconds(each) for each in estimates]).reshape(-1, 2))
    sides = [*ours, theirs, Rival("ours as shipped, fitted to them", shipped[index, :2])]
    picked = [runs[each] for each in chosen]
    truth = measured_figures(runs)[index, :2]
    known = np.isfinite(np.hstack([theirs.figures, truth]))
    both = [bool(row.all()) for row in known]
    for column, figure in enumerate(FIGURES):
        yield from ("", f"Error of the {figure}: median, and that of nine in ten rows", "")
        names = " | ".join(each.name for each in sides)
        yield f"| rows | number | {names} | share of rows where the first is nearer than aiconfigurator |"
        yield "|---|---:|" + "---:|" * (len(sides) + 1)
        for name, members in _groups(picked, both):
            errors = [np.abs(each.figures[members, column] / truth[members, column] - 1) for each in sides]
            cells = [f"{np.median(each):.1%}, {np.quantile(each, 0.9):.0%}" for each in errors]
            nearer = np.mean(errors[0] < errors[2])
            yield f"| {name} | {len(members)} | {' | '.join(cells)} | {nearer:.0%} |"
    yield from ("", "Chosen configurations: regret against the best that was measured", "")
    yield "| choice | groups | by | median | 90th percentile | within 5 % |"
    yield "|---|---:|---|---:|---:|---:|"
    kept = np.flatnonzero(both)
    for side in sides[:3]:
        for each in choices_of([picked[row] for row in kept], side.figures[kept], truth[kept]):
            if each.groups < LEAST_ROWS:
                continue
            yield (
                f"| {each.kind} | {each.groups} | {side.name} | {each.median_regret:.1%} | {each.p90_regret:.1%} "
                f"| {each.near:.0%} |"
            )
    yield from ("", "Plans", "", *plan_rows(plans, answers))
    refused = sum("refused" in each for each in estimates)
    yield ""
    yield (
        f"aiconfigurator {answers['version']} was asked about {len(chosen)} of the {sum(map(is_comparable, runs))} "
        f"rows whose model and GPU kind both know, and refused {refused}."
    )


def _seconds(answer: Mapping[str, Any]) -> tuple[float, float]:
    return (answer.get("tpot_ms", np.nan) / 1e3, answer.get("ttft_ms", np.nan) / 1e3)


def _groups(runs: Sequence[MeasuredServing], both: Sequence[bool]) -> Iterator[tuple[str, list[int]]]:
    """Rows that both predict: all, by who published them, by engine, by GPU kind, and with spread experts."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        if both[index]:
            is_its = "aiconfigurator" in text(run.row, "source")
            groups["all"].append(index)
            groups[f"source {'aiconfigurator' if is_its else 'others'}"].append(index)
            groups[f"engine {run.case.workload.engine.family}"].append(index)
            groups[f"GPU {run.case.gpu.name}"].append(index)
            if run.case.configuration.decode.worker.expert > 1:
                groups["experts on several ranks"].append(index)
    for name in ("all", *sorted(set(groups) - {"all"})):
        if len(groups[name]) >= LEAST_ROWS:
            yield name, groups[name]


if __name__ == "__main__":
    sys.exit(main())
