"""Runs the benchmarks one after the other and writes what each printed to docs/benchmarks.md.

    python -m benchmarks.comparisons [--only NAME ...] [--runs N] [--page PAGE] [--list]

A part of the page is replaced once its benchmark has ended; parts of others stay, each with the day, machine and
versions of its own run.  Of several runs a part shows the median of each figure and below it how far each ranged.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.marked_pages import has_part, put_part
from benchmarks.repeated_runs import merged
from cluster_models.errors import InvalidInput
from cluster_models.units import GIB

PAGE: Final = Path("docs/benchmarks.md")
DATA: Final = Path("../shared/data")
"""Published measurements beside the checkout; what needs them is left out where they are not there."""
STAT: Final = Path("/proc/stat")
NOTED_SHARE: Final = 0.05
"""Share of the processors that others use from which on the page says so."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A benchmark on the page: the module with its options, and tables of ``DATA`` that it reads.

    ``shown`` is how a line begins that the page shows; ``runs``: how often it runs, so that the page can say how
    far its figures range, once where they are the same in every run or it takes long.
    """

    name: str
    module: str
    options: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    shown: str = ""
    runs: int = 1

    @property
    def command(self) -> tuple[str, ...]:
        """Arguments of the interpreter."""
        tables = [word for table in self.tables for word in ("--table", str(DATA / table))]
        return ("-m", self.module, *self.options, *tables)


COMPARISONS: Final = (
    Comparison(
        "accuracy",
        "benchmarks.held_out",
        ("--unfitted", str(DATA / "training_more.csv")),
        ("training_measured.csv",),
        shown="mean|all|framework",
    ),
    Comparison(
        "calibration curves",
        "benchmarks.learning",
        ("--runs", "5,20", "--draws", "2"),
        ("training_measured.csv", "training_nanotron.csv"),
        shown=r"\||\d+ of",
    ),
    Comparison(
        "intervals",
        "benchmarks.coverage",
        tables=("training_measured.csv",),
        shown="held|framework|GPU kind|.* all ",
    ),
    Comparison(
        "placement",
        "benchmarks.placement",
        ("compare", "--sizes", "8", "16", "--seeds", "11", "12", "--processor-seconds", "10"),
    ),
    Comparison("experts", "benchmarks.experts", ("compare",)),
    Comparison(
        "serving accuracy",
        "benchmarks.serving_accuracy",
        tables=("serving_measured.csv",),
        shown=r"(?!  (generation|model|mode|weights) )",
    ),
    Comparison("serving plans", "benchmarks.serving_plans"),
    Comparison("serving rival", "benchmarks.serving_rival", tables=("serving_measured.csv",)),
    Comparison("solve time", "benchmarks.joint"),
    Comparison("speed", "benchmarks.speed", runs=3),
    Comparison("imports", "benchmarks.imports", runs=3),
    Comparison("decisions", "benchmarks.replanning", runs=3),
    Comparison("decisions of a service", "benchmarks.replanning_service", ("--leaf-only",)),
    Comparison("spot trace", "benchmarks.spot_replay", ("--seconds", "2", "--prices", "10")),
    Comparison("service load", "benchmarks.service_load", shown="/", runs=3),
    Comparison("pages", "benchmarks.page_speed", runs=3),
    Comparison("service scale", "benchmarks.service_scale", ("start", "reads", "ingest", "workers", "shared")),
    Comparison("service memory", "benchmarks.service_scale", ("mixed",)),
    Comparison("service kills", "benchmarks.service_kills"),
    Comparison("service requests", "benchmarks.service_requests"),
)


class LeftOut(Exception):
    """A benchmark compares with something that is not installed."""


def report(comparison: Comparison, runs: int | None = None) -> str:
    """Run a benchmark; its command, day, machine, versions and output as Markdown.  Raises ``LeftOut``.

    ``runs``: in place of the benchmark's own number, odd.
    """
    count, started = runs or comparison.runs, time.monotonic()
    before, busy_s = _own_s(), _busy_s()
    outputs = [_output(comparison) for _ in range(count)]
    spent_s, elapsed_s = _own_s() - before, time.monotonic() - started
    others = max(0.0, _busy_s() - busy_s - spent_s) / (elapsed_s * (os.cpu_count() or 1))
    shown = [[line for line in lines if re.match(comparison.shown, line)] for lines in outputs]
    lines, few = len(outputs[0]), len(shown[0])
    said = [f"{spent_s:.0f} s of processor time{f' in {count} runs' * (count > 1)}"]
    said += [f"others used {others:.0%} of the processors meanwhile"] * (others >= NOTED_SHARE)
    cut = f" It prints {lines} lines; these are {few} of them." if few < lines else ""
    medians, ranges = merged(shown)
    page = (
        f"`python {' '.join(comparison.command)}`, {datetime.now(UTC):%Y-%m-%d}, {machine()}; "
        f"{', '.join(said)}.{cut}\n\n{_as_page(medians)}"
    )
    if count == 1:
        return page
    if not ranges:
        return f"{page}\n\nAll {count} runs printed the same."
    text = "\n".join(["```text", *ranges, "```"])
    return (
        f"{page}\n\nEach figure is the median of {count} runs; a line that differed in words is that of the first. "
        f"Where runs differed:\n\n{text}"
    )


def _output(comparison: Comparison) -> list[str]:
    """The lines that one run of a benchmark prints."""
    done = subprocess.run(  # noqa: S603 - our own modules
        (sys.executable, *comparison.command), capture_output=True, text=True, check=False
    )
    if done.returncode == os.EX_UNAVAILABLE:
        raise LeftOut(done.stderr.strip())
    if done.returncode:
        raise InvalidInput(
            "comparison", comparison.name, f"ended with {done.returncode}: {done.stderr.strip()[-300:]}"
        )
    return done.stdout.rstrip().splitlines()


def _own_s() -> float:
    """Processor seconds of the benchmarks that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _busy_s() -> float:
    """Processor seconds of everybody on this machine, where Linux tells; else 0."""
    if not STAT.is_file():
        return 0.0
    user, nice, system, _, _, irq, soft, *_ = STAT.read_text(encoding="ascii").split()[1:]
    return sum(map(int, (user, nice, system, irq, soft))) / os.sysconf("SC_CLK_TCK")


