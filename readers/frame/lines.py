"""Lines as a tool printed them: without the prefixes, colours and line ends that launchers and terminals add."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_letters, ascii_uppercase
from typing import Final

from readers.frame.sources import Line

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]")
LONGEST_LINE: Final = 65_536
"""Characters of a line that are looked at: a row of 4,096 figures, and patterns stay fast."""


@dataclass(frozen=True, slots=True)
class _Prefix:
    """Text that a launcher puts before each line; ``starts`` are the characters that it can begin with."""

    pattern: re.Pattern[str]
    starts: str
    is_moment: bool = False
    is_host: bool = False
    names_program: bool = False
    """Group 2 is the program; a log of many programs is left as it is."""


_DIGITS: Final = "0123456789"
_PREFIXES: Final = (
    _Prefix(re.compile(r" {0,8}\[(?:[\w.@-]{1,80}@)?(\d{1,9},\d{1,9})\]<(?:stdout|stderr)>: ?", re.ASCII), "[ "),
    _Prefix(re.compile(r"\[(pod/[^\]\s]{1,400})\](?: |$)"), "["),
    _Prefix(
        re.compile(
            r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?"
            r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d))"
            r" ([A-Za-z0-9][\w.\-]{0,252}) ((?!kernel|systemd|NetworkManager|nv(?:idia)?-|nhc)[\w./@\-]{1,80})"
            r"(?:\[\d{1,9}\])?:(?: |$)",
            re.ASCII,
        ),
        _DIGITS + ascii_uppercase,
        names_program=True,
    ),
    _Prefix(re.compile(r" {0,6}(\d{1,6}):(?: |$)", re.ASCII), _DIGITS + " "),
    _Prefix(
        re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d))(?: |$)", re.ASCII),
        _DIGITS,
        is_moment=True,
    ),
    _Prefix(re.compile(r"([A-Za-z][A-Za-z0-9.\-]{0,252}):(?: |$)", re.ASCII), ascii_letters, is_host=True),
)
"""Prefixes of ``mpirun --tag-output``, ``kubectl logs --prefix``, systemd's journal (but for lines that readers
know), ``srun --label``, ``kubectl logs --timestamps``, and ``pdsh``."""
_DEVICE: Final = re.compile(
    r"(?:gpu|nic|rank|link|port|cpu|core|socket|numa|eth|ib|en[ops]|sd|nvme|mlx|hca)\d", re.IGNORECASE
)
_LEAST_LINES: Final = 3
"""Lines that a host must have for a word before a colon to be its name."""


def clean_lines(text: str) -> tuple[Line, ...]:
    """The lines of a file, numbered from 1; a carriage return inside a line restarts it, as on a terminal.

    A launcher's prefix goes only where most lines of the file carry the same kind: a lone "1: eth0" is the tool's
    own text.  Launchers nest, so the kinds go one after the other, whichever most lines begin with.
    """
    texts = _printed(text)
    tellers: list[str] = [""] * len(texts)
    stamps: list[str] = [""] * len(texts)
    left = list(_PREFIXES)
    while (prefix := next((prefix for prefix in left if _is_usual(prefix, texts)), None)) is not None:
        left.remove(prefix)
        _strip(prefix, texts, stamps if prefix.is_moment else tellers)
    return tuple(map(Line, range(1, len(texts) + 1), texts, tellers, stamps))


def _printed(text: str) -> list[str]:
    """Lines as a terminal would show them, without blanks at the ends."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    rows = text.split("\n")
    if not rows[-1]:
        rows.pop()
    if "\r" in text:
        rows = [row.rstrip("\r").rpartition("\r")[2] if "\r" in row else row for row in rows]
    return [row[:LONGEST_LINE].rstrip() for row in rows]


def _is_usual(prefix: _Prefix, texts: Sequence[str]) -> bool:
    """Whether more than half of the lines that are not blank begin so."""
    filled = [text for text in texts if text]
    match, starts = prefix.pattern.match, prefix.starts
    if prefix.is_host:
        return _are_hosts(filled, prefix)
    found = [begin for text in filled if text[0] in starts and (begin := match(text)) is not None]
    if prefix.names_program and 2 * len(found) > len(filled):
        return 2 * max(Counter(begin[2] for begin in found).values()) > len(filled)
    return 2 * len(found) > len(filled)


def _are_hosts(filled: Sequence[str], prefix: _Prefix) -> bool:
    """Whether all lines begin with hosts: words with a digit, each before several lines that hold several words."""
    lines: dict[str, int] = {}
    words = 0
    for text in filled:
        found = prefix.pattern.match(text)
        if found is None or _DEVICE.match(found[1]) is not None or not any(map(str.isdigit, found[1])):
            return False
        lines[found[1]] = lines.get(found[1], 0) + 1
        words += " " in text[found.end() :].strip() or "\t" in text[found.end() :].strip()
    return bool(lines) and min(lines.values()) >= _LEAST_LINES and 2 * words > len(filled)


def _strip(prefix: _Prefix, texts: list[str], said: list[str]) -> None:
    match, starts = prefix.pattern.match, prefix.starts
    for index, text in enumerate(texts):
        if text and text[0] in starts and (found := match(text)) is not None:
            said[index] = found[1]
            texts[index] = text[found.end() :]
