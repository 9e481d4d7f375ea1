"""Lists of hosts in Slurm's brackets: "n[001-016,19],m3"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Final

MOST_NAMES: Final = 4_096
"""Names that one list may stand for: more than the largest clusters we plan, few enough to hold."""
_DIGITS: Final = 18
_TAIL: Final = re.compile(rf"(.*?)([0-9]{{1,{_DIGITS}}})", re.DOTALL)
_NOT_IN_NAMES: Final = re.compile(r"[\[\],\s]")


def expand(text: str) -> tuple[str, ...]:
    """The names, in the order of the text; repeated ones stay repeated.

    ``ValueError`` where brackets do not close, hold no number or range, or where the list stands for more than
    ``MOST_NAMES`` names.
    """
    names: list[str] = []
    for item in _items(text):
        parts = _parts(item)
        if len(names) + prod(len(part) for part in parts) > MOST_NAMES:
            raise ValueError(f"the list stands for more than {MOST_NAMES:,} names")
        names.extend("".join(choice) for choice in product(*parts))
    return tuple(names)


def _items(text: str) -> list[str]:
    """The text between commas that stand outside brackets."""
    items: list[str] = []
    begin = depth = 0
    for at, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            items.append(text[begin:at].strip())
            begin = at + 1
        if depth not in (0, 1):
            raise ValueError("brackets are nested or close without having opened")
    if depth:
        raise ValueError("a bracket does not close")
    items.append(text[begin:].strip())
    return [item for item in items if item]


def _parts(item: str) -> list[Sequence[str]]:
    """The choices at each place of one item: plain text is a single choice."""
    parts: list[Sequence[str]] = []
    for piece in item.replace("]", "[").split("["):
        parts.append([piece] if len(parts) % 2 == 0 else _numbers(piece))
    return parts


def _numbers(inside: str) -> list[str]:
    names: list[str] = []
    for span in inside.split(","):
        low, dash, high = (side.strip() for side in span.partition("-"))
        high = high if dash else low
        if not (_is_number(low) and _is_number(high)):
            raise ValueError(
                f"brackets hold {span.strip()[:40]!r}, which is neither a number nor a range of numbers"
            )
        if int(high) < int(low):
            raise ValueError(f"the range {span.strip()} runs backwards")
        if len(names) + int(high) - int(low) >= MOST_NAMES:
            raise ValueError(f"the list stands for more than {MOST_NAMES:,} names")
        names.extend(str(number).zfill(len(low)) for number in range(int(low), int(high) + 1))
    return names


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


def compress(names: Sequence[str]) -> str:
    """A list in brackets that ``expand`` turns into the same names in the same order.

    ``ValueError`` where a name is empty or holds a bracket, a comma or a blank.
    """
    groups: list[tuple[str, list[list[str]]]] = []
    """Names without their last number, and the ranges of numbers."""
    for name in names:
        if not name or _NOT_IN_NAMES.search(name):
            raise ValueError(f"{name!r} cannot stand in a list of hosts")
        found = _TAIL.fullmatch(name)
        stem, digits = (found[1], found[2]) if found else (name, "")
        if not digits or not groups or groups[-1][0] != stem or not groups[-1][1]:
            groups.append((stem, [[digits, digits]] if digits else []))
        elif _follows(groups[-1][1][-1], digits):
            groups[-1][1][-1][1] = digits
        else:
            groups[-1][1].append([digits, digits])
    return ",".join(_group(stem, spans) for stem, spans in groups)


def _follows(span: list[str], digits: str) -> bool:
    """Whether ``digits`` is what ``expand`` would print next."""
    return digits == str(int(span[1]) + 1).zfill(len(span[0]))


def _group(stem: str, spans: list[list[str]]) -> str:
    if not spans:
        return stem
    if len(spans) == 1 and spans[0][0] == spans[0][1]:
        return stem + spans[0][0]
    return f"{stem}[{','.join(low if low == high else f'{low}-{high}' for low, high in spans)}]"
