"""Proposal of several files together: nodes, switches and samples, and open questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cluster_models.cluster.catalogue import node_kinds
from cluster_models.cluster.measurements import Sample
from cluster_models.cluster.switches import Switch
from readers.frame.facts import Fact, HealthFact, Name, Origin
from readers.frame.findings import Finding

EVERY_NODE = "*"
"""As the host of a file: it shows one of many equal nodes."""
ALIAS = "alias:"
"""Prefix of the key of a question that asks which node a name is."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Decisions of the sender.

    ``hosts``: file -> node, or ``EVERY_NODE``.  ``ranks`` and ``nodes``: "file:line" of a run -> its ranks, its
    nodes.  ``accepted``: "file:line:code" of doubts.  ``chosen``: "node.field" -> value, "*.field" for all nodes
    of which nothing else is stored; "alias:NAME" -> the node of that name.  ``gpu_kind`` and ``node_kind`` fill in
    what no file says.  ``measured_at``: of runs that do not say when.
    """

    hosts: Mapping[str, str] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    accepted: frozenset[str] = frozenset()
    chosen: Mapping[str, str] = field(default_factory=dict)
    gpu_kind: str | None = None
    node_kind: str | None = None
    measured_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value and the places that say it."""

    value: Any
    origins: tuple[Origin, ...]


@dataclass(frozen=True, slots=True)
class ProposedNode:
    """``fields`` are those of the node's document that some file or answer gives.

    gpu_kind, gpu_count, nics (``NicGroup``), nvlink_domain, state, "labels.leaf", ...
    """

    name: str
    aliases: tuple[Name, ...]
    fields: Mapping[str, SourcedValue]
    is_new: bool

    @property
    def gpu_count(self) -> int | None:
        """Its GPUs, those of its node kind where only that is known; ``None`` where nothing is."""
        said, sold = self.fields.get("gpu_count"), self.fields.get("node_kind")
        if said is None and sold is not None and sold.value in node_kinds():
            return node_kinds()[sold.value].gpu_count
        return said.value if said is not None and isinstance(said.value, int) else None


@dataclass(frozen=True, slots=True)
class ProposedSample:
    """A sample and the lines it is from."""

    sample: Sample
    origin: Origin


@dataclass(frozen=True, slots=True)
class Conflict:
    """Different values for one thing; ``where`` is "cnode2-001.gpu_count"."""

    where: str
    said: tuple[SourcedValue, ...]
    taken: SourcedValue


@dataclass(frozen=True, slots=True)
class Question:
    """``key`` is what an answer names; ``blocks`` says how many facts wait for it."""

    key: str
    sentence: str
    choices: tuple[str, ...] = ()
    blocks: int = 1


@dataclass(frozen=True, slots=True)
class Proposal:
    """``kept_aside``: facts that were read and are of no use here, each with the reason.

    ``doubts`` are those of the readers and those that show only across files.
    """

    nodes: tuple[ProposedNode, ...] = ()
    switches: tuple[tuple[Switch, Origin], ...] = ()
    samples: tuple[ProposedSample, ...] = ()
    kept_aside: tuple[tuple[Fact, str], ...] = ()
    health: tuple[HealthFact, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    questions: tuple[Question, ...] = ()
    doubts: tuple[Finding, ...] = ()
    passed_over: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Field -> stored nodes that keep their value, although an answer says another of all nodes."""
    too_many_nodes: int = 0
    """Number of nodes that the files name, where a cluster cannot have so many; nothing else is proposed then."""


@dataclass(slots=True)
class Notes:
    """Collection of doubts, questions and conflicts on the way to a proposal."""

    kept_aside: list[tuple[Fact, str]] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    doubts: list[Finding] = field(default_factory=list)
    waiting: dict[str, Question] = field(default_factory=dict)
    passed_over: dict[str, list[str]] = field(default_factory=dict)

    def ask(self, key: str, sentence: str, choices: tuple[str, ...] = ()) -> None:
        """Note a question; asked again, it blocks one fact more."""
        before = self.waiting.get(key)
        blocks = 1 if before is None else before.blocks + 1
        self.waiting[key] = Question(key, sentence, choices, blocks)

    def aside(self, fact: Fact, reason: str) -> None:
        """Note that a fact is of no use here."""
        self.kept_aside.append((fact, reason))


def place_of(origin: Origin) -> str:
    """Name of the fact that begins there, for answers: "file:line"."""
    return f"{origin.file}:{origin.first_line}"
