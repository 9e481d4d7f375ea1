"""A measuring plan as page and terminal report it: pairs in rounds, why each, which tests, and how to run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.exports.measuring import Launcher
from app.presentation.figures import data_bytes, duration, plural
from app.presentation.sentences import sentences
from cluster_models.cluster.measurements import Collective
from cluster_models.cluster.topology import Node
from cluster_models.remarks import Remark
from solver.measuring.choose import MeasuringPlan
from solver.measuring.sizes import Trial

TITLES: Final = {
    Launcher.SLURM: ("Slurm", "A batch script."),
    Launcher.MPI: ("Open MPI", "To run where mpirun reaches all nodes."),
    Launcher.KUBERNETES: ("Kubernetes", "Manifests for the MPI operator, and a script that applies them in turn."),
}
"""Name of each launcher, and what its scripts are."""
_COMMANDS: Final = {
    Launcher.SLURM: "NCCL_TESTS=/path/to/nccl-tests/build sbatch {script}",
    Launcher.MPI: "NCCL_TESTS=/path/to/nccl-tests/build bash {script}",
    Launcher.KUBERNETES: "bash {script}",
}
_TESTS: Final = {
    Collective.SEND_RECV: "one way at a time (sendrecv)",
    Collective.ALL_TO_ALL: "all to all (alltoall)",
}


@dataclass(frozen=True, slots=True)
class PairRow:
    """One pair; those of a round are measured at the same time.  ``tests``: empty where all pairs have the same."""

    round: int
    pair: str
    why: str
    tests: str


@dataclass(frozen=True, slots=True)
class MeasuringReport:
    """Report on a measuring plan in words; ``refusal`` says why there is no pair, where there is none."""

    headline: str
    explanation: str
    refusal: str
    tests: tuple[str, ...]
    """Tests of each pair, where they are the same of all."""
    rows: tuple[PairRow, ...]


def measuring_report(plan: MeasuringPlan, nodes: Sequence[Node]) -> MeasuringReport:
    """The report of ``plan`` for a cluster of ``nodes``."""
    pairs = [(number, wanted) for number, group in enumerate(plan.rounds, start=1) for wanted in group]
    tests = {wanted.trials for _, wanted in pairs}
    left_out = (
        f" {plural(plan.left_out, 'more pair')} would be worth it, beyond these limits." if plan.left_out else ""
    )
    return MeasuringReport(
        headline=(
            f"{plural(len(pairs), 'pair')} in {plural(len(plan.rounds), 'round')}, about {duration(plan.seconds)}"
        ),
        explanation=f"Pairs of one round share no node and are measured at the same time.{left_out or ''}",
        refusal="" if pairs else _refusal(plan, nodes),
        tests=tuple(map(_test, next(iter(tests)))) if len(tests) == 1 else (),
        rows=tuple(
            PairRow(
                number,
                " - ".join(wanted.pair),
                reason(wanted.why),
                "; ".join(map(_test, wanted.trials)) if len(tests) > 1 else "",
            )
            for number, wanted in pairs
        ),
    )


def reason(why: Sequence[Remark]) -> str:
    """Why a pair is worth measuring, in words."""
    return "; ".join(sentences(why))


def start_command(launcher: Launcher, script: str) -> str:
    """The command that starts a script."""
    return _COMMANDS[launcher].format(script=script)


def _refusal(plan: MeasuringPlan, nodes: Sequence[Node]) -> str:
    if sum(node.usable for node in nodes) < 2:
        return "There is no pair to measure: fewer than two nodes are ready or degraded."
    if plan.left_out:
        return f"No round fits the time, and {plural(plan.left_out, 'pair')} would be worth it: allow more minutes."
    return "There is no pair to measure: every one was measured lately, in both directions alike."


def _test(trial: Trial) -> str:
    name = _TESTS.get(trial.collective, trial.collective.value)
    sizes = f"{data_bytes(trial.smallest_bytes)} to {data_bytes(trial.sizes[-1])}"
    return f"{name}, {plural(trial.ranks_per_node, 'GPU')} of each node, {sizes}"
