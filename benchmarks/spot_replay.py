"""A trace of spot nodes lived through by training jobs: our decisions beside spares first come, first served.

python -m benchmarks.spot_replay [--trace CSV] [--jobs N] [--hours H] [--window S] [--seconds S] [--prices P ...]
    [--json]

Lines of a trace: milliseconds, ``add`` or ``remove``, node.  Without one, the published trace where it is present,
else a made-up one that looks like it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from benchmarks.first_come import first_come
from benchmarks.replanning_cases import Kind
from benchmarks.spot_jobs import KINDS, kinds_for
from benchmarks.spot_run import Broken, Decide, Run, replay
from benchmarks.spot_traces import SpotEvent, made_trace, most_at_once, read_trace
from cluster_models.errors import InvalidInput, MeshwrightError
from cluster_models.jobs.recovery import RecoveryAction
from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.units import HOUR, TBYTE
from solver.replanning.decide import decide
from solver.replanning.problem import HORIZON_S, ReplanOptions

PUBLISHED: Final = Path(__file__).parents[2] / "shared" / "data" / "failures" / "bamboo_p3_spot_trace.csv"
PRICE: Final = RecoveryPolicy().transfer_price_gpu_s_per_byte * TBYTE / HOUR
"""GPU-hours a terabyte that decisions are asked to pay where nothing else is said."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what became of the jobs: 0, 1 where a decision broke a rule, 2 for wrong input."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spot_replay", description="Replay a spot trace.")
    parser.add_argument("--trace", type=Path, help="CSV: milliseconds,add|remove,node")
    parser.add_argument("--jobs", type=int, default=len(KINDS), help="training jobs, as many as there is room for")
    parser.add_argument("--hours", type=float, default=0.0, help="of the trace; all where not given")
    parser.add_argument("--window", type=float, default=60.0, help="seconds whose events are decided on together")
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="limit of one decision in processor time, whatever else runs"
    )
    parser.add_argument(
        "--prices",
        type=float,
        nargs="+",
        default=[PRICE],
        metavar="GPU_HOURS_PER_TB",
        help="what moved bytes must be worth; decisions are made once for each",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the made-up trace")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    try:
        # searches end by the time of this process, not by that of the wall
        with patch.object(time, "monotonic", time.process_time):
            found = compare(
                _events(given), jobs=given.jobs, window_s=given.window, seconds=given.seconds, prices=given.prices
            )
    except Broken as broken:
        print(broken, file=sys.stderr)
        return 1
    except MeshwrightError as problem:
        print(problem, file=sys.stderr)
        return 2
    _print(found, as_json=given.json)
    return 0


def compare(
    events: Sequence[SpotEvent], *, jobs: int, window_s: float, seconds: float, prices: Sequence[float] = (PRICE,)
) -> dict[str, Run]:
    """The run of each way of deciding, by its name, ours once for each of ``prices`` (GPU-hours a terabyte).

    Raises ``Broken`` and ``InvalidInput``.
    """
    if not 0 < window_s < math.inf:
        raise InvalidInput("window", window_s, "must be positive")
    kinds = kinds_for(jobs, most_at_once(events))
    if not kinds:
        problem = f"never has the {KINDS[0].nodes} nodes of the first job at once"
        raise InvalidInput("trace", f"{len(events)} events", problem)
    options = ReplanOptions(time_limit_s=seconds)

    def run(kinds: Sequence[Kind], way: Decide) -> Run:
        return replay(events, kinds, way, window_s=window_s, horizon_s=HORIZON_S)

    ours = {
        f"decide, {price:g} GPU-h/TB": run(priced(kinds, price), lambda problem: decide(problem, options))
        for price in prices
    }
    return ours | {
        "first come": run(kinds, first_come),
        "first come, growing": run(kinds, lambda problem: first_come(problem, grows=True)),
    }


def priced(kinds: Sequence[Kind], gpu_hours_per_tb: float) -> tuple[Kind, ...]:
    """``kinds`` whose owners ask so much for each terabyte moved."""
    price = gpu_hours_per_tb * HOUR / TBYTE
    return tuple(replace(kind, policy=replace(kind.policy, transfer_price_gpu_s_per_byte=price)) for kind in kinds)


def figures(run: Run) -> dict[str, Any]:
    """Totals of a run.

    ``net_eflop`` is the work less what owners ask for the bytes moved, which decisions make most of; ``work_share``
    is of what the jobs would do had nothing been taken; ``gap`` is that of all decisions together.
    """
    hours = (run.ended_s - run.started_s) / HOUR
    spent = [each.cpu_s for each in run.decided]
    bound = math.fsum(each.bound or 0.0 for each in run.decided)
    gap = 1 - math.fsum(each.objective for each in run.decided) / bound if bound else None
    return {
        "hours": hours,
        "decisions": len(run.decided),
        "work_eflop": run.work_flop / 1e18,
        "work_share": run.work_flop / run.most_flop,
        "net_eflop": run.net_flop / 1e18,
        "moved_tb": run.moved_bytes / 1e12,
        "moved_gb_per_eflop": run.moved_bytes / 1e9 / (run.work_flop / 1e18),
        "down_job_hours": sum(state.down_s for state in run.states) / HOUR,
        "pauses": sum(each.pauses for each in run.decided),
        "paused_job_hours": sum(state.paused_s for state in run.states) / HOUR,
        "swaps": run.count(RecoveryAction.SWAP),
        "shrinks": run.count(RecoveryAction.SHRINK_DATA_PARALLEL),
        "reroutes": run.count(RecoveryAction.REROUTE),
        "reshapes": run.count(RecoveryAction.RESHAPE),
        "decision_cpu_s_median": statistics.median(spent),
        "decision_cpu_s_most": max(spent),
        "gap": gap,
    }


def _events(given: argparse.Namespace) -> Sequence[SpotEvent]:
    if given.trace is not None:
        events: Sequence[SpotEvent] = read_trace(given.trace)
    else:
        events = read_trace(PUBLISHED) if PUBLISHED.exists() else made_trace(given.seed)
    return [event for event in events if not given.hours or event.at_s < given.hours * HOUR]


def _print(found: Mapping[str, Run], *, as_json: bool) -> None:
    rows = {name: figures(run) for name, run in found.items()}
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    print("".ljust(20) + "".join(name.rjust(22) for name in rows))
    for figure in next(iter(rows.values())):
        cells = ("-" if row[figure] is None else f"{row[figure]:.4g}" for row in rows.values())
        print(figure.ljust(20) + "".join(cell.rjust(22) for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
