"""The page of all benchmarks: its parts, each with the command that makes it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from benchmarks import comparisons
from benchmarks.comparisons import COMPARISONS, PAGE, Comparison, main
from benchmarks.marked_pages import has_part, put_part
from cluster_models.errors import InvalidInput


def test_text_is_put_between_the_marks_of_a_page(tmp_path: Path) -> None:
    """Again and again, and nothing else of the page changes; a page without marks is refused."""
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- a: begin -->\n<!-- a: end -->\nafter\n")
    for text in ("| 1 |", "| 2 |\n| 3 |"):
        put_part(page, "a", text)
        assert page.read_text() == f"before\n<!-- a: begin -->\n{text}\n<!-- a: end -->\nafter\n"
    with pytest.raises(InvalidInput, match="has no lines"):
        put_part(page, "b", "new")


def test_every_comparison_has_its_place_on_the_page() -> None:
    """And is a module that is there."""
    for each in COMPARISONS:
        assert has_part(Path(__file__).parents[2] / PAGE, each.name), each.name
        assert importlib.util.find_spec(each.module)


def test_a_part_says_what_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Command, day, machine, versions and what it printed; one that breaks leaves the page as it was."""
    page = tmp_path / "page.md"
    page.write_text("<!-- zen: begin -->\n<!-- zen: end -->\n<!-- none: begin -->\n<!-- none: end -->\n")
    made = (
        Comparison("zen", "this", shown="Beautiful|Explicit"),
        Comparison("none", "no_such_module"),
        Comparison("table", "this", (), ("x.csv",)),
    )
    monkeypatch.setattr(comparisons, "COMPARISONS", made)
    assert main(["--page", str(page)]) == 1
    text = page.read_text()
    assert text.startswith("<!-- zen: begin -->\n`python -m this`, 2")
    assert (
        "It prints 21 lines; these are 2 of them.\n\n```text\nBeautiful is better than ugly.\nExplicit is" in text
    )
    assert text.endswith("<!-- none: begin -->\n<!-- none: end -->\n")


def test_a_table_stands_on_the_page_as_a_table() -> None:
    """Lines after it are a paragraph; lines without one stay as they were printed."""
    assert comparisons._as_page(["| a |", "|---|", "| 1 |", "1 of 2"]) == "| a |\n|---|\n| 1 |\n\n1 of 2"
    assert comparisons._as_page(["", "two", "", "| a |", "", "| b |"]) == "two\n\n| a |\n\n| b |"
    assert comparisons._as_page(["a | b"]) == "```text\na | b\n```"


def test_several_runs_give_medians_and_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures that differ from run to run are shown with how far; what never differs is said to be the same."""
    page = tmp_path / "page.md"
    page.write_text("<!-- zen: begin -->\n<!-- zen: end -->\n<!-- ids: begin -->\n<!-- ids: end -->\n")
    module = tmp_path / "counting_runs.py"
    module.write_text(
        "from pathlib import Path\nf = Path(__file__).with_suffix('.txt')\n"
        "n = len(f.read_text()) if f.exists() else 0\nf.write_text('x' * (n + 1))\nprint(f'run took {n}.5 s')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = (Comparison("zen", "this", runs=3), Comparison("ids", "counting_runs"))
    monkeypatch.setattr(comparisons, "COMPARISONS", made)
    assert main(["--page", str(page), "--only", "zen"]) == 0
    assert main(["--page", str(page), "--only", "ids", "--runs", "3"]) == 0
    text = page.read_text()
    assert "All 3 runs printed the same." in text
    assert "run took 1.5 s" in text
    assert "```text\nrun took 0.5..2.5 s\n```" in text
    assert " s of processor time in 3 runs" in text
