"""Runs the benchmarks one after the other and writes what each printed to docs/benchmarks.md.

    python -m benchmarks.comparisons [--only NAME ...] [--page PAGE] [--list]

A part of the page is replaced once its benchmark has ended; parts of others stay, each with the day, machine and
versions of its own run.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.marked_pages import has_part, put_part
from cluster_models.errors import InvalidInput
from cluster_models.units import GIB

PAGE: Final = Path("docs/benchmarks.md")
DATA: Final = Path("../shared/data")
"""Published measurements beside the checkout; what needs them is left out where they are not there."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A benchmark on the page: the module with its options, and tables of ``DATA`` that it reads.

    ``shown`` is how a line begins that the page shows.
    """

    name: str
    module: str
    options: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    shown: str = ""

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
        ("--runs", "5,20", "--draws", "1"),
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
    Comparison("speed", "benchmarks.speed"),
    Comparison("imports", "benchmarks.imports"),
    Comparison("decisions", "benchmarks.replanning"),
    Comparison("decisions of a service", "benchmarks.replanning_service", ("--leaf-only",)),
    Comparison("spot trace", "benchmarks.spot_replay", ("--seconds", "2", "--prices", "10")),
    Comparison("service load", "benchmarks.service_load", shown="/"),
    Comparison("pages", "benchmarks.page_speed"),
    Comparison("service scale", "benchmarks.service_scale", ("start", "reads", "ingest", "workers")),
    Comparison("service memory", "benchmarks.service_scale", ("mixed",)),
    Comparison("service kills", "benchmarks.service_kills"),
    Comparison("service requests", "benchmarks.service_requests"),
)


class LeftOut(Exception):
    """A benchmark compares with something that is not installed."""


def report(comparison: Comparison) -> str:
    """Run a benchmark; its command, day, machine, versions and output as Markdown.  Raises ``LeftOut``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(  # noqa: S603 - our own modules
        (sys.executable, *comparison.command), capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode == os.EX_UNAVAILABLE:
        raise LeftOut(done.stderr.strip())
    if done.returncode:
        raise InvalidInput(
            "comparison", comparison.name, f"ended with {done.returncode}: {done.stderr.strip()[-300:]}"
        )
    lines = done.stdout.rstrip().splitlines()
    shown = [line for line in lines if re.match(comparison.shown, line)]
    cut = f" It prints {len(lines)} lines; these are {len(shown)} of them." if len(shown) < len(lines) else ""
    return (
        f"`python {' '.join(comparison.command)}`, {datetime.now(UTC):%Y-%m-%d}, {machine()}; {spent_s:.0f} s of "
        f"processor time.{cut}\n\n{_as_page(shown)}"
    )


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
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--list", action="store_true", help="print the commands and run none")
    asked = parser.parse_args(arguments)
    chosen = [each for each in COMPARISONS if not asked.only or each.name in asked.only]
    if asked.list:
        print("\n".join(f"{each.name}: python {' '.join(each.command)}" for each in chosen))
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
            put_part(asked.page, each.name, report(each))
        except LeftOut as reason:
            print(f"{each.name}: left out, {reason}", file=sys.stderr)
        except InvalidInput as error:
            broken += 1
            print(error, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
