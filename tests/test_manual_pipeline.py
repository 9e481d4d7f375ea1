"""The example that docs/pipeline.md works out has the figures of the code; its drawing marks the longest path."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from solver.pipeline.period import least_period_s, least_step_s
from solver.pipeline.schedule import build_schedule
from solver.pipeline.simulation import simulate

ROOT = Path(__file__).parents[1]
PAGE = " ".join((ROOT / "docs" / "pipeline.md").read_text("utf-8").split())


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    """The script that draws the manual's figures."""
    found = importlib.util.spec_from_file_location("figures", ROOT / "docs" / "manual" / "figures.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def milliseconds(seconds: float) -> str:
    """As the page writes them."""
    return f"{1e3 * seconds:,.2f}".rstrip("0").rstrip(".") + " ms"


def test_the_figures_of_the_example_are_those_of_the_code(figures: ModuleType) -> None:
    """Period, step and lower end, for 8 and 64 micro-batches, and with the slow transfer elsewhere."""
    lasting, delays = figures.EXAMPLE_S

    def ends(micro_batches: int, delays_s: np.ndarray) -> float:
        return float(simulate(build_schedule(4, 1, micro_batches), lasting, delays_s).max())

    def period(delays_s: np.ndarray) -> float:
        return float(least_period_s(lasting[:1], lasting[1:], delays_s[:1])[0])

    low_s = [float(least_step_s(lasting[:1], lasting[1:], delays[:1], np.array([count]))[0]) for count in (8, 64)]
    moved = np.array([[6, 2, 2, 0], [0, 6, 2, 2]]) / 1e3
    for sentence in (
        f"So L is {milliseconds(period(delays))}",
        f"takes {milliseconds(ends(8, delays))}, the outlined path",
        f"3·10 = {milliseconds(low_s[0])}",
        f"64 micro-batches it takes {milliseconds(ends(64, delays))}, and the lower",
        f"the lower end is {milliseconds(low_s[1])}: what",
        f"L would be {milliseconds(period(moved))} and",
        f"64 micro-batches would take {milliseconds(ends(64, moved))}",
    ):
        assert sentence in PAGE


def test_the_longest_path_fills_the_step(figures: ModuleType) -> None:
    """Outlined boxes follow each other at once or after a transfer, from the first event to the last."""
    boxes = figures.pipeline_example().boxes
    path = sorted((box for box in boxes if "on-path" in box.style), key=lambda box: box.x)
    begins, ends = min(box.x for box in boxes), max(box.x + box.width for box in boxes)
    assert (path[0].x, path[-1].x + path[-1].width) == (begins, ends)
    gaps = [420 * (after.x - box.x - box.width) / (ends - begins) for box, after in pairwise(path)]
    assert {round(gap, 6) + 0.0 for gap in gaps} == {0.0, 2.0, 6.0}


def test_a_drawing_becomes_a_file_of_its_own(figures: ModuleType) -> None:
    """It names itself, brings its colours for light and dark, and refers to nothing else."""
    text = figures.svg_file(figures.pipeline_example(), 17)
    tree = ET.fromstring(text)  # noqa: S314 - our own text
    assert tree.attrib["aria-label"].startswith("Predicted schedule of the pipeline")
    assert "prefers-color-scheme: dark" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    classes = {name for element in tree.iter() for name in element.attrib.get("class", "").split()}
    assert {name for name in classes if f".{name}" not in text} <= {"tick"}
