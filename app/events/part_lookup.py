"""Look-up of the parts of a cluster that reports are about, whatever names their sources use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from app.events.reading import ReportedEvent, ToldEvent
from cluster_models.cluster.topology import Cluster
from cluster_models.health.events import Entity, EntityKind, HealthEvent
from readers.proposal.aliases import AliasTable, spellings

_PORT: Final = re.compile(r"(.+?):\d{1,5}")
_SWITCH_LABELS: Final = ("leaf", "spine", "nvlink_domain", "rack", "block", "zone")
"""Labels whose places may be named; a switch named without one is looked for under them in this order."""


class NodeNames:
    """The nodes of a cluster by every name they go by: their own, aliases, names without domain."""

    def __init__(self, cluster: Cluster, aliases: AliasTable) -> None:
        self._nodes = frozenset(node.name for node in cluster.nodes)
        self._aliases = aliases
        self._own = _unambiguous((node.name.casefold(), node.name) for node in cluster.nodes)
        self._short = _unambiguous(
            (spellings(node.name)[-1].casefold(), node.name) for node in cluster.nodes if "." in node.name
        )
        self._seen: dict[str, str | None] = {}

    def named(self, told: str) -> str | None:
        """The node of that name; of an address with a port, of the address.

        The cluster's own name comes first, then an alias, then a name that is one node's but for its domain.
        """
        if told not in self._seen:
            self._seen[told] = self._find(told)
        return self._seen[told]

    def _find(self, told: str) -> str | None:
        found = self._exact(told)
        if found is None and (with_port := _PORT.fullmatch(told)) is not None:
            found = self._exact(with_port[1])
        if found is None and "/" in told:  # aws:///zone/instance
            found = self._exact(told.rpartition("/")[2])
        return found

    def _exact(self, name: str) -> str | None:
        if name in self._nodes:
            return name
        if (own := self._own.get(name.casefold())) is not None:
            return own
        if (alias := self._aliases.node(name)) in self._nodes:
            return alias
        shorter = spellings(name)[-1]
        if shorter == name.casefold():
            return self._short.get(shorter)
        return self._own.get(shorter)


def resolve(
    reported: Iterable[ReportedEvent], *, source: str, cluster: Cluster, aliases: AliasTable
) -> tuple[ToldEvent, ...]:
    """The reports of ``source`` with the names of the cluster; unknown ones are kept as told.

    A link is known where both its ends are, a GPU with a number where its node has so many; a switch may be named
    with its label (``leaf:leaf-3``) or without.
    """
    names, places = NodeNames(cluster, aliases), _places(cluster)
    gpu_counts = {node.name: node.gpu_count for node in cluster.nodes}
    return tuple(_told(report, source, names, places, gpu_counts) for report in reported)


def _told(
    report: ReportedEvent,
    source: str,
    names: NodeNames,
    places: Mapping[str, str],
    gpu_counts: Mapping[str, int],
) -> ToldEvent:
    told_name = report.told
    if report.kind is EntityKind.SWITCH:
        told_name, place = report.part, places.get(report.part.casefold())
        entity, known = Entity(report.kind, "", place or report.part), place is not None
    elif report.kind is EntityKind.LINK:
        ends = [names.named(name) for name in (report.told, report.part)]
        told_name = f"{report.told} - {report.part}"[:300]
        known = None not in ends and ends[0] != ends[1]
        first, second = (found or told for found, told in zip(ends, (report.told, report.part), strict=True))
        entity = Entity(report.kind, first, second)
    else:
        node = names.named(report.told)
        entity, known = Entity(report.kind, node or report.told, report.part), node is not None
        is_numbered = report.kind is EntityKind.GPU and report.part.isdecimal()
        if node is not None and is_numbered and int(report.part) >= gpu_counts[node]:
            told_name, known = f"GPU {report.part} of {report.told}"[:300], False
    event = HealthEvent(
        entity=entity,
        state=report.state,
        occurred_at=report.occurred_at,
        source=source,
        source_id=report.source_id,
        text=report.text,
        code=report.code,
        compute_slowdown=report.compute_slowdown,
        bandwidth_share=report.bandwidth_share,
        leave_by=report.leave_by,
        device=report.device,
    )
    return ToldEvent(event, told_name, known, report.is_sighting)


def _places(cluster: Cluster) -> dict[str, str]:
    """Switches and other places as nodes carry them, ``label:place``, by every way to name them but for case."""
    exact: dict[str, str] = {}
    loose: dict[str, str] = {}
    for label in reversed(_SWITCH_LABELS):  # the first label wins
        pairs: list[tuple[str, str]] = []
        for node in cluster.nodes:
            if (place := node.place(label)) is not None:
                full, bare = f"{label}:{place}", node.labels.get(label, place)
                exact[full.casefold()] = full
                pairs += [(name.casefold(), full) for name in (place, bare, f"{label}:{bare}")]
        loose |= _unambiguous(pairs)
    return loose | exact


def _unambiguous(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    owners: dict[str, set[str]] = {}
    for key, node in pairs:
        owners.setdefault(key, set()).add(node)
    return {key: min(nodes) for key, nodes in owners.items() if len(nodes) == 1}
