"""Loads of the ranks from the heaviest to the lightest, with experts in their order and with the new map."""

from __future__ import annotations

from itertools import pairwise

from app.web.drawing import Drawing, Key, Line, Words, round_steps
from solver.candidates import FloatArray

_WIDTH, _HEIGHT = 760.0, 220.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 38.0, 8.0, 12.0, 34.0


def rank_curve(name: str, before: FloatArray, after: FloatArray) -> Drawing:
    """Two falling lines; ``before`` and ``after`` (L, G) are loads of ranks, over the mean of their layer."""
    curves = [_sorted_means(loads) for loads in (before, after)]
    ranks = len(curves[0])
    highest = max(curve[0] for curve in curves)
    across = (_WIDTH - _LEFT - _RIGHT) / max(ranks - 1, 1)
    up = (_HEIGHT - _TOP - _BOTTOM) / highest
    floor = _HEIGHT - _BOTTOM
    levels = round_steps(highest, wanted=4)
    lines = [Line(_LEFT, floor - step * up, _WIDTH - _RIGHT, floor - step * up, "grid-line") for step in levels]
    lines.append(Line(_LEFT, floor - up, _WIDTH - _RIGHT, floor - up, "axis"))
    for curve, style in zip(curves, ("line-1", "line-0"), strict=True):
        places = [(_LEFT + rank * across, floor - load * up) for rank, load in enumerate(curve)]
        lines += [Line(*one, *other, style) for one, other in pairwise(places)]
    return Drawing(
        width=_WIDTH,
        height=_HEIGHT,
        name=f"Load of ranks, heaviest first, {name}",
        description=f"Over the mean rank, mean of layers: the heaviest carries {curves[0][0]:.2f} in contiguous "
        f"order and {curves[1][0]:.2f} with the new map, the lightest {curves[0][-1]:.2f} and {curves[1][-1]:.2f}.",
        boxes=(),
        lines=tuple(lines),
        words=(
            *(Words(_LEFT - 6, floor - step * up + 4, f"{step:g}", anchor="end") for step in levels),
            Words(_LEFT, floor + 18, "heaviest rank of each layer"),
            Words(_WIDTH - _RIGHT, floor + 18, f"lightest of {ranks}", anchor="end"),
        ),
        legend=(Key("part-3", "contiguous order"), Key("part-0", "new map")),
        shrinks=True,
    )


def _sorted_means(loads: FloatArray) -> list[float]:
    """(G,) the mean of layers of the heaviest rank, of the second, ..."""
    relative = loads / loads.mean(axis=1, keepdims=True)
    relative.sort(axis=1)
    falling: list[float] = relative[:, ::-1].mean(axis=0).tolist()
    return falling
