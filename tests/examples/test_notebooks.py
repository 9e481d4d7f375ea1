"""The shipped notebooks, cell by cell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_every_cell_runs(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In order, in one namespace, from the folder of the notebooks; each cell of code prints something."""
    monkeypatch.chdir(NOTEBOOKS)
    names: dict[str, object] = {}
    cells = json.loads(path.read_text("utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "outputs are not kept"
            exec(compile("".join(cell["source"]), f"{path.name}:{cell['id']}", "exec"), names)  # noqa: S102 - ours
            assert capsys.readouterr().out.strip()
