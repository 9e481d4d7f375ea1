"""The commands of the manual about failures run on the shipped files, and end as the manual says."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from app.cli import main
from app.documents.plan import plan_from_text

ROOT = Path(__file__).parents[1]
FILES = ROOT / "examples" / "failures"
SECTION = (ROOT / "docs" / "command_line.md").read_text("utf-8").partition("## After failures")[2]
SECTION = SECTION.partition("\n## ")[0]


def blocks() -> list[list[list[str]]]:
    """The commands of each block, lines that go on joined."""
    found = re.findall(r"```\n(meshwright .*?)```", SECTION, re.DOTALL)
    return [[shlex.split(line)[1:] for line in text.replace("\\\n", " ").splitlines()] for text in found]


def test_the_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plans, the decision with its files, the same by way of the database: one after the other."""
    for file in FILES.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", f"sqlite:///{tmp_path / 'kept.sqlite'}")
    alone, stored = blocks()
    for words in (*alone, *stored):
        assert main(words) == 0, words
        if words[0] == "replan":
            out, err = capsys.readouterr()
            assert "2 of 2 jobs are touched." in out
            assert "'storage-1:9100' is not part of eight-nodes" in err
            for job, lost, spare in (("pretrain", "n2", "n4"), ("tuning", "n6", "n8")):
                hosts = plan_from_text((tmp_path / "now" / job / "plan.json").read_text()).placement.hosts
                assert lost not in hosts
                assert spare in hosts
    assert "eight-nodes: applied" in capsys.readouterr().out
