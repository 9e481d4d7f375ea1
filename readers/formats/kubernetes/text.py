"""Nodes of Kubernetes as text: fragments of labels, ``kubectl get nodes --show-labels``, ``kubectl describe``.

A fragment is a run of ``key=value``, ``key: value`` or ``"key": "value",``; a key that comes again begins the next
node.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import Any, Final

from readers.formats.kubernetes.labels import COLUMN_KEYS, telling
from readers.formats.kubernetes.nodes import RESOURCES, host_of, troubles
from readers.frame.facts import HealthFact, HostFact, Origin
from readers.frame.findings import Finding, refusal, refused, refused_runs
from readers.frame.reading import Contents, Reader
from readers.frame.sources import Line, Source

_KEY: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
FRAGMENT: Final = re.compile(
    r"^\s*(?:labels:)?[\s{]*\"?"
    r"(?:(?:beta\.)?(?:nvidia|amd|kubernetes)\.(?:com|io)/|oci\.oraclecloud\.com/rdma|topology\.k(?:8s|ubernetes)\."
    r"|cloud\.google\.com/gce-topology-|network\.topology\.nvidia\.com/|(?:fabric|accelerator)\.topograph\.run/"
    r"|(?:backend|ib)\.coreweave\.cloud/)[\w./-]{2,80}\"?\s*[:=]",
    re.IGNORECASE,
)
TABLE: Final = re.compile(r"^NAME\s+STATUS\s+ROLES\s+AGE\s+VERSION(?:\s|$)")
DESCRIBED: Final = re.compile(r"^Name:\s{3,}[A-Za-z0-9][\w.-]*$")
_QUIET: Final = frozenset({"", "{", "}", "},", "...", "labels:", '"labels": {', "```", "---"})
_COLUMN: Final = re.compile(r"\S+(?: \S+)*")
_LABEL_REMEDY: Final = "send the output of: kubectl get nodes -o json"


@dataclass(slots=True)
class _Draft:
    """One node being read."""

    first: int
    last: int
    labels: dict[str, str] = field(default_factory=dict)
    name: str = ""
    status: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)

    def node(self) -> dict[str, Any]:
        """As a node object."""
        metadata = {"name": self.name, "labels": self.labels}
        return {"metadata": metadata, "status": self.status, "spec": self.spec}


def read_text(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Contents of the text: a table or a description begins where its heading stands."""
    starts = [index for index, line in enumerate(lines) if TABLE.match(line.text) or _begins(lines, index)]
    bounds = [0, *starts, len(lines)]
    parts = [lines[first:last] for first, last in itertools.pairwise(bounds) if first < last]
    read = [_reader_of(part[0])(source, part) for part in parts]
    return Contents(
        tuple(fact for part in read for fact in part.facts),
        tuple(refusal for part in read for refusal in part.refusals),
        tuple(doubt for part in read for doubt in part.doubts),
    )


def _begins(lines: tuple[Line, ...], index: int) -> bool:
    return lines[index].text.startswith("Name:") and DESCRIBED.match(lines[index].text) is not None


def _reader_of(heading: Line) -> Reader:
    if TABLE.match(heading.text):
        return read_show_labels
    return read_described if DESCRIBED.match(heading.text) else read_label_lines


def read_label_lines(source: Source, lines: tuple[Line, ...]) -> Contents:
    """A fact for each run of labels without a repeated key."""
    drafts: list[_Draft] = []
    unread: list[Line] = []
    for line in lines:
        pairs = _pairs(line.text)
        if pairs and not pairs.keys() - RESOURCES:
            continue  # of capacity and allocatable, in a list of nodes that was cut
        if not pairs:
            unread.append(line)
            continue
        if not drafts or drafts[-1].labels.keys() & pairs.keys():
            drafts.append(_Draft(line.number, line.number))
        drafts[-1].labels |= pairs
        drafts[-1].last = line.number
    return _understood(source, drafts, unread)


def read_show_labels(source: Source, lines: tuple[Line, ...]) -> Contents:
    """A fact for each row of ``kubectl get nodes --show-labels``, or with columns of labels (``-L``)."""
    drafts: list[_Draft] = []
    unread: list[Line] = []
    columns: dict[str, int] = {}
    for line in lines:
        if TABLE.match(line.text):
            columns = {found[0]: found.start() for found in _COLUMN.finditer(line.text)}
            if "LABELS" not in columns and not COLUMN_KEYS.keys() & columns.keys():
                return Contents((), (refused(line, _NO_LABELS, _LABEL_REMEDY, lines[-1].number),))
            continue
        cells = line.text.split()
        labels = _labels_of_row(line.text, columns)
        if len(cells) < 5 or not labels:
            unread.append(line)
            continue
        words = cells[1].split(",")
        ready = "True" if words[0] == "Ready" else "False" if words[0] == "NotReady" else "Unknown"
        condition = {"type": "Ready", "status": ready, "reason": "" if ready == "True" else cells[1]}
        drafts.append(
            _Draft(
                line.number,
                line.number,
                labels,
                cells[0],
                {"conditions": [condition]},
                {"unschedulable": "SchedulingDisabled" in words},
            )
        )
    return _understood(source, drafts, unread)


