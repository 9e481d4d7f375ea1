"""Pairs to measure next, for people: which and why, how long it takes, and the scripts that do it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from app.exports.options import Options
from app.presentation.figures import count, plural
from app.services.clusters.measuring import Launcher, scripts
from cluster_models.cluster.measurements import Collective
from cluster_models.errors import InvalidConfiguration
from cluster_models.units import GIB, KIB, MIB
from solver.measuring.choose import MeasuringPlan, Wanted
from solver.measuring.sizes import Trial

MOST_ROWS: Final = 100
MOST_SCRIPT: Final = 20_000
"""Characters of a script that the page shows."""
_TITLES: Final = {
    Launcher.SLURM: ("Slurm", "A batch script: NCCL_TESTS=/path/to/nccl-tests/build sbatch measure.sh"),
    Launcher.MPI: ("Open MPI", "To run where mpirun reaches all nodes: NCCL_TESTS=/path/to/build bash measure.sh"),
    Launcher.KUBERNETES: (
        "Kubernetes",
        "Manifests for the MPI operator, and measure.sh, which applies them in turn.",
    ),
}
_TESTS: Final = {
    Collective.SEND_RECV: "one way at a time (sendrecv)",
    Collective.ALL_TO_ALL: "all to all (alltoall)",
}


@dataclass(frozen=True, slots=True)
class PairRow:
    """One pair; those of a round are measured at the same time."""

    number: int
    pair: str
    why: str
    tests: str


@dataclass(frozen=True, slots=True)
class Script:
    """Script that one launcher runs; where it cannot be written, ``refusal`` says why."""

    title: str
    words: str
    address: str
    file_name: str
    text: str
    cut: bool
    others: tuple[str, ...]
    refusal: str


@dataclass(frozen=True, slots=True)
class MeasuringPage:
    """A measuring plan as words and a table; ``tests`` where they are the same of every pair."""

    summary: str
    left_out: str
    tests: str
    rows: tuple[PairRow, ...]
    more_rows: int
    scripts: tuple[Script, ...]


def measuring_page(
    plan: MeasuringPlan, *, cluster: str, query: Mapping[str, str], options: Options
) -> MeasuringPage:
    """The page of a measuring plan; links to scripts carry ``query``."""
    pairs = [(number, wanted) for number, group in enumerate(plan.rounds, start=1) for wanted in group]
    tests = {_tests(wanted) for _, wanted in pairs}
    shared = next(iter(tests)) if len(tests) == 1 else ""
    rows = tuple(
        PairRow(number, " \N{LEFT RIGHT ARROW} ".join(wanted.pair), wanted.why, "" if shared else _tests(wanted))
        for number, wanted in pairs[:MOST_ROWS]
    )
    return MeasuringPage(
        summary=(
            f"{plural(len(pairs), 'pair')} in {plural(len(plan.rounds), 'round')}, about {_duration(plan.seconds)}"
        ),
        left_out=f"{plural(plan.left_out, 'more pair')} worth measuring beyond these limits"
        if plan.left_out
        else "",
        tests=shared,
        rows=rows,
        more_rows=max(0, len(pairs) - MOST_ROWS),
        scripts=tuple(_script(plan, launcher, cluster, query, options) for launcher in _TITLES) if pairs else (),
    )


def file_name(launcher: Launcher) -> str:
    """Name of the download of a launcher's scripts."""
    return "measure.zip" if launcher is Launcher.KUBERNETES else "measure.sh"


def _script(
    plan: MeasuringPlan, launcher: Launcher, cluster: str, query: Mapping[str, str], options: Options
) -> Script:
    title, words = _TITLES[launcher]
    address = f"/clusters/{quote(cluster, safe='')}/measure/{launcher}"
    if query:
        address += f"?{urlencode(query)}"
    try:
        files = scripts(plan, launcher, options)
    except InvalidConfiguration as error:
        refusal = ": ".join((str(error.value), "; ".join(filter(None, (error.problem, error.remedy)))))
        return Script(title, words, "", "", "", cut=False, others=(), refusal=refusal)
    text = files[0].text
    return Script(
        title,
        words,
        address,
        file_name(launcher),
        text[:MOST_SCRIPT],
        cut=len(text) > MOST_SCRIPT,
        others=tuple(file.name for file in files[1:]),
        refusal="",
    )


def _tests(wanted: Wanted) -> str:
    return "; ".join(map(_test, wanted.trials))


def _test(trial: Trial) -> str:
    name = _TESTS.get(trial.collective, trial.collective.value)
    each = "1 GPU" if trial.ranks_per_node == 1 else f"{trial.ranks_per_node} GPUs"
    return f"{name}, {each} of each node, {_size(trial.smallest_bytes)} to {_size(trial.sizes[-1])}"


def _size(size: int) -> str:
    for unit, word in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {word}"
    return f"{size} bytes"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{count(seconds)} seconds"
    if seconds < 5400:
        return f"{count(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"
