"""``rocm-smi --showtopo``: weight, hops and link type between the GPUs of one host, and their NUMA nodes.

The Link Type table says how two GPUs are joined; weights and hops are its consequences and serve as a check.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from readers.frame.facts import Joint, JointKind, Origin, WiringFact
from readers.frame.findings import Finding, doubt, note, refusal
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_TITLE: Final = re.compile(r"^\s*={3,}\s*(\S.{0,60}?)\s*={3,}\s*$", re.ASCII)
_ANCHOR: Final = re.compile(
    r"^\s*={3,}\s*(?:ROCm System Management Interface|(?:Weight|Hops|Link Type) between two GPUs)",
    re.ASCII | re.IGNORECASE,
)
_NUMA: Final = re.compile(r"^\s*GPU\[\d{1,4}\]\s*:\s*\(Topology\) Numa (?:Node|Affinity):\s*\S", re.ASCII)
_GPU: Final = re.compile(r"GPU\d{1,4}", re.ASCII)
_KINDS: Final = {"XGMI": JointKind.XGMI, "PCIE": JointKind.PCIE}
_MOST_GPUS: Final = 256
"""Columns of a table; no host has more."""
_BEGIN: Final = "rocm system management interface"
_END: Final = "end of rocm smi log"
_TYPES: Final = "link type between two gpus"
_HOPS: Final = "hops between two gpus"


@dataclass(slots=True)
class _Grid:
    line: int
    columns: tuple[str, ...] = ()
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _Run:
    first: int
    last: int
    grids: dict[str, _Grid] = field(default_factory=dict)
    low_power: int = 0


def _runs(lines: tuple[Line, ...]) -> list[_Run]:
    """One run for every call of the tool; a table that comes twice begins the next one."""
    runs: list[_Run] = []
    grid: _Grid | None = None
    for line in lines:
        title = _TITLE.match(line.text)
        if title is not None:
            name, grid = title.group(1).casefold(), None
            if not runs or name == _BEGIN or name in runs[-1].grids:
                runs.append(_Run(line.number, line.number))
            if name.endswith("between two gpus"):
                grid = runs[-1].grids.setdefault(name, _Grid(line.number))
            if name == _END:
                runs[-1].last = line.number
        elif runs and line.text.strip():
            _take(runs[-1], grid, line)
    return runs


def _take(run: _Run, grid: _Grid | None, line: Line) -> None:
    words = line.text.split()
    if _NUMA.match(line.text) is not None:
        run.last = line.number
    elif "low-power state" in line.text:
        run.low_power = line.number
    elif grid is not None and _GPU.fullmatch(words[0]):
        if all(map(_GPU.fullmatch, words)) and not grid.rows and len(words) <= _MOST_GPUS:
            grid.columns = tuple(dict.fromkeys(words))
        elif grid.columns:
            grid.rows.setdefault(words[0], tuple(words[1:]))
        run.last = line.number


def _cells(grid: _Grid) -> dict[tuple[str, str], str]:
    """The words of a table by row and column; the last word of a row cut short may itself be cut and is left."""
    cells: dict[tuple[str, str], str] = {}
    for row, words in grid.rows.items():
        kept = words if len(words) >= len(grid.columns) else words[:-1]
        pairs = zip(grid.columns, kept, strict=False)
        cells.update({(row, column): word for column, word in pairs if column != row})
    return cells


def _joints(grid: _Grid, refusals: list[Finding]) -> tuple[list[Joint], list[tuple[str, str]]]:
    """One joint a pair; and the pairs that the two halves of the table call differently (PCIe is taken)."""
    cells = _cells(grid)
    place = {name: index for index, name in enumerate(dict.fromkeys([*grid.columns, *grid.rows]))}
    joints: list[Joint] = []
    differing: list[tuple[str, str]] = []
    unknown = sorted({word for word in cells.values() if word.upper() not in _KINDS})
    if unknown:
        reason = f"link types that rocm-smi does not print here: {', '.join(word[:20] for word in unknown[:5])}"
        remedy = "send rocm-smi --showtopo as printed"
        refusals.append(refusal(grid.line, grid.line + len(grid.rows), reason, remedy))
    for (row, column), word in cells.items():
        back = cells.get((column, row))
        if back is not None and place[row] > place[column]:
            continue
        kinds = {_KINDS[said.upper()] for said in (word, back) if said is not None and said.upper() in _KINDS}
        if not kinds:
            continue
        first, second = sorted((row, column), key=place.__getitem__)
        if len(kinds) > 1:
            differing.append((first, second))
        kind = JointKind.PCIE if JointKind.PCIE in kinds else JointKind.XGMI
        joints.append(Joint(first, second, kind))
    joints.sort(key=lambda joint: (place[joint.first], place[joint.second]))
    return joints, differing


def _hives(gpus: list[str], joints: list[Joint]) -> list[list[str]]:
    """GPUs that XGMI joins, directly or over others."""
    neighbours: dict[str, list[str]] = {gpu: [] for gpu in gpus}
    for joint in joints:
        if joint.kind is JointKind.XGMI:
            neighbours[joint.first].append(joint.second)
            neighbours[joint.second].append(joint.first)
    place = {gpu: index for index, gpu in enumerate(gpus)}
    seen: set[str] = set()
    hives: list[list[str]] = []
    for gpu in gpus:
        if gpu in seen:
            continue
        reached, waiting = {gpu}, [gpu]
        while waiting:
            for other in neighbours[waiting.pop()]:
                if other not in reached:
                    reached.add(other)
                    waiting.append(other)
        seen |= reached
        hives.append(sorted(reached, key=place.__getitem__))
    return hives


def hive_doubts(gpus: list[str], joints: list[Joint], line: int) -> list[Finding]:
    """A note where XGMI joins the GPUs in several groups."""
    hives = [hive for hive in _hives(gpus, joints) if len(hive) > 1]
    if len(hives) < 2:
        return []
    groups = "; ".join(" ".join(hive) for hive in hives[:8])
    sentence = f"XGMI joins the GPUs of this host in {len(hives)} hives: {groups}"
    remedy = f"keep tensor parallel groups within {min(len(hive) for hive in hives)} GPUs"
    return [note("two-hives", line, sentence, remedy)]


def _doubts(run: _Run, gpus: list[str], joints: list[Joint], differing: list[tuple[str, str]]) -> list[Finding]:
    doubts = hive_doubts(gpus, joints, run.first)
    if differing:
        pairs = ", ".join(f"{first}-{second}" for first, second in differing[:8])
        sentence = f"the two halves of the table differ for {pairs}; PCIe is taken"
        doubts.append(doubt("asymmetric-matrix", run.first, sentence, "run rocm-smi --showtopo again"))
    hops = run.grids.get(_HOPS)
    far = _cells(hops) if hops is not None else {}
    odd = [
        f"{joint.first}-{joint.second}"
        for joint in joints
        if (joint.kind is JointKind.PCIE and far.get((joint.first, joint.second)) == "1")
    ]
    if odd and any(joint.kind is JointKind.XGMI for joint in joints):
        sentence = f"one hop, yet PCIe, between {', '.join(odd[:8])}: an XGMI link may be down"
        doubts.append(doubt("links-missing", run.first, sentence, "look at rocm-smi --shownodesbw"))
    if run.low_power:
        sentence = "GPUs were in a low-power state; wiring is drawn all the same, clocks and powers are not telling"
        doubts.append(note("low-power", run.low_power, sentence))
    return doubts


def read(source: Source, lines: tuple[Line, ...]) -> Contents:
    """The wiring that each call of rocm-smi drew; refused where the Link Type table is not among its tables."""
    facts: list[WiringFact] = []
    refusals: list[Finding] = []
    doubts: list[Finding] = []
    for run in _runs(lines):
        grid = run.grids.get(_TYPES)
        if grid is None or not grid.rows:
            reason = "rocm-smi's table Link Type between two GPUs is not here"
            refusals.append(refusal(run.first, run.last, reason, "send the whole of rocm-smi --showtopo"))
            continue
        joints, differing = _joints(grid, refusals)
        gpus = list(dict.fromkeys([*grid.columns, *grid.rows]))
        doubts += _doubts(run, gpus, joints, differing)
        complete = all(len(grid.rows.get(gpu, ())) >= len(grid.columns) for gpu in grid.columns)
        facts.append(
            WiringFact(
                Origin(source.name, run.first, run.last),
                source.host,
                tuple(gpus),
                (),
                tuple(joints),
                len(grid.columns),
                partial=not complete,
            )
        )
    return Contents(tuple(facts), tuple(refusals), tuple(doubts))


FORMAT: Final = Format(
    name="rocm-smi-topo",
    known_as="rocm-smi --showtopo",
    family="inside a node",
    read=read,
    begins=(_ANCHOR,),
)