_NO_LABELS: Final = "a list of nodes without their labels says nothing of GPUs or places"


def _labels_of_row(text: str, columns: dict[str, int]) -> dict[str, str]:
    """The labels of a row, from the list of all or from the columns that are headed by one label each."""
    cells = text.split()
    if "LABELS" in columns:
        return _pairs(cells[-1], every=True) if cells and "=" in cells[-1] else {}
    ends = [*sorted(columns.values())[1:], len(text)]
    spans = dict(zip(sorted(columns.values()), ends, strict=True))
    found = {
        key: text[columns[heading] : spans[columns[heading]]].strip()
        for heading, key in COLUMN_KEYS.items()
        if heading in columns
    }
    return {key: value for key, value in found.items() if value and value != "<none>"}


def read_described(source: Source, lines: tuple[Line, ...]) -> Contents:
    """A fact for each node of ``kubectl describe nodes``: labels, capacity, conditions, addresses."""
    drafts: list[_Draft] = []
    heading = ""
    for line in lines:
        text = line.text
        if DESCRIBED.match(text):
            drafts.append(_Draft(line.number, line.number, name=text.split()[1]))
        if not drafts or not text.strip():
            continue
        drafts[-1].last = line.number
        rest = text
        if not text[0].isspace():
            heading, _, rest = text.partition(":")
        _describe(drafts[-1], heading, rest.strip())
    return _understood(source, drafts, [])


def _describe(draft: _Draft, heading: str, rest: str) -> None:
    """One line below (or beside) a heading of ``kubectl describe``."""
    if not rest:
        return
    if heading == "Labels":
        draft.labels |= _pairs(rest, every=True)
    elif heading in {"Capacity", "Allocatable"}:
        key, _, value = rest.partition(":")
        draft.status.setdefault(heading.lower(), {})[key.strip()] = value.strip()
    elif heading == "Addresses":
        kind, _, address = rest.partition(":")
        draft.status.setdefault("addresses", []).append({"type": kind.strip(), "address": address.strip()})
    elif heading == "Conditions":
        cells = rest.split()
        if len(cells) > 1:
            draft.status.setdefault("conditions", []).append({"type": cells[0], "status": cells[1]})
    elif heading == "Taints":
        key, _, effect = rest.partition(":")
        key, _, value = key.partition("=")
        draft.spec.setdefault("taints", []).append({"key": key, "value": value, "effect": effect})
    elif heading == "Unschedulable":
        draft.spec["unschedulable"] = rest == "true"
    elif heading == "ProviderID":
        draft.spec["providerID"] = rest


def _pairs(text: str, *, every: bool = False) -> dict[str, str]:
    """The labels on one line; only keys with a prefix, unless ``every`` line is known to be of labels."""
    pairs = {}
    text = text.strip().removeprefix("labels:").strip("{} \t")
    parts = text.split(",") if text.count("=") > 1 or text.count('":') > 1 else [text]
    for part in parts:
        word = part.strip().rstrip(",")
        mark = "=" if "=" in word and not word.startswith('"') else ":"
        key, found, value = word.partition(mark)
        key = key.strip().strip('"')
        if found and (_KEY.fullmatch(key) or (every and key)):
            pairs[key] = value.strip().strip("\"'")
    return pairs


def _understood(source: Source, drafts: list[_Draft], unread: list[Line]) -> Contents:
    facts: list[HostFact | HealthFact] = []
    doubts: list[Finding] = []
    filled = (line for line in unread if line.text.strip() not in _QUIET)
    refusals = list(refused_runs(filled, "holds no label of a node", _LABEL_REMEDY))
    for draft in drafts:
        origin = Origin(source.name, draft.first, draft.last)
        fact, odd, reason = host_of(draft.node(), origin, source.host)
        if not reason and not draft.name and not telling(draft.labels):
            reason = "the labels say nothing of GPUs or of the place of a node"
        if reason:
            refusals.append(refusal(draft.first, draft.last, reason, _LABEL_REMEDY, draft.name))
        else:
            facts += [fact, *troubles(draft.node(), fact)]
            doubts += odd
    return Contents(tuple(facts), tuple(refusals), tuple(doubts))
