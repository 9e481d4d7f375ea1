"""Failures as options of a command: parts of a cluster by name, and what became of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from app.cli.endings import complain
from app.cli.files import naming, read_text
from app.documents.reading import close_name
from app.events.part_lookup import NodeNames, resolve
from app.events.reading import ReportedEvent, ToldEvent
from app.events.registry import adapter_named
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidInput
from cluster_models.health.conditions import OPERATOR
from cluster_models.health.events import UNSTATED, EntityKind, HealthState
from readers.proposal.aliases import AliasTable

_GPU: Final = re.compile(r"gpu[ :=]?(\d+)", re.IGNORECASE)
_CARD: Final = re.compile(r"nic[ :=]?(\S+)", re.IGNORECASE)
_REMEDY: Final = "write NODE, NODE:gpu2, NODE:nic0, NODE-NODE of a link, or LABEL:PLACE of a switch"
_SPEEDS: Final = frozenset({EntityKind.NODE, EntityKind.GPU})
"""Parts of which a share means pace; of the others it means bandwidth."""


@dataclass(frozen=True, slots=True)
class ToldFailures:
    """Failures as typed: parts by option (of ``--degraded`` with ``=SHARE``), and a file that an adapter reads."""

    lost: Sequence[str] = ()
    degraded: Sequence[str] = ()
    draining: Sequence[str] = ()
    recovered: Sequence[str] = ()
    events: str | None = None
    adapter: str | None = None
    source: str | None = None
    leave_within_s: float | None = None
    """How long what drains still works."""

    def __post_init__(self) -> None:
        if self.adapter is not None:
            with as_option("--adapter"):
                adapter_named(self.adapter)
            if self.events is None:
                raise InvalidInput("--adapter", self.adapter, "says how to read no file", "name it with --events")
        if self.leave_within_s is not None and not self.draining:
            raise InvalidInput("--leave-within", None, "says until when nothing works", "name it with --draining")

    @property
    def says_nothing(self) -> bool:
        """Whether no failure was given."""
        parts = (self.lost, self.degraded, self.draining, self.recovered)
        return self.events is None and not any(parts)


def reported(
    told: ToldFailures, cluster: Cluster, aliases: AliasTable | None = None
) -> list[tuple[str, ReportedEvent]]:
    """Every report with its source; raises ``InvalidInput`` of options that name no part of the cluster.

    Standard error names entries of the file that cannot be read; they do not stop the others.
    """
    now = datetime.now(UTC)
    typed = list(_typed(told, cluster, aliases or AliasTable(), now))
    return [(told.source or OPERATOR, event) for event in typed] + _in_file(told, now)


def looked_up(
    reports: Sequence[tuple[str, ReportedEvent]], cluster: Cluster, aliases: AliasTable | None = None
) -> tuple[ToldEvent, ...]:
    """Reports with the names of the cluster; of those about other parts a line on standard error each."""
    events = resolve((event for _, event in reports), source="", cluster=cluster, aliases=aliases or AliasTable())
    found = tuple(
        replace(each, event=replace(each.event, source=source))
        for (source, _), each in zip(reports, events, strict=True)
    )
    names = [node.name for node in cluster.nodes]
    for unknown in sorted({each.told_name for each in found if not each.known}):
        complain(
            f"meshwright: --events: {unknown!r} is not part of {cluster.name}, left out; {_near(unknown, names)}"
        )
    return found


def _in_file(told: ToldFailures, now: datetime) -> list[tuple[str, ReportedEvent]]:
    if told.events is None:
        return []
    adapter = adapter_named(told.adapter or "plain")
    with naming(told.events):
        read = adapter.read(read_text(told.events).encode(), now)
    for problem in read.unread:
        complain(f"meshwright: {Path(told.events).name}: not read: {problem}")
    return [(told.source or adapter.name, event) for event in read.events]


def _typed(told: ToldFailures, cluster: Cluster, aliases: AliasTable, now: datetime) -> Iterator[ReportedEvent]:
    parts = _Parts(cluster, aliases)
    options = (
        ("--lost", told.lost, HealthState.FAILED),
        ("--draining", told.draining, HealthState.DRAINING),
        ("--recovered", told.recovered, HealthState.RECOVERED),
    )
    for option, texts, state in options:
        for text in texts:
            kind, node, part = parts.named(option, text)
            event = _event(text, kind, node, part, state=state, now=now)
            if state is HealthState.DRAINING and told.leave_within_s is not None:
                event = replace(event, leave_by=now + timedelta(seconds=told.leave_within_s))
            yield event
    for text in told.degraded:
        name, share = _share(text)
        kind, node, part = parts.named("--degraded", name)
        event = _event(text, kind, node, part, state=HealthState.DEGRADED, now=now)
        if kind in _SPEEDS:
            yield replace(event, compute_slowdown=1 / share)
        else:
            yield replace(event, bandwidth_share=share)


def _event(
    text: str, kind: EntityKind, node: str, part: str, *, state: HealthState, now: datetime
) -> ReportedEvent:
    return ReportedEvent(kind, node, part, state, now, f"{text} {state} {now.isoformat()}")


def _share(text: str) -> tuple[str, float]:
    """The part and the share of ``PART=SHARE``."""
    name, equals, figure = text.rpartition("=")
    if not equals or not name:
        raise InvalidInput("--degraded", text, "does not say how much is left", "write it as n1-n5=0.5")
    try:
        share = float(figure.removesuffix("%")) / (100 if figure.endswith("%") else 1)
    except ValueError:
        share = UNSTATED
    if not 0 < share <= 1:
        raise InvalidInput("--degraded", text, "leaves no share in (0, 1]", "0.5 is half of what it had")
    return name, share


class _Parts:
    """The parts of a cluster by what people type for them."""

    def __init__(self, cluster: Cluster, aliases: AliasTable) -> None:
        self._cluster = cluster
        self._aliases = aliases
        self._nodes = {node.name: node for node in cluster.nodes}
        self._names = NodeNames(cluster, aliases)

    def named(self, option: str, text: str) -> tuple[EntityKind, str, str]:
        """Kind, node and part; raises ``InvalidInput`` with the nearest name where there is none."""
        text = text.strip()
        owner, colon, part = text.partition(":")
        node = self._names.named(owner) if colon else None
        if node is not None:
            return self._part(option, text, node, part)
        if (node := self._names.named(text)) is not None:
            return EntityKind.NODE, node, ""
        if (ends := self._ends(option, text)) is not None:
            return EntityKind.LINK, *ends
        if colon and self._is_switch(text):
            return EntityKind.SWITCH, "", text
        name = owner if colon and owner not in self._labels() else text
        near = _near(name, self._known(text))
        remedy = near if near.startswith("did you mean") else f"{near}; {_REMEDY}"
        raise InvalidInput(option, text, f"is not part of the cluster {self._cluster.name}", remedy)

    def _part(self, option: str, text: str, node: str, part: str) -> tuple[EntityKind, str, str]:
        gpu, card = _GPU.fullmatch(part), _CARD.fullmatch(part)
        if gpu is not None:
            if int(gpu[1]) >= (count := self._nodes[node].gpu_count):
                raise InvalidInput(option, text, f"is not a GPU of {node}: it has {count}", f"0 to {count - 1}")
            return EntityKind.GPU, node, str(int(gpu[1]))
        if card is None:
            raise InvalidInput(option, text, f"names no part of {node}", f"write {node}:gpu2 or {node}:nic0")
        if card[1].isdecimal() and int(card[1]) >= (count := self._nodes[node].nics.count):
            raise InvalidInput(
                option, text, f"is not a network card of {node}: it has {count}", f"0 to {count - 1}"
            )
        return EntityKind.NIC, node, card[1]

    def _ends(self, option: str, text: str) -> tuple[str, str] | None:
        """The nodes of a link, whose names may have dashes of their own."""
        found = set()
        for at, letter in enumerate(text):
            if letter == "-":
                first, second = self._names.named(text[:at]), self._names.named(text[at + 1 :])
                if first is not None and second is not None and first != second:
                    found.add((first, second))
        if len(found) > 1:
            links = " or ".join(f"{first} to {second}" for first, second in sorted(found))
            raise InvalidInput(option, text, f"may be the link {links}", "name both ends in a file for --events")
        return found.pop() if found else None

    def _is_switch(self, text: str) -> bool:
        event = ReportedEvent(EntityKind.SWITCH, "", text, HealthState.FAILED, datetime.now(UTC), "")
        return resolve([event], source="", cluster=self._cluster, aliases=self._aliases)[0].known

    def _labels(self) -> set[str]:
        return {label for node in self._cluster.nodes for label in (*node.labels, "nvlink_domain")}

    def _known(self, text: str) -> list[str]:
        label, colon, _ = text.partition(":")
        places = {place for node in self._cluster.nodes if (place := node.place(label)) is not None}
        return [f"{label}:{place}" for place in sorted(places)] if colon and places else list(self._nodes)


def known_node(option: str, name: str, cluster: Cluster) -> str:
    """The node of that name; raises ``InvalidInput`` with the nearest."""
    found = NodeNames(cluster, AliasTable()).named(name)
    if found is None:
        names = [node.name for node in cluster.nodes]
        raise InvalidInput(option, name, f"is not a node of the cluster {cluster.name}", _near(name, names))
    return found


def _near(name: str, known: Sequence[str]) -> str:
    """The nearest name; of many that are all far away only some."""
    told = close_name(name, known)
    return told if told.startswith("did you mean") or len(known) <= 10 else close_name(name, known[:10]) + ", ..."


@contextmanager
def as_option(option: str) -> Iterator[None]:
    """Name the option in place of the fields of a value."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(option, error.value, error.problem, error.remedy) from error
