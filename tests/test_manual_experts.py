"""The commands of the page on placing experts run on the shipped counts, and say what the page says."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from app.cli import main

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "serving_experts.md").read_text("utf-8")


def commands() -> list[list[str]]:
    """The indented commands of the page, lines that go on joined."""
    blocks = re.findall(r"(?:^ {4}meshwright .*\n(?: {6}.*\n)*)", TEXT, re.MULTILINE)
    return [shlex.split(block.replace("\\\n", " "))[1:] for block in blocks]


def test_commands_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other, as a reader types them; the table is that of the second."""
    for file in (ROOT / "examples" / "routing").iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    shown = []
    for words in commands():
        assert main(words) == 0, words
        shown.append(capsys.readouterr().out)
    assert [words[1] for words in commands()] == ["show", "place", "place", "rebalance"]
    for row in re.findall(r"^\| (prefill|decode.*?) \| (.*) \|$", TEXT, re.MULTILINE):
        name, figures = row[0].split()[0], row[1].split(" | ")
        line = next(line for line in shown[1].splitlines() if line.strip().startswith(name))
        assert [figure for figure in figures if figure not in line] == []
    assert (tmp_path / "maps" / "expert_location.json").exists()
