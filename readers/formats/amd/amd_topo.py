"""``amd-smi topology``, as text and as JSON: how the GPUs of one host are joined.

The tables name GPUs by their PCI addresses, in the order of their numbers.  The table of link types says how two
are joined; a link that the access table calls DISABLED is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from readers.formats.amd.rocm_topo import hive_doubts
from readers.frame.facts import Joint, JointKind, Origin, WiringFact
from readers.frame.findings import Finding, doubt, refusal, refused
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_TITLE: Final = re.compile(r"^\s*([A-Z][A-Z \-]{2,40}) TABLE:\s*$", re.ASCII)
_ANCHOR: Final = re.compile(
    r"^\s*(?:ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW|CACHE COH\w{4,7}|ATOMICS|DMA|BI-DIRECTIONAL) TABLE:\s*$", re.ASCII
)
_BUS: Final = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", re.ASCII)
_KINDS: Final = {"XGMI": JointKind.XGMI, "PCIE": JointKind.PCIE}
_TYPES, _ACCESS = "LINK TYPE", "ACCESS"
_MOST_GPUS: Final = 256
_REMEDY: Final = "send the whole of amd-smi topology, or of amd-smi topology --json"


@dataclass(slots=True)
class _Table:
    columns: tuple[str, ...] = ()
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _Run:
    """The tables of one call of the tool."""

    first: Line
    last: int
    tables: dict[str, _Table] = field(default_factory=dict)


def read_text(source: Source, lines: tuple[Line, ...]) -> Contents:
    """The wiring that each call drew; refused where the table of link types is not there."""
    facts: list[WiringFact] = []
    refusals: list[Finding] = []
    doubts: list[Finding] = []
    for run in _runs(lines):
        types = run.tables.get(_TYPES, _Table())
        gpus = types.columns or tuple(types.rows)
        if not types.rows:
            refusals.append(refused(run.first, "the table of link types is not here", _REMEDY, run.last))
            continue
        words = _words(types)
        closed = {pair for pair, word in _words(run.tables.get(_ACCESS, _Table())).items() if word == "DISABLED"}
        origin = Origin(source.name, run.first.number, run.last)
        whole = all(len(types.rows.get(gpu, ())) == len(gpus) for gpu in gpus)
        fact = _wiring(source, origin, gpus, {pair: word for pair, word in words.items() if pair not in closed})
        facts.append(fact if whole else _cut(fact))
        doubts += _doubts(fact, words, closed)
    return Contents(tuple(facts), tuple(refusals), tuple(doubts))


def _runs(lines: tuple[Line, ...]) -> list[_Run]:
    """A table that comes twice begins the next call."""
    runs: list[_Run] = []
    table: _Table | None = None
    for line in lines:
        title = _TITLE.match(line.text)
        if title is not None:
            if not runs or title[1] in runs[-1].tables:
                runs.append(_Run(line, line.number))
            table = runs[-1].tables.setdefault(title[1], _Table())
            continue
        words = line.text.split()
        if table is None or not words or _BUS.fullmatch(words[0]) is None:
            table = table if words and table is not None and not table.columns else None
            continue
        if not table.columns and all(map(_BUS.fullmatch, words)):
            table.columns = tuple(dict.fromkeys(words))[:_MOST_GPUS]
        else:
            table.rows.setdefault(words[0], tuple(words[1:]))
        runs[-1].last = line.number
    return runs


def _words(table: _Table) -> dict[tuple[str, str], str]:
    """Words between two GPUs; the last word of a row cut short may itself be cut, and is left."""
    found: dict[tuple[str, str], str] = {}
    for row, words in table.rows.items():
        kept = words if len(words) >= len(table.columns) else words[:-1]
        found.update(
            {
                (row, column): word.upper()
                for column, word in zip(table.columns, kept, strict=False)
                if column != row
            }
        )
    return found


def _wiring(
    source: Source, origin: Origin, buses: Sequence[str], words: Mapping[tuple[str, str], str]
) -> WiringFact:
    names = {bus: f"GPU{place}" for place, bus in enumerate(buses)}
    joints = []
    for place, one in enumerate(buses):
        for other in buses[place + 1 :]:
            said = {words.get((one, other)), words.get((other, one))} & _KINDS.keys()
            if said:
                joints.append(Joint(names[one], names[other], _KINDS["PCIE" if "PCIE" in said else "XGMI"]))
    return WiringFact(origin, source.host, tuple(names.values()), (), tuple(joints), len(buses))


def _cut(fact: WiringFact) -> WiringFact:
    return WiringFact(fact.origin, fact.host, fact.gpus, fact.nics, fact.joints, fact.expected_gpus, partial=True)


def _doubts(fact: WiringFact, words: Mapping[tuple[str, str], str], closed: set[tuple[str, str]]) -> list[Finding]:
    line = fact.origin.first_line
    doubts = hive_doubts(list(fact.gpus), list(fact.joints), line)
    down = [pair for pair in closed if words.get(pair) == "XGMI"]
    if down:
        one, other = min(down)
        sentence = f"{len(down)} XGMI links are disabled, as that from {one} to {other}: left out"
        doubts.append(doubt("links-missing", line, sentence, "look at amd-smi xgmi on this host"))
    return doubts


def fits(tree: Any) -> bool:
    """Whether a tree is a list of GPUs with their links."""
    gpus = _gpus_of(tree)
    return bool(gpus) and all(
        isinstance(gpu, Mapping) and "bdf" in gpu and isinstance(gpu.get("links"), list) for gpu in gpus
    )


def _gpus_of(tree: Any) -> list[Any]:
    found = tree.get("topology", tree.get("gpu_data")) if isinstance(tree, Mapping) else tree
    return found[:_MOST_GPUS] if isinstance(found, list) else []


def read_json(source: Source, lines: tuple[Line, ...]) -> Contents:
    """The wiring of ``amd-smi topology --json``."""
    gpus = [gpu for gpu in _gpus_of(source.tree) if isinstance(gpu, Mapping)]
    buses = tuple(dict.fromkeys(str(gpu.get("bdf", gpu.get("gpu")))[:40] for gpu in gpus))
    words: dict[tuple[str, str], str] = {}
    closed: set[tuple[str, str]] = set()
    for gpu in gpus:
        own = str(gpu.get("bdf", gpu.get("gpu")))[:40]
        links = gpu.get("links")
        for link in links[:_MOST_GPUS] if isinstance(links, list) else ():
            if not isinstance(link, Mapping):
                continue
            pair = own, str(link.get("bdf", link.get("gpu")))[:40]
            words[pair] = str(link.get("link_type", "")).upper()
            if str(link.get("link_status", "")).upper() == "DISABLED":
                closed.add(pair)
    origin = Origin(source.name, 1, lines[-1].number if lines else 1)
    fact = _wiring(source, origin, buses, {pair: word for pair, word in words.items() if pair not in closed})
    if len(buses) > 1 and not fact.joints:
        reason = "no link between two GPUs has a type of XGMI or PCIE"
        return Contents((), (refusal(1, origin.last_line, reason, _REMEDY),))
    return Contents((fact,), (), tuple(_doubts(fact, words, {pair for pair in closed if pair[0] != pair[1]})))


FORMATS: Final = (
    Format("amd-smi-topology", "amd-smi topology", "inside a node", read_text, begins=(_ANCHOR,)),
    Format("amd-smi-topology-json", "amd-smi topology --json", "inside a node", read_json, fits=fits),
)
