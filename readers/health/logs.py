"""Kernel and system logs, and the log of NVIDIA's fabric manager.

A log says the same thing many times: one fact stands for all lines about one entity and one kind of trouble.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cluster_models.cluster.topology import NodeState
from cluster_models.health.events import HealthState
from cluster_models.health.states import NODE_STATES
from cluster_models.health.xids import state_of_xid
from readers.frame.facts import HealthFact
from readers.frame.findings import Finding, doubt, note, refused
from readers.frame.reading import Contents
from readers.frame.sources import Line, Source, origin_of
from readers.health.kernel_lines import kernel_line

_LOST: Final = re.compile(
    r"\b((?:ib|mlx\d_|eth|en[ops])[\w\-]{0,20}): (?:lost carrier|(?:NIC )?[Ll]ink (?:is )?[Dd]own)"
)
_CRASH: Final = re.compile(r" in lib(?:nccl|rccl|cuda)")
_FELL: Final = "GPU has fallen off the bus"
_SYSLOG: Final = re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ([A-Za-z0-9][\w.\-]*) \S")
_AFTER_ISO: Final = re.compile(r"([A-Za-z0-9][\w.\-]*) (?:kernel|systemd[\w\-]*|nvidia[\w\-]*)(?:\[\d+\])?:")


@dataclass(slots=True)
class _Trouble:
    """All lines about one entity and one kind of trouble."""

    host: str | None
    entity: str
    state: NodeState
    text: str
    first: int
    last: int
    times: int = 1


def read_kernel_log(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Xids by GPU, lost links by device, errors of nvidia-peermem; other lines say nothing of hardware."""
    troubles: dict[tuple[str | None, str, str], _Trouble] = {}
    doubts: dict[str, Finding] = {}
    for line in lines:
        found = _trouble_of(line.text)
        if found is None:
            if "segfault at " in line.text and _CRASH.search(line.text) is not None:
                doubts.setdefault("crash", _doubt("library-crash", line, "a process crashed in a GPU library"))
            continue
        entity, kind, health, text = found
        if health is None:
            doubts.setdefault(kind, _doubt("application-xid", line, f"{text} comes from the application"))
            continue
        told = _SYSLOG.match(line.text) or _AFTER_ISO.match(line.text)
        host = source.host or (told[1] if told else None)
        if health is HealthState.RECOVERED:
            troubles = {key: trouble for key, trouble in troubles.items() if key[:2] != (host, entity)}
            continue
        state = NODE_STATES[health]
        known = troubles.get((host, entity, kind))
        if known is None:
            troubles[host, entity, kind] = _Trouble(host, entity, state, text, line.number, line.number)
        else:
            known.last, known.times = line.number, known.times + 1
    return Contents(
        _facts(source, troubles.values()),
        () if doubts else _nothing(lines, list(troubles), "kernel"),
        tuple(doubts.values()),
    )


def _trouble_of(text: str) -> tuple[str, str, HealthState | None, str] | None:
    """Entity, kind, state and words of a line; no state where the hardware is not to blame."""
    if (said := kernel_line(text)) is not None:
        words = f": {said.text[:200]}" if said.text else ""
        return f"gpu:PCI:{said.bus}", f"xid {said.xid}", state_of_xid(said.xid, said.text), f"Xid {said.xid}{words}"
    if _FELL in text:
        return "node", "off bus", HealthState.FAILED, _FELL
    if (lost := _LOST.search(text)) is not None:
        return f"nic:{lost[1]}", "link", HealthState.DEGRADED, f"{lost[1]} lost its link"
    words = text.partition("nvidia-peermem")[2].strip()
    if "ERROR" in words:
        return "node", "peermem", HealthState.DEGRADED, f"nvidia-peermem {words[:200]}"
    return None


def _doubt(code: str, line: Line, sentence: str) -> Finding:
    return note(code, line.number, sentence, "look at the job that ran then; the node was not marked")


def _facts(source: Source, troubles: Iterable[_Trouble]) -> tuple[HealthFact, ...]:
    return tuple(
        HealthFact(
            origin_of(source, trouble.first, trouble.last),
            trouble.host,
            trouble.entity,
            trouble.state,
            trouble.text + (f" ({trouble.times} times)" if trouble.times > 1 else ""),
        )
        for trouble in troubles
    )


def _nothing(lines: Sequence[Line], found: Sequence[object], what: str) -> tuple[Finding, ...]:
    if found or not lines:
        return ()
    reason = f"the {what} log names no Xid, lost link or other fault of a node"
    return (refused(lines[0], reason, "nothing to do, if that is what you expect", lines[-1].number),)


_MANAGER: Final = re.compile(r"\[\w{3} \d\d \d{4} \d\d:\d\d:\d\d\] \[(\w+)\] (?:\[tid \d+\] )?(.*)")
_COMPLAINT: Final = re.compile(r"fabric\W?manager.{0,200}(?:error|fail|don't match|not match)", re.IGNORECASE)
"""In the journal of systemd, whose lines carry no level."""
_SWITCH: Final = re.compile(
    r"NVSwitch (?:(non-?fatal)|fatal) error (\d+).*?(?:pci bus id|PCI:) ?([0-9a-fA-F:.]{7,20})", re.IGNORECASE
)


def read_fabric_manager(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Errors of NVSwitches by switch; other errors are shown as doubts, as many of them pass by themselves."""
    troubles: dict[tuple[str, str], _Trouble] = {}
    errors: list[Line] = []
    for line in lines:
        found = _MANAGER.match(line.text)
        if found is None and _COMPLAINT.search(line.text) is not None:
            errors.append(line)
            continue
        if found is None or found[1].upper() not in {"ERROR", "FATAL", "CRITICAL"}:
            continue
        switch = _SWITCH.search(found[2])
        if switch is None:
            errors.append(line)
            continue
        state = NodeState.DEGRADED if switch[1] else NodeState.FAILED
        key = (f"nvswitch:PCI:{switch[3]}", switch[2])
        if key in troubles:
            troubles[key].last, troubles[key].times = line.number, troubles[key].times + 1
        else:
            text = f"SXid {switch[2]}: {found[2][:200]}"
            troubles[key] = _Trouble(source.host, key[0], state, text, line.number, line.number)
    doubts: tuple[Finding, ...] = ()
    if errors:
        shown = _MANAGER.match(errors[0].text)
        words = shown[2] if shown else errors[0].text.strip()
        sentence = f"{len(errors)} lines of errors name no switch; the first: {words[:160]}"
        remedy = "look whether NVLink works on that node (nvidia-smi nvlink -s, a test with nccl-tests)"
        doubts = (doubt("fabric-manager-error", errors[0].number, sentence, remedy),)
    return Contents(
        _facts(source, troubles.values()), _nothing(lines, [*troubles, *errors], "fabric manager"), doubts
    )
