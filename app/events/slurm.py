"""Slurm: ``scontrol show node`` (text or JSON), tables of ``sinfo``, and lines of a ``strigger`` program.

Slurm says how nodes are, so all are sightings.  Times in its texts have no zone and are not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from app.documents.text import decode
from app.events.payloads import BODY, MOST_EVENTS, ReportCollector, clean, digest, json_value
from app.events.reading import Adapter, Reported
from cluster_models.errors import InvalidInput
from cluster_models.health.events import HealthState
from cluster_models.health.slurm import TRIGGERS, state_of
from cluster_models.health.states import worst
from readers.frame.host_lists import expand
from readers.frame.trees import items, mapping

_STATE: Final = re.compile(r"(?:^|\s)State=([A-Za-z_+*~#!%$@^\-]{1,200})")
_REASON: Final = re.compile(r"(?:^|\s)Reason=(.{0,400})")
_BRACKETS: Final = re.compile(r"\s*\[[^\]\s]{1,60}@[^\]]{1,40}\]")
_TRIGGER: Final = re.compile(r"(?:strigger\s+)?(?:--)?([a-z]{2,8})[:\s]\s*(\S{1,4000})", re.IGNORECASE)
_NODE_COLUMNS: Final = ("NODELIST", "HOSTNAMES", "NODE_NAME", "NODEHOST")
_STATE_COLUMNS: Final = ("STATE", "STATECOMPACT", "STATELONG")
_DEAD: Final = re.compile(r"not responding|unexpectedly rebooted", re.IGNORECASE)
"""Reasons that Slurm itself writes where the node is down."""
_SEND: Final = "send what scontrol show node, sinfo -R or sinfo -N prints, or: down n[1-3]"


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry about some nodes: states as written, or the state that they stand for."""

    nodes: str
    states: str
    reason: str = ""
    at: datetime | None = None
    told: HealthState | None = None


def read_slurm(body: bytes, now: datetime) -> Reported:
    """The nodes of a body; raises ``InvalidInput`` where it is not output of Slurm."""
    taken = ReportCollector(now)
    text = decode(body, what=BODY)
    entries = _json_entries(json_value(body)) if text.lstrip()[:1] == "{" else _text_entries(text)
    states: dict[str, tuple[HealthState, str, datetime | None]] = {}
    understood, left = False, MOST_EVENTS
    for path, said in entries:
        understood = True
        if left < 0:
            taken.skip(path, said.nodes, "comes after too many names of nodes", "send it in parts")
            continue
        with taken.entry(path):
            nodes = _nodes(said.nodes)
            left -= len(nodes)
            _note(said, nodes, states)
    if not understood:
        raise InvalidInput(BODY, clean(text[:200], 60), "is not output of Slurm that we read", _SEND)
    for node, (state, words, at) in states.items():
        with taken.entry(node):
            told = digest(node, state, words, str(at or taken.now))
            taken.add(state, node, at=at, source_id=told, text=words, is_sighting=True)
    return taken.done()


def _nodes(names: str) -> tuple[str, ...]:
    """The nodes of a list in Slurm's brackets; raises ``InvalidInput``."""
    try:
        nodes = expand(names)
    except ValueError as wrong:
        raise InvalidInput("nodes", names, str(wrong), "name nodes like n[001-016,19]") from wrong
    if not nodes:
        raise InvalidInput("nodes", names, "names no node", "name nodes like n[001-016,19]")
    return nodes


def _note(said: _Entry, nodes: Sequence[str], states: dict[str, tuple[HealthState, str, datetime | None]]) -> None:
    """Note what one entry says of its nodes; the worst holds where several name one.

    Raises ``InvalidInput``.
    """
    state = said.told or state_of(said.states)
    if state is None:
        raise InvalidInput("state", said.states, "is not a state of a node that we know", "see the table of states")
    words = ": ".join(filter(None, (said.states, said.reason)))
    bad = state is not HealthState.RECOVERED
    for node in nodes:
        known = states.get(node)
        if known is None or worst(known[0], state) is not known[0]:
            states[node] = (state, words, said.at if bad else None)


