"""The page on imports names every kind of file, question and doubt that the code knows, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from readers.registry import FORMATS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "imports.md").read_text("utf-8")
READERS = sorted((ROOT / "readers").rglob("*.py"))
CODE = re.compile(r"[a-z]+(?:-[a-z]+)+")
SEVERITIES = frozenset({"note", "doubt", "reject"})
RAISES_DOUBT = SEVERITIES | {"LabelNote", "_doubt"}


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def name_of(call: ast.Call) -> str:
    """The name of the function that is called."""
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def calls() -> Iterator[ast.Call]:
    """Every call of the readers that raises a doubt."""
    for path in READERS:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and name_of(node) in RAISES_DOUBT and node.args:
                yield node


def notes() -> Iterator[str]:
    """Codes that stand in a tuple before their sentence and remedy."""
    for path in READERS:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Tuple) and len(node.elts) == 3:
                first, sentence, _ = node.elts
                said = isinstance(sentence, ast.JoinedStr) or " " in str(getattr(sentence, "value", ""))
                if said and isinstance(first, ast.Constant) and CODE.fullmatch(str(first.value)):
                    yield str(first.value)


def test_every_format_is_in_the_table() -> None:
    """With its family, a dash where all of it is refused, and what is taken elsewhere."""
    listed = {row[1].strip("`"): (row[0], row[3].startswith("- ")) for row in rows("What can be sent")}
    assert listed == {form.name: (form.family, bool(form.refused_because)) for form in FORMATS}


def test_every_doubt_is_in_the_table() -> None:
    """Codes that the readers write out are explained; a code explained stands in the readers."""
    listed = [row[0].strip("`") for row in rows("Doubts")]
    assert len(set(listed)) == len(listed)
    raised = {
        call.args[0].value
        for call in calls()
        if isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)
    }
    assert len(raised) > 40
    assert (raised | set(notes())) - set(listed) == set()
    source = "\n".join(path.read_text("utf-8") for path in READERS)
    assert [code for code in listed if f'"{code}"' not in source] == []


def test_the_severity_of_every_doubt_is_that_of_the_readers() -> None:
    """Where a reader gives code and severity side by side."""
    said = {row[0].strip("`"): set(row[1].split(", ")) for row in rows("Doubts")}
    given: dict[str, set[str]] = {}
    for call in calls():
        code = call.args[0]
        if isinstance(code, ast.Constant) and name_of(call) in SEVERITIES:
            given.setdefault(str(code.value), set()).add(name_of(call))
    assert {code: severities for code, severities in given.items() if not severities <= said[code]} == {}
    assert len(given) > 40


@pytest.mark.parametrize("key", ["host", "nodes", "ranks", "alias", "gpu_kind"])
def test_questions_are_asked_by_the_keys_of_the_page(key: str) -> None:
    """Each key of the table that holds a name is one that the readers ask by."""
    assert re.search(rf"^\| `{key}:", PAGE, re.MULTILINE)
    source = "\n".join(path.read_text("utf-8") for path in READERS)
    assert f'"{key}:"' in source or f'"{key}:{{' in source