def _as_page(lines: Sequence[str]) -> str:
    """Output with tables of Markdown as such, each ended by an empty line; other output as it was printed."""
    if not any(line.startswith("|") for line in lines):
        return "\n".join(["```text", *lines, "```"])
    page: list[str] = []
    for line in lines:
        if line and page and page[-1].startswith("|") and not line.startswith("|"):
            page.append("")
        page.append(line)
    return "\n".join(page).strip()


def machine() -> str:
    """Processors, memory and versions, in a line."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return (
        f"{os.cpu_count()} processors ({platform.machine()}), {memory / GIB:.0f} GiB, Python "
        f"{platform.python_version()}, Meshwright {version('meshwright')}, PuLP {version('pulp')}, HiGHS "
        f"{version('highspy')}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparisons", description="Renew the page.")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[each.name for each in COMPARISONS])
    parser.add_argument(
        "--runs", type=int, choices=(1, 3, 5, 7, 9), help="how often, in place of each one's own number"
    )
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--list", action="store_true", help="print the commands and run none")
    asked = parser.parse_args(arguments)
    chosen = [each for each in COMPARISONS if not asked.only or each.name in asked.only]
    if asked.list:
        print("\n".join(f"{each.name}, {each.runs} x: python {' '.join(each.command)}" for each in chosen))
        return 0
    broken = 0
    for each in chosen:
        absent = [table for table in each.tables if not (DATA / table).is_file()]
        if absent or not has_part(asked.page, each.name):
            reason = f"{', '.join(absent)} not there" if absent else f"{asked.page} has no part of that name"
            print(f"{each.name}: left out, {reason}", file=sys.stderr)
            continue
        print(f"{each.name} ...", file=sys.stderr, flush=True)
        try:
            put_part(asked.page, each.name, report(each, asked.runs))
        except LeftOut as reason:
            print(f"{each.name}: left out, {reason}", file=sys.stderr)
        except InvalidInput as error:
            broken += 1
            print(error, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
