"""The page on exports names every format, file and option there is, and the versions that are tried."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from app.exports.options import Options, option_text
from app.exports.registry import EXPORTS
from tests.app.exports.fetch_tools import LISTED

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "exports.md").read_text("utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_format_is_in_the_table() -> None:
    """Once, under its family; a format of one file with the name of that file."""
    listed = {row[1].strip("`"): row for row in rows("Formats")}
    assert {name: row[0] for name, row in listed.items()} == {
        name: export.family.value for name, export in EXPORTS.items()
    }
    single = {name: export.file_name for name, export in EXPORTS.items() if not export.is_folder}
    assert {name: file for name, file in single.items() if f"`{file}`" not in listed[name][2]} == {}


def test_every_option_is_in_the_table_with_its_default() -> None:
    """Options that share a row have their defaults in the same order."""
    listed: dict[str, str] = {}
    for names, defaults, _ in rows("Options"):
        said = [cell.strip("` ") for cell in defaults.split(",")]
        listed |= dict(zip([name.strip("` ") for name in names.split(",")], said, strict=True))
    assert listed == {field.name: option_text(field.name) for field in fields(Options)}


@pytest.mark.parametrize("kind", ["packages", "repositories"])
def test_versions_are_those_that_are_fetched(kind: str) -> None:
    """A version on the page is the pinned one."""
    section = PAGE.partition("## Tried on the tools themselves")[2]
    pinned = [entry.get("version") or entry["tag"] for entry in tomllib.loads(LISTED.read_text("utf-8"))[kind]]
    bare = [pin.removeprefix("core_").removeprefix("v") for pin in pinned]
    assert [version for version in bare if version not in section] == []
