"""``meshwright measure``: the pairs to measure next, and scripts that measure them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.cli.files import is_path, read_plan, read_snapshot
from app.cli.planning.exporting import options_given, write_folder
from app.cli.terminal import bullets, console
from app.documents.reading import close_name
from app.exports.contract import Files
from app.exports.measuring import render_kubernetes, render_mpi, render_slurm
from app.exports.options import Options
from app.presentation.figures import count, plural
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import USABLE_STATES
from cluster_models.errors import InvalidInput
from cluster_models.training.plan import Plan
from cluster_models.units import GIB, KIB, MIB
from solver.measuring.choose import MeasuringPlan, Wanted, what_to_measure
from solver.measuring.sizes import Trial

SHOWN_PAIRS: Final = 40
"""Rows of the table; ``--json`` has all."""
_MINUTE, _HOUR = 60.0, 3600.0

SCRIPTS: Final[Mapping[str, Callable[[MeasuringPlan, Options], Files]]] = {
    "slurm": lambda plan, _: render_slurm(plan),
    "mpi": lambda plan, _: render_mpi(plan),
    "kubernetes": render_kubernetes,
}
_START: Final = {
    "slurm": "NCCL_TESTS=/path/to/nccl-tests/build sbatch {script}",
    "mpi": "NCCL_TESTS=/path/to/nccl-tests/build bash {script}",
    "kubernetes": "bash {script}",
}


def run_measure(
    *,
    cluster: str,
    plan: str | None,
    launcher: str | None,
    given: Sequence[str],
    limits: tuple[int, float],
    as_json: bool,
    output: Path | None,
    database_url: str | None,
) -> None:
    """Say what to measure next, and write or print the scripts of ``launcher``.

    ``limits``: most pairs, most minutes.
    """
    if launcher is not None and launcher not in SCRIPTS:
        raise InvalidInput("--for", launcher, "unknown launcher", close_name(launcher, list(SCRIPTS)))
    options = options_given(given)
    if launcher is None and (given or output is not None):
        field = "--set" if given else "--output"
        raise InvalidInput(field, str(output or given[0]), "belongs to a script", f"add --for {'|'.join(SCRIPTS)}")
    snapshot, chosen = _read(cluster, plan, database_url)
    found = _wanted(snapshot, chosen, limits)
    files = SCRIPTS[launcher](found, options) if launcher is not None and found.rounds else ()
    if as_json:
        json.dump(measuring_answer(found, files), sys.stdout, indent=2)
        sys.stdout.write("\n")
    elif launcher is not None and output is None and files:
        _print_script(launcher, files)
    else:
        console().print(measuring_view(found, snapshot))
    if output is not None and files:
        write_folder(output, launcher or "", files)
        if not as_json:
            _say_what_next(cluster, launcher or "", output, files)
    sys.stdout.flush()


def _read(cluster: str, plan: str | None, database_url: str | None) -> tuple[ClusterSnapshot, Plan | None]:
    """The cluster, a file or a stored one, and the plan, a file or the number of a stored one."""
    if is_path(cluster):
        snapshot = read_snapshot(cluster)
    else:
        from app.cli.clusters.stored import stored_snapshot  # noqa: PLC0415 - a file needs no database

        snapshot = stored_snapshot(cluster, database_url=database_url)
    if plan is None:
        return snapshot, None
    if is_path(plan):
        return snapshot, read_plan(plan)
    from app.cli.clusters.stored import stored_plan  # noqa: PLC0415 - a file needs no database

    return snapshot, stored_plan(plan, database_url=database_url)


def _wanted(snapshot: ClusterSnapshot, plan: Plan | None, limits: tuple[int, float]) -> MeasuringPlan:
    most_pairs, most_minutes = limits
    if not most_minutes * _MINUTE >= 1:
        raise InvalidInput("--most-minutes", most_minutes, "must be at least a second", "allow some minutes")
    return what_to_measure(
        snapshot, at=datetime.now(UTC), plan=plan, most_pairs=most_pairs, most_seconds=most_minutes * _MINUTE
    )


def _print_script(launcher: str, files: Files) -> None:
    if len(files) > 1:
        problem = f"{launcher} takes {len(files)} files"
        raise InvalidInput("--output", None, problem, "name a folder: --output DIR")
    sys.stdout.write(files[0].text)


def _say_what_next(cluster: str, launcher: str, folder: Path, files: Files) -> None:
    script = next((file for file in files if file.executable), files[0])
    into = cluster if is_path(cluster) else f"{cluster} --store"
    console().print(
        Text.assemble(
            f"\n{plural(len(files), 'file')} in {folder}.  Next:\n  ",
            (_START[launcher].format(script=folder / script.name), "bold"),
            "\nand when it is done\n  ",
            (
                f"meshwright import measured --into {into}" + (f" --output {cluster}" if into == cluster else ""),
                "bold",
            ),
        ),
        soft_wrap=True,
    )


def measuring_view(plan: MeasuringPlan, snapshot: ClusterSnapshot) -> RenderableType:
    """The pairs in their rounds, why each, and how long it all takes."""
    if not plan.rounds:
        if sum(node.state in USABLE_STATES for node in snapshot.cluster.nodes) < 2:
            return Text("There is no pair to measure: fewer than two nodes are ready or degraded.")
        if plan.left_out:
            return Text("No round fits the time: allow more with --most-minutes.")
        return Text("Nothing to measure: every pair was measured lately, in both directions alike.")
    left = f"; {count(plan.left_out)} more are worth it, beyond the limits asked for" if plan.left_out else ""
    rounds = plural(len(plan.rounds), "round")
    head = Text.assemble(
        (f"{plural(plan.pairs, 'pair')} in {rounds}", "bold"), f", about {_duration(plan.seconds)}{left}"
    )
    return Group(head, Text("Pairs of a round are measured at once; no node is in two of them."), _table(plan))


def _table(plan: MeasuringPlan) -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("round", justify="right")
    table.add_column("pair", overflow="fold")
    table.add_column("why")
    shown = 0
    for number, group in enumerate(plan.rounds, start=1):
        for index, wanted in enumerate(group):
            if shown == SHOWN_PAIRS:
                break
            table.add_row(str(number) if index == 0 else "", " - ".join(wanted.pair), wanted.why)
            shown += 1
    more = plan.pairs - shown
    trials = dict.fromkeys(trial for group in plan.rounds for wanted in group for trial in wanted.trials)
    parts: list[RenderableType] = [table]
    if more:
        parts.append(Text(f"and {plural(more, 'pair')} more; --json for all"))
    parts += [Text("Tests of each pair:"), bullets(map(_trial, trials))]
    return Group(*parts)


def _trial(trial: Trial) -> str:
    gpus = "1 GPU of each node" if trial.ranks_per_node == 1 else f"{trial.ranks_per_node} GPUs of each node"
    return f"{trial.collective} with {gpus}, {_bytes(trial.smallest_bytes)} to {_bytes(trial.sizes[-1])}"


def _bytes(size: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def _duration(seconds: float) -> str:
    if seconds < 2 * _MINUTE:
        return plural(round(seconds), "second")
    if seconds < 2 * _HOUR:
        return plural(round(seconds / _MINUTE), "minute")
    return f"{seconds / _HOUR:.1f} hours"


def measuring_answer(plan: MeasuringPlan, files: Files = ()) -> dict[str, object]:
    """The pairs in their rounds as data for programs."""
    return {
        "pairs": plan.pairs,
        "expected_seconds": plan.seconds,
        "left_out": plan.left_out,
        "rounds": [[_pair(wanted) for wanted in group] for group in plan.rounds],
        "scripts": [{"name": file.name, "text": file.text, "executable": file.executable} for file in files],
    }


def _pair(wanted: Wanted) -> dict[str, object]:
    return {
        "nodes": list(wanted.pair),
        "worth": wanted.worth.name.lower(),
        "why": wanted.why,
        "gain_s": wanted.gain_s,
        "trials": [
            {
                "collective": trial.collective.value,
                "ranks_per_node": trial.ranks_per_node,
                "sizes_bytes": list(trial.sizes),
            }
            for trial in wanted.trials
        ],
    }
