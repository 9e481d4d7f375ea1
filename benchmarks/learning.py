"""Errors of unseen runs of a framework after some of its runs were fitted, as ``meshwright calibrate`` does.

    python -m benchmarks.learning --table PATH ... [--runs 5,10,20,60] [--draws 3] [--first-seed 0]
        [--framework NAME ...] [--results PATH] [--page PATH]

Every framework with 40 rows or more is left out of what is known: its own parameters are defaults, those of the
GPUs are fitted without its rows.  From so many of its rows, drawn at random, doubtful ones among them, its
parameters are fitted and its other rows predicted.  Printed are mean absolute relative errors of these before and
after, of step times and of peak memory, without doubtful rows (``all``: with them).  ``--results`` keeps what was
found in a file, a line of JSON a draw, which the next call takes up.  ``--page`` puts the table between the marks
of a page of the manual.  Rules of the fit were chosen on the draws 0 to 2: ``--first-seed`` takes others, on which
a change can be judged, and the last line says how often a fit did harm.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.accuracy import OWN_TABLE
from benchmarks.accuracy_page import percent, table
from benchmarks.left_out_frameworks import Knowledge, as_unmeasured
from benchmarks.marked_pages import put_part
from benchmarks.measured import Measured, measured_runs
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.calibration.training_run import TrainingRun
from solver.candidates import FloatArray
from solver.fitting.own_runs import fit_own_memory, fit_own_steps
from solver.run_memory import predict_counted_memory
from solver.runs import predict_runs

FEWEST_ROWS: Final = 40
"""Fewest rows of a framework that is left out."""
FEWEST_OTHERS: Final = 8
"""Rows that must be left to predict."""
MOST_OTHERS: Final = 250
"""Rows that are predicted at most."""
A_POINT: Final = 0.01
COLUMNS: Final = (
    "framework",
    "runs",
    "before",
    "after",
    "worst draw",
    "all before",
    "all after",
    "memory before",
    "after",
)


@dataclass(frozen=True, slots=True)
class Learnt:
    """Mean absolute relative errors of the rows that one draw left out; ``nan`` where there are none.

    ``steps`` without doubtful rows, ``every`` with them; each before and after.
    """

    framework: str
    runs: int
    seed: int
    steps: tuple[float, float]
    every: tuple[float, float]
    memory: tuple[float, float]


def learnt_from(
    framework: str, measured: Sequence[Measured], knowledge: Knowledge, *, count: int, seed: int
) -> Learnt:
    """Predictions of a framework's other rows from ``count`` of them, drawn with ``seed``."""
    start, known = knowledge.gpus_of(framework), knowledge.others(framework)
    order = np.random.default_rng(seed).permutation(len(measured))
    drawn = [as_unmeasured(measured[i].run) for i in order[:count]]
    others = [measured[i] for i in order[count : count + MOST_OTHERS]]
    steps = fit_own_steps(drawn, start=start, known=known)
    peaks = fit_own_memory(drawn, start=start, known=known)
    runs = [as_unmeasured(each.run) for each in others]
    believed = np.array([not each.doubt for each in others])
    errors = [_step_errors(runs, parameters) for parameters in (start, steps.parameters)]
    memory = [_memory_errors(runs, believed, parameters) for parameters in (start, peaks.parameters)]
    return Learnt(
        framework=framework,
        runs=count,
        seed=seed,
        steps=(_mean(errors[0][believed]), _mean(errors[1][believed])),
        every=(_mean(errors[0]), _mean(errors[1])),
        memory=(_mean(memory[0]), _mean(memory[1])),
    )


def _step_errors(runs: Sequence[TrainingRun], parameters: FittedParameters) -> FloatArray:
    predictions = predict_runs(runs, parameters)
    return np.array(
        [abs(p.step_s / (run.step_s or np.nan) - 1.0) for run, p in zip(runs, predictions, strict=True)]
    )


def _memory_errors(runs: Sequence[TrainingRun], believed: FloatArray, parameters: FittedParameters) -> FloatArray:
    return np.array(
        [
            abs(predict_counted_memory(run, parameters) / run.peak_memory_bytes - 1.0)
            for run, is_believed in zip(runs, believed, strict=True)
            if is_believed and run.peak_memory_bytes
        ]
    )


def _mean(errors: FloatArray) -> float:
    return float(errors.mean()) if len(errors) else float("nan")


