"""Calls of ``meshwright import``, and files for it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from app.cli import main
from tests.readers.nccl_logs import log

HOSTS = ("n1", "n2", "n3")
SWITCHES = "SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n3\nSwitchName=top Switches=s[1-2]\n"
NICS = ("--set", "*.nics=8 x 400 infiniband")
WIRING = (
    "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\t0-55\t0\nGPU1\tNV18\t X \t0-55\t0\n\n"
    "Legend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
)
ONE_RANK = log(["n1"], 1, program="all_reduce")


def write_logs(folder: Path) -> Path:
    """``logs`` in the folder, with the log of each pair of three nodes."""
    logs = folder / "logs"
    logs.mkdir()
    for a, b in itertools.combinations(HOSTS, 2):
        (logs / f"nccl_{a}_{b}.log").write_text(log([a, b], 8))
    return logs


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of ``meshwright import``."""
    code = main(["import", *words])
    out, err = capsys.readouterr()
    return code, out, err


def plain(text: str) -> str:
    """The words of a report, however its lines are broken."""
    return " ".join(text.split())
