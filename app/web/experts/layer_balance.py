"""Two maps of experts side by side: a bar of each for every layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from app.presentation.expert_map import slowest
from app.web.drawing import Box, Drawing, Key, Line, Words, round_steps

_WIDTH: Final = 760.0
_HEIGHT: Final = 230.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 38.0, 8.0, 12.0, 30.0
_TIPS: Final = 128
"""Layers of a drawing up to which every bar says its figure."""
_BEFORE, _AFTER = "part-3", "part-0"


@dataclass(frozen=True, slots=True)
class LayerPair:
    """Balancedness of one layer with either map."""

    layer: int
    before: float
    after: float


def layer_drawing(name: str, layers: Sequence[LayerPair], maps: tuple[str, str]) -> Drawing:
    """Two bars for each layer: slowest rank over mean with either of the ``maps``; 1 is even."""
    highest = max(slowest(min(layer.before, layer.after)) for layer in layers)
    scale = (_HEIGHT - _TOP - _BOTTOM) / highest
    floor = _HEIGHT - _BOTTOM
    pitch = (_WIDTH - _LEFT - _RIGHT) / len(layers)
    steps = round_steps(highest, wanted=4)
    worst = max(layers, key=lambda layer: slowest(layer.after))
    before = max(layers, key=lambda layer: slowest(layer.before))
    every = max(1, round(len(layers) / 8))
    return Drawing(
        width=_WIDTH,
        height=_HEIGHT,
        name=f"Slowest rank over mean by layer, {name}",
        description=(
            f"The worst layer with the {maps[0]} is {before.layer} with {slowest(before.before):.2f} times the "
            f"mean load; with the {maps[1]} it is {worst.layer} with {slowest(worst.after):.2f}. 1 is even."
        ),
        boxes=tuple(_bars(layers, maps, pitch, scale)),
        lines=(
            *(
                Line(_LEFT, floor - step * scale, _WIDTH - _RIGHT, floor - step * scale, "grid-line")
                for step in steps
            ),
            Line(_LEFT, floor - scale, _WIDTH - _RIGHT, floor - scale, "axis"),
            Line(_LEFT, floor, _WIDTH - _RIGHT, floor, "axis"),
        ),
        words=(
            *(Words(_LEFT - 6, floor - step * scale + 4, f"{step:g}", anchor="end") for step in steps),
            *(
                Words(_LEFT + (index + 0.5) * pitch, floor + 18, str(layer.layer), anchor="middle")
                for index, layer in enumerate(layers)
                if index % every == 0
            ),
        ),
        legend=(Key(_BEFORE, maps[0]), Key(_AFTER, maps[1])),
        shrinks=True,
    )


def _bars(layers: Sequence[LayerPair], maps: tuple[str, str], pitch: float, scale: float) -> Iterator[Box]:
    """Two boxes for each layer, side by side around the middle of its ``pitch``."""
    width = min(pitch * 0.42, 26.0)
    for index, layer in enumerate(layers):
        middle = _LEFT + (index + 0.5) * pitch
        for left, value, style, words in (
            (middle - width, layer.before, _BEFORE, maps[0]),
            (middle, layer.after, _AFTER, maps[1]),
        ):
            height = slowest(value) * scale
            tip = f"Layer {layer.layer}, {words}: {slowest(value):.2f}" if len(layers) <= _TIPS else ""
            yield Box(left, _HEIGHT - _BOTTOM - height, width, height, style, tip)
