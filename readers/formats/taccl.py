"""TACCL link profiles: latency and time of a chunk per class of link; refused, since they name no pair of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from readers.frame.findings import Finding, note, refusal
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_KEYS: Final = ("node_betas_list", "node_invbws_list", "remote_alpha", "remote_beta", "remote_invbw")
_SHOWN: Final = ("alpha", *_KEYS)
REASON: Final = (
    "a TACCL profile gives latency and time per chunk for a class of links, not for pairs of nodes that it names"
)
_REMEDY: Final = "state the bandwidth of the class by hand, or send nccl-tests of pairs of nodes"


def fits(tree: Any) -> bool:
    """Whether a tree is a TACCL profile: the figures of a node beside those between nodes."""
    return isinstance(tree, Mapping) and "alpha" in tree and sum(key in tree for key in _KEYS) >= 2


def _figures(value: Any) -> str | None:
    figures = value if isinstance(value, list) else [value]
    if not figures or len(figures) > 64:
        return None
    if not all(isinstance(figure, (int, float)) and not isinstance(figure, bool) for figure in figures):
        return None
    return ", ".join(str(figure)[:20] for figure in figures)


def read(source: Source, lines: tuple[Line, ...]) -> Contents:
    """A refusal, and a note with the figures (microseconds, those of time for a chunk of the size in the name)."""
    first, last = (lines[0].number, lines[-1].number) if lines else (1, 1)
    doubts: list[Finding] = []
    if isinstance(source.tree, Mapping):
        told = {key: _figures(source.tree[key]) for key in _SHOWN if key in source.tree}
        said = "; ".join(f"{key} {figures}" for key, figures in told.items() if figures is not None)
        if said:
            sentence = f"{str(source.tree.get('name', 'the profile'))[:40]} says, in microseconds: {said}"
            doubts.append(note("taccl-profile", first, sentence))
    return Contents((), (refusal(first, last, REASON, _REMEDY),), tuple(doubts))


FORMAT: Final = Format(
    name="taccl-profile",
    known_as="TACCL link profile (JSON)",
    family="inside a node",
    read=read,
    fits=fits,
    refused_because=REASON,
)
