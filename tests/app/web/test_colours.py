"""The style sheet's colours can be read: contrast as WCAG 2.2 computes it, on light and on dark pages."""

from __future__ import annotations

import re
from importlib import resources

import pytest

SHEET = resources.files("app.web").joinpath("static/pages.css").read_text("utf-8")
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    for block in re.findall(r":root \{(.*?)\n *\}", SHEET, flags=re.DOTALL)
)


def _luminance(colour: str) -> float:
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_contrast_of_black_and_white_is_known() -> None:
    """21 to 1 by definition, so the formula stands."""
    assert _contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(colours: dict[str, str]) -> None:
    """At least 4.5 to 1 for every pair of text and background that pages use."""
    pairs = [(text, behind) for text in ("ink", "soft", "accent", "bad") for behind in ("page", "panel")]
    pairs += [("accent-ink", "accent"), ("good", "panel"), ("warn", "panel"), ("limit", "page")]
    pairs += [(text, f"{mood}-page") for mood in ("good", "warn", "bad") for text in ("ink", "soft")]
    pairs += [("ink", f"hue-{index}") for index in range(8)]
    weak = {pair: _contrast(colours[pair[0]], colours[pair[1]]) for pair in pairs}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_edges_of_fields_can_be_seen(colours: dict[str, str]) -> None:
    """At least 3 to 1 for the outline of what can be typed into, and for the focus."""
    for edge in ("strong-line", "accent"):
        assert _contrast(colours[edge], colours["page"]) >= 3


def test_words_in_boxes_of_the_schedule_can_be_read() -> None:
    """White on every colour of an event."""
    fills = re.findall(r"\.event-\w+ \{ fill: (#[0-9a-f]{6})", SHEET)
    assert len(fills) == 8
    assert [fill for fill in fills if _contrast("#ffffff", fill) < 4.5] == []