def summary(learnt: Sequence[Learnt]) -> list[tuple[str, ...]]:
    """A line for each framework and number of runs, and for the median and the worst framework of each number."""
    groups: dict[tuple[int, str], list[Learnt]] = defaultdict(list)
    for each in learnt:
        groups[each.runs, each.framework].append(each)
    lines = []
    for runs in sorted({each.runs for each in learnt}):
        rows = {name: _figures(group) for (count, name), group in groups.items() if count == runs}
        lines += [_line(name, runs, figures) for name, figures in sorted(rows.items())]
        stacked = np.array(list(rows.values()))
        lines += [
            _line("**median framework**", runs, [_over(np.median, column) for column in stacked.T]),
            _line("**worst framework**", runs, [_over(np.max, column) for column in stacked.T]),
        ]
    return lines


def harm(learnt: Sequence[Learnt]) -> str:
    """How many draws made predictions of unseen runs worse by more than a point, and the worst change."""
    changes = [each.steps[1] - each.steps[0] for each in learnt]
    worse = sum(change > A_POINT for change in changes)
    return (
        f"{worse} of {len(changes)} draws worse by more than a point, the worst by {100 * max(changes):+.1f} points"
    )


def _over(statistic: Callable[[FloatArray], Any], column: FloatArray) -> float:
    """The statistic of the frameworks that have a figure; ``nan`` where none has."""
    known = column[~np.isnan(column)]
    return float(statistic(known)) if len(known) else float("nan")


def _figures(group: Sequence[Learnt]) -> list[float]:
    """Before, after, the worst draw's change for the worse, all before and after, memory before and after."""
    pairs = np.array([(*each.steps, *each.every, *each.memory) for each in group])
    before, after, every_before, every_after, memory_before, memory_after = pairs.mean(axis=0).tolist()
    worst = float((pairs[:, 1] - pairs[:, 0]).max())
    return [before, after, worst, every_before, every_after, memory_before, memory_after]


def _line(name: str, runs: int, figures: Sequence[float]) -> tuple[str, ...]:
    before, after, worst, *others = figures
    change = f"{100 * worst:+.1f} points"
    return (
        name,
        str(runs),
        percent(before),
        percent(after),
        change,
        *("" if np.isnan(x) else percent(x) for x in others),
    )


def read_results(path: Path | None) -> list[Learnt]:
    """The draws that were kept."""
    lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
    found: list[Learnt] = []
    for line in lines:
        kept = json.loads(line)
        pairs = {key: (kept[key][0], kept[key][1]) for key in ("steps", "every", "memory")}
        found.append(Learnt(framework=kept["framework"], runs=kept["runs"], seed=kept["seed"], **pairs))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description="errors of unseen runs")
    parser.add_argument("--table", type=Path, action="append", help="repeatable; default: the steps shipped here")
    parser.add_argument("--runs", default="5,10,20,60", help="how many are fitted, separated by commas")
    parser.add_argument("--draws", type=int, default=3, help="how often they are drawn")
    parser.add_argument("--first-seed", type=int, default=0, help="number of the first draw")
    parser.add_argument("--framework", action="append", help="only this generation; repeatable")
    parser.add_argument("--results", type=Path, help="where draws are kept, and taken up again")
    parser.add_argument("--page", type=Path, help="a page of the manual with the marks")
    options = parser.parse_args(arguments)
    measured = [each for path in options.table or [OWN_TABLE] for each in measured_runs(path)]
    by_framework: Mapping[str, list[Measured]] = defaultdict(list)
    for each in measured:
        by_framework[each.run.workload.framework.name].append(each)
    learnt = read_results(options.results)
    done = {(each.framework, each.runs, each.seed) for each in learnt}
    knowledge = Knowledge(measured)
    for name, rows in sorted(by_framework.items()):
        if len(rows) < FEWEST_ROWS or (options.framework and name not in options.framework):
            continue
        for count in map(int, options.runs.split(",")):
            for seed in range(options.first_seed, options.first_seed + options.draws):
                if (name, count, seed) in done or len(rows) < count + FEWEST_OTHERS:
                    continue
                learnt.append(learnt_from(name, rows, knowledge, count=count, seed=seed))
                print("  ".join(summary(learnt[-1:])[0]), flush=True)
                if options.results:
                    with options.results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(learnt[-1])) + "\n")
    if not learnt:
        print(f"No framework has {FEWEST_ROWS} rows.", file=sys.stderr)
        return 2
    text = table(COLUMNS, summary(learnt))
    print(text)
    print(harm(learnt))
    if options.page:
        put_part(options.page, "learning", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
