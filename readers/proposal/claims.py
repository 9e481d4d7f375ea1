"""Claims of files about the fields of nodes, and the choice among several."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cluster_models.cluster.topology import NicGroup
from cluster_models.units import GBIT
from readers.frame.facts import Origin
from readers.frame.numbers import finite, whole
from readers.proposal.values import EVERY_NODE, Answers, Conflict, Notes, SourcedValue

ORCHESTRATOR, TREE, TOOL, BLOCK, KNOWN, TEMPLATE, SEEN, LISTED = 40, 35, 30, 25, 20, 10, 5, 4
"""Whom we believe first: what schedules the node, a tree of switches, what was run on the node, blocks of a
scheduler, what was stored, a virtual machine's template, and last what a test happened to print.  Tables list GPUs
per node without naming any: they only raise what a test printed."""
_NICS: Final = re.compile(r"(\d{1,4}) ?[xX] ?(\d{1,6}(?:\.\d{1,3})?)(?: ?Gb(?:it)?/s| ?Gbps)?(?: (\w{1,40}))?")


@dataclass(frozen=True, slots=True)
class Claim:
    """One value for one field of one node."""

    node: str
    field: str
    value: Any
    origin: Origin
    weight: int


def believed(claims: Sequence[Claim], answers: Answers, notes: Notes) -> SourcedValue:
    """The value of one field: the answer, else the weightiest; a conflict is noted where others differ."""
    node, field = claims[0].node, claims[0].field
    seen = [claim for claim in claims if claim.weight <= SEEN]
    stated = [claim for claim in claims if claim.weight > SEEN]
    if field == "gpu_count" and stated:
        claims = stated
    elif field == "gpu_count":
        claims = [max(seen, key=lambda claim: claim.value)]
    by_value: dict[str, list[Claim]] = {}
    for claim in claims:
        by_value.setdefault(shown(claim.value), []).append(claim)
    ranked = sorted(
        by_value.values(), key=lambda same: (-max(c.weight for c in same), -len(same), shown(same[0].value))
    )
    said = tuple(
        SourcedValue(same[0].value, tuple(sorted({c.origin for c in same}, key=_place))) for same in ranked
    )
    own = answers.chosen.get(f"{node}.{field}")
    choice = answers.chosen.get(f"{EVERY_NODE}.{field}") if own is None else own
    if choice is not None:
        matching = [one for one in said if shown(one.value) == choice]
        if matching:
            return matching[0]
        # said of all nodes, where it was asked of the new ones: what is stored of the others stays
        value = parsed(field, choice)
        if own is not None or all(claim.weight != KNOWN for claim in claims):
            return SourcedValue(value, ())
        if all(one.value != value for one in said):
            notes.passed_over.setdefault(field, []).append(node)
    if len(said) > 1:
        notes.conflicts.append(Conflict(f"{node}.{field}", said, said[0]))
    return said[0]


def _place(origin: Origin) -> tuple[str, int, int, str]:
    return origin.file, origin.first_line, origin.last_line, origin.path


def shown(value: Any) -> str:
    """The value as reports and answers write it."""
    if isinstance(value, NicGroup):
        return f"{value.count} x {value.bytes_per_s / GBIT:g} Gb/s {value.fabric}"
    return str(value)


def parsed(field: str, text: str) -> Any:
    """An answer as a value of its field; the text itself where it is none, for the document's check to refuse."""
    if field == "gpu_count":
        number = whole(text, 6)
        return text if number is None else number
    if field == "nics" and (found := _NICS.fullmatch(text.strip())) is not None:
        count, rate = int(found[1]), finite(found[2])
        if count and rate:
            return NicGroup(count, rate * GBIT, found[3] or "unknown")
    return text


def answered(name: str, taken: Mapping[str, SourcedValue], answers: Answers) -> dict[str, SourcedValue]:
    """Fields that no file gives and an answer does."""
    found: dict[str, SourcedValue] = {}
    for where, text in answers.chosen.items():
        node, _, field = where.partition(".") if where.startswith(EVERY_NODE) else _split(where, name)
        if node in {name, EVERY_NODE} and field and field not in taken:
            found[field] = SourcedValue(parsed(field, text), ())
    if answers.gpu_kind and "gpu_kind" not in taken:
        found.setdefault("gpu_kind", SourcedValue(answers.gpu_kind, ()))
    if answers.node_kind:
        found["node_kind"] = SourcedValue(answers.node_kind, ())
    return found


def _split(where: str, name: str) -> tuple[str, str, str]:
    """The node ``name`` and the field of an answer such as "n1.example.gpu_count": names hold points too."""
    prefix = f"{name}."
    return (name, ".", where[len(prefix) :]) if where.startswith(prefix) else ("", "", "")
