"""The curves of the placement benchmark, as small SVG files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from benchmarks.placement_rivals import Course

COLOURS: Final = {"planner": "#0b6e4f", "annealer": "#b5541c", "restarts": "#6a6a9e", "rank order": "#8a8a8a"}
POINTS: Final = 40
STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "placement",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_courses(courses: dict[int, dict[str, Course]], path: Path) -> None:
    """For each number of nodes, how far above the bound each method is as time passes."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(2, (len(courses) + 1) // 2, figsize=(9, 5), squeeze=False)
        for axis, (nodes, methods) in zip(axes.flat, courses.items(), strict=False):
            bound_s = methods["planner"].bound_s
            longest = max(course.seconds for course in methods.values())
            times = np.geomspace(0.02, max(longest, 0.1), POINTS)
            for name, course in methods.items():
                end = max(course.seconds, longest if name == "rank order" else 0.0)
                shown = times[times <= end * 1.01]
                above = [100 * (course.at(float(when)) / bound_s - 1) for when in shown]
                axis.plot(shown, above, label=name, color=COLOURS[name], drawstyle="steps-post", linewidth=1.4)
            axis.set_xscale("log")
            axis.set_title(f"{nodes} nodes", fontsize=10)
            axis.set_ylim(bottom=0)
        for axis in axes[:, 0]:
            axis.set_ylabel("% above the bound")
        for axis in axes[-1]:
            axis.set_xlabel("seconds")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="upper center", ncols=4, frameon=False)
        figure.tight_layout(rect=(0, 0, 1, 0.94))
        save_figure(figure, path)


def draw_gaps(courses: dict[int, dict[str, Course]], path: Path) -> None:
    """Where each method ends above the bound, by number of nodes."""
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(5, 3.2))
        sizes = list(courses)
        for name, colour in COLOURS.items():
            above = [100 * (courses[nodes][name].step_s / courses[nodes]["planner"].bound_s - 1) for nodes in sizes]
            axis.plot(sizes, above, marker="o", markersize=4, color=colour, label=name, linewidth=1.4)
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(nodes) for nodes in sizes])
        axis.set_xlabel("nodes")
        axis.set_ylabel("% above the bound")
        axis.set_ylim(bottom=0)
        axis.legend(frameon=False)
        figure.tight_layout()
        save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> None:
    """Write ``figure`` as SVG, the same bytes for the same figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