def _text_entries(text: str) -> Iterator[tuple[str, _Entry]]:
    """Entries of texts: blocks of scontrol, rows of sinfo, lines of triggers."""
    lines = text.split("\n")
    if any(line.lstrip().startswith("NodeName=") for line in lines):
        yield from _blocks(lines)
        return
    columns: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        heads = [head.strip().upper() for head in _cells(line)]
        if any(head in _NODE_COLUMNS for head in heads):
            columns = heads
        elif columns:
            yield f"line {number}", _row(line, columns)
        elif (trigger := _TRIGGER.fullmatch(line.strip())) is not None and trigger[1].lower() in TRIGGERS:
            kind = trigger[1].lower()
            yield f"line {number}", _Entry(trigger[2], f"strigger {kind}", told=TRIGGERS[kind])


def _blocks(lines: list[str]) -> Iterator[tuple[str, _Entry]]:
    """Nodes of ``scontrol show node``, in blocks or one a line."""
    name, states, reason, first = "", "", "", 0
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith("NodeName="):
            if name:
                yield f"line {first}", _Entry(name, states, reason)
            name, states, reason, first = text[9:].split(maxsplit=1)[0] if text[9:].strip() else "", "", "", number
        if name and not states and (found := _STATE.search(text)) is not None:
            states = found[1]
        if name and (why := _REASON.search(text)) is not None:
            reason = _BRACKETS.sub("", why[1]).strip()
    if name:
        yield f"line {first}", _Entry(name, states, reason)


def _row(line: str, columns: list[str]) -> _Entry:
    """A row of sinfo; of ``sinfo -R``, where the reason comes first and may hold spaces, cut from behind."""
    cells = [cell.strip() for cell in _cells(line)]
    if columns[0] == "REASON" and "|" not in line and len(cells) > len(columns):
        spare = len(cells) - len(columns)
        cells = [" ".join(cells[: spare + 1]), *cells[spare + 1 :]]
    elif columns[-1] == "REASON" and "|" not in line and len(cells) > len(columns):
        cells = [*cells[: len(columns) - 1], " ".join(cells[len(columns) - 1 :])]
    row = dict(zip(columns, cells, strict=False))
    nodes = next((row[name] for name in _NODE_COLUMNS if row.get(name)), "")
    states = next((row[name] for name in _STATE_COLUMNS if row.get(name)), "")
    reason = row.get("REASON", "")
    reason = "" if reason.casefold() in {"none", "n/a", "(null)"} else reason
    if states or "STATE" in columns:
        return _Entry(nodes, states, reason)
    # sinfo -R lists nodes that are down, drained or failing, and does not say which
    told = HealthState.FAILED if _DEAD.search(reason) is not None else HealthState.DRAINING
    return _Entry(nodes, "", reason, told=told)


def _cells(line: str) -> list[str]:
    return line.split("|") if "|" in line else line.split()


def _json_entries(value: Any) -> Iterator[tuple[str, _Entry]]:
    """Nodes of ``scontrol show node --json`` (or slurmrestd), rows of ``sinfo --json``."""
    for index, each in enumerate(items(mapping(value).get("nodes"))):
        node = mapping(each)
        name = str(node.get("name") or node.get("hostname") or "")
        flags = "+".join(filter(None, (_joined(node.get("state")), _joined(node.get("state_flags")))))
        yield (
            f"nodes[{index}]",
            _Entry(name, flags, str(node.get("reason") or ""), _epoch(node.get("reason_changed_at"))),
        )
    for index, each in enumerate(items(mapping(value).get("sinfo"))):
        row = mapping(each)
        names = ",".join(str(name) for name in items(mapping(row.get("nodes")).get("nodes")))
        told = row.get("reason")
        reason = str(mapping(told).get("description") or "") if isinstance(told, Mapping) else str(told or "")
        yield f"sinfo[{index}]", _Entry(names, _joined(mapping(row.get("node")).get("state")), reason)


def _joined(states: Any) -> str:
    return "+".join(str(each) for each in states) if isinstance(states, list) else str(states or "")


def _epoch(value: Any) -> datetime | None:
    """A time of Slurm's JSON: seconds, in newer versions inside a mapping; 0 stands for none."""
    seconds = value.get("number") if isinstance(value, Mapping) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 < seconds < 2**40:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


SLURM: Final = Adapter(
    "slurm",
    "Slurm (scontrol show node, sinfo, strigger)",
    read_slurm,
    "NodeName=n3 Arch=x86_64 CPUTot=192\n"
    "   State=DOWN*+DRAIN ThreadsPerCore=2 Weight=1\n"
    "   Reason=Not responding [slurm@2026-03-01T12:00:05]\n"
    "NodeName=n4 Arch=x86_64 CPUTot=192\n"
    "   State=IDLE ThreadsPerCore=2 Weight=1\n",
)
