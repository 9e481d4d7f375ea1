"""Joints of a host as ``nvidia-smi topo -m`` draws them: islands of NVLinks, GPUs that lack some."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from readers.frame.facts import Joint, JointKind
from readers.frame.findings import Finding, doubt, note

GPU: Final = re.compile(r"GPU\d+", re.ASCII)
_CELLS: Final = {
    "PIX": JointKind.PIX,
    "PXB": JointKind.PXB,
    "PSB": JointKind.PXB,
    "PHB": JointKind.PHB,
    "NODE": JointKind.NODE,
    "SYS": JointKind.SYS,
    "SOC": JointKind.SYS,
    "C2C": JointKind.C2C,
}
"""SOC is what drivers before 2017 wrote for SYS."""
_NEARNESS: Final = {
    kind: place
    for place, kind in enumerate(
        (
            JointKind.NVLINK,
            JointKind.C2C,
            JointKind.PIX,
            JointKind.PXB,
            JointKind.PHB,
            JointKind.NODE,
            JointKind.SYS,
        )
    )
}
_NVLINKS: Final = re.compile(r"NV(\d{1,3})", re.ASCII)


@lru_cache(maxsize=1024)
def cell_of(word: str) -> tuple[JointKind, int | None] | None:
    """Kind of the joint that a word of the table names, and its number of NVLinks."""
    links = _NVLINKS.fullmatch(word)
    if links is not None:
        return JointKind.NVLINK, int(links.group(1))
    kind = _CELLS.get(word)
    return None if kind is None else (kind, None)


_joint: Final = lru_cache(maxsize=1 << 16)(Joint)
"""Hosts of one cluster have the same joints: each is made once."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Joints that the cells of a table show; hosts of one kind have the same."""

    gpus: tuple[str, ...]
    joints: tuple[Joint, ...]
    differing: tuple[tuple[str, str], ...]
    """Pairs whose two cells differ; the worse is taken."""
    shows_no_nvlink: bool
    doubts: tuple[Finding, ...]
    """Findings about the joints, on line 0."""


Drawn = Callable[[tuple[str, ...], tuple[tuple[str, ...], ...]], Drawing]


def drawing_of(names: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> Drawing:
    """The drawing of devices and the cells of their rows."""
    joints, differing = _joints(names, rows)
    gpus = [name for name in names if GPU.fullmatch(name)]
    shown = set(gpus)
    among = [joint for joint in joints if joint.first in shown and joint.second in shown]
    return Drawing(
        tuple(gpus),
        tuple(joints),
        tuple(differing),
        _shows_no_nvlink(gpus, among),
        tuple(_doubts(gpus, among)),
    )


def _joints(names: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[Joint], list[tuple[str, str]]]:
    """One joint a pair, in the order of the header; and the pairs whose two cells differ (the worse is taken)."""
    joints: list[Joint] = []
    differing: list[tuple[str, str]] = []
    for first, row in enumerate(rows):
        for second in range(first + 1, len(rows)):
            other = rows[second]
            there = cell_of(row[second]) if second < len(row) else None
            back = cell_of(other[first]) if first < len(other) else None
            taken = there or back
            if taken is None:
                continue
            if there is not None and back is not None and there != back:
                differing.append((names[first], names[second]))
                taken = max(there, back, key=lambda cell: (_NEARNESS[cell[0]], -(cell[1] or 0)))
            joints.append(_joint(names[first], names[second], *taken))
    return joints, differing


def _islands(gpus: list[str], joints: list[Joint]) -> list[list[str]]:
    """GPUs that NVLinks join, directly or over others; in the order of the header."""
    leader = {gpu: gpu for gpu in gpus}

    def found(gpu: str) -> str:
        while leader[gpu] != gpu:
            leader[gpu] = leader[leader[gpu]]
            gpu = leader[gpu]
        return gpu

    for joint in joints:
        if joint.kind is JointKind.NVLINK:
            leader[found(joint.second)] = found(joint.first)
    islands: dict[str, list[str]] = {}
    for gpu in gpus:
        islands.setdefault(found(gpu), []).append(gpu)
    return list(islands.values())


def _links(gpus: list[str], joints: list[Joint]) -> tuple[dict[str, int], bool]:
    """NVLinks of each GPU, and whether a switch joins all (each GPU then shows all its links to every other).

    Without a switch the links of a GPU are those to its neighbours added up: DGX-1 mixes NV1 and NV2 and has six
    at every GPU.
    """
    wired = [joint for joint in joints if joint.kind is JointKind.NVLINK]
    switched = len(gpus) > 2 and all(joint.kind is JointKind.NVLINK for joint in joints)
    links = dict.fromkeys(gpus, 0)
    for joint in wired:
        for gpu in (joint.first, joint.second):
            count = joint.links or 0
            links[gpu] = max(links[gpu], count) if switched else links[gpu] + count
    return links, switched


def _doubts(gpus: list[str], joints: list[Joint]) -> list[Finding]:
    known = Counter(gpu for joint in joints for gpu in (joint.first, joint.second))
    whole = [gpu for gpu in gpus if known[gpu] == len(gpus) - 1]
    doubts: list[Finding] = []
    links, switched = _links(gpus, joints)
    counted = links if switched else {gpu: links[gpu] for gpu in whole}
    most = max(counted.values(), default=0)
    few = [gpu for gpu, count in counted.items() if count < most]
    if few:
        said = ", ".join(f"{gpu} has {counted[gpu]}" for gpu in few[:8])
        sentence = f"{said} of the {most} NVLinks that other GPUs of this host have"
        doubts.append(doubt("links-missing", 0, sentence, "look at nvidia-smi nvlink -s on this host"))
    islands = [island for island in _islands(gpus, joints) if len(island) > 1]
    if len(islands) > 1 or (islands and len(islands[0]) < sum(known[gpu] > 0 for gpu in gpus)):
        groups = "; ".join(" ".join(island) for island in islands[:16])
        sentence = f"NVLink joins these GPUs only among themselves: {groups}"
        doubts.append(note("bridged-pairs", 0, sentence, "keep tensor parallel groups inside them"))
    return doubts


def _shows_no_nvlink(gpus: list[str], joints: list[Joint]) -> bool:
    return len(gpus) > 2 and bool(joints) and not any(joint.kind is JointKind.NVLINK for joint in joints)
