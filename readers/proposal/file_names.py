"""Nodes that the name of a file hints at: "n7/topo.txt", "topo.n7.log", "n1_n2_all_reduce.log".

A hint is never an answer: it only says which choices a question should show first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

_BREAKS: Final = re.compile(r"[/\\\s,+()=@\[\]_]+")
_MOST_WORDS: Final = 40
_MOST_PIECES: Final = 8
"""Parts of a word, split at dots and dashes."""
_LIKE_A_NODE: Final = re.compile(r"[A-Za-z][A-Za-z]*\d{0,4}(?:-[A-Za-z0-9]+){0,4}-\d{1,6}|[A-Za-z]{2,12}\d{2,6}")
_NO_NODE: Final = re.compile(
    r"(?:[abhlv]|gh?b?|rtx|mi|tesla|sxm|nv|nvl|hgx|dgx|gfx|cuda|rocm|sm|ib|mlx|rank|nic|step|run|test|part|job|rev"
    r"|version|size|slurm|example|utf|iso)-?\d.*|gpus?-?\d{1,2}|.*\d-\d\d-\d\d",
    re.IGNORECASE,
)


def nodes_hinted(file: str, node_of: Callable[[str], str | None]) -> tuple[str, ...]:
    """The nodes that words of a file's name are names of, in its order; ``node_of`` looks a name up."""
    found: dict[str, None] = {}
    for word in _words(file):
        for name in _parts(word):
            node = node_of(name)
            if node is not None:
                found[node] = None
                break
    return tuple(found)


def host_hinted(file: str) -> str | None:
    """Likely name of a host, where no node is known: a folder before a word of the file's name."""
    folders, _, last = file.replace("\\", "/").rpartition("/")
    for folder in reversed(folders.split("/")):
        if _looks_like_a_node(folder):
            return folder
    return next((part for word in _words(last) for part in word.split(".") if _looks_like_a_node(part)), None)


def _looks_like_a_node(text: str) -> bool:
    return len(text) < 64 and _LIKE_A_NODE.fullmatch(text) is not None and _NO_NODE.fullmatch(text) is None


def _words(file: str) -> list[str]:
    return [word for word in _BREAKS.split(file[-1024:]) if word][-_MOST_WORDS:]


def _parts(word: str) -> Iterator[str]:
    """The word and every run of its pieces between dots and dashes, longest first."""
    pieces = re.split(r"([.\-])", word)[: 2 * _MOST_PIECES - 1]
    count = (len(pieces) + 1) // 2
    for length in range(count, 0, -1):
        for first in range(count - length + 1):
            part = "".join(pieces[2 * first : 2 * (first + length) - 1])
            if part and not part.isdigit():
                yield part
