"""Answers that nothing of an upload asks for: a slip of the pen, or what is left of a file that was taken out."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from app.documents.reading import FieldProblem, close_name
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidCluster
from readers.frame.facts import Fact, HostFact, MatrixFact, RunFact, WiringFact
from readers.frame.reading import Reading
from readers.proposal.aliases import spellings
from readers.proposal.host_names import name_groups
from readers.proposal.values import ALIAS, EVERY_NODE, Answers, Proposal, place_of

PRODUCT: Final = "gpu_kind:"
"""Prefix of the key of a question that asks which GPU kind a product is."""
_MOST_REMEDIES: Final = 5
_NEAREST: Final = 30


@dataclass(frozen=True, slots=True)
class UnusedAnswer:
    """An answer of no effect: ``part`` is its field of the answers; ``of_key`` whether its key, not its value."""

    part: str
    key: str
    problem: FieldProblem
    of_key: bool = True


def unused_answers(
    answers: Answers, readings: Sequence[Reading], proposal: Proposal, known: Cluster | None
) -> tuple[UnusedAnswer, ...]:
    """All such answers; the first name the nearest that something asks for."""
    facts = [fact for reading in readings for _, found in reading.sections for fact in found.facts]
    found: list[UnusedAnswer] = []

    def check(part: str, sent: Collection[str], valid: Collection[str], problem: str) -> None:
        lost = [key for key in sent if key not in valid]
        for key in lost:
            remedy = _nearest(key, valid) if len(found) < _MOST_REMEDIES else ""
            found.append(_of_key(part, key, problem, remedy))

    check("hosts", answers.hosts, {reading.file for reading in readings}, "is not one of the files read")
    where = "is not where a run begins in these files"
    check("ranks", answers.ranks, _places(facts, answers.ranks, matrices=True), where)
    check("nodes", answers.nodes, _places(facts, answers.nodes, matrices=False), where)
    doubts = {doubt.key for doubt in proposal.doubts} if answers.accepted else set()
    check("accepted", sorted(answers.accepted), doubts, "is not a doubt of these files")
    return (*found, *_chosen(answers, facts, proposal, known))


def _of_key(part: str, key: str, problem: str, remedy: str) -> UnusedAnswer:
    return UnusedAnswer(part, key, FieldProblem(f'answers.{part}["{key}"]', key, problem, remedy))


def _places(facts: Sequence[Fact], sent: Collection[str], *, matrices: bool) -> set[str]:
    """Where runs begin, and tables of figures; not looked for where nothing was sent."""
    kinds = (RunFact, MatrixFact) if matrices else (RunFact,)
    return {place_of(fact.origin) for fact in facts if isinstance(fact, kinds)} if sent else set()


def _chosen(
    answers: Answers, facts: Sequence[Fact], proposal: Proposal, known: Cluster | None
) -> Iterator[UnusedAnswer]:
    nodes = {node.name for node in proposal.nodes}
    kinds = () if known is None else tuple(known.gpu_kinds)
    names = _names(facts, answers) if any(key.startswith(ALIAS) for key in answers.chosen) else set()
    products = _products(facts) if any(key.startswith(PRODUCT) for key in answers.chosen) else set()
    for key, value in answers.chosen.items():
        if key.startswith(ALIAS):
            name = key.removeprefix(ALIAS)
            if not {name, name.casefold()} & names:
                yield _of_key("chosen", key, "is a name that stands in none of the files", _nearest(name, names))
            elif value not in nodes:
                problem = f"names no node: there is none called {value!r}"[:300]
                yield _of_value(f'chosen["{key}"]', value, problem, _nearest(value, nodes))
        elif key.startswith(PRODUCT):
            if key.removeprefix(PRODUCT) not in products:
                remedy = _nearest(key.removeprefix(PRODUCT), products)
                yield _of_key("chosen", key, "is a product that stands in none of the files", remedy)
            else:
                yield from _kind(f'chosen["{key}"]', value, kinds)
        elif not key.startswith(f"{EVERY_NODE}.") and not _is_of_node(key, nodes):
            remedy = _nearest(key.rpartition(".")[0], nodes) if "." in key else "write NODE.FIELD or *.FIELD"
            yield _of_key("chosen", key, "names no node of these files", remedy)
    if answers.gpu_kind is not None:
        yield from _kind("gpu_kind", answers.gpu_kind, kinds)


def _of_value(path: str, value: str, problem: str, remedy: str) -> UnusedAnswer:
    part, _, key = path.partition("[")
    return UnusedAnswer(part, key[1:-2], FieldProblem(f"answers.{path}", value, problem, remedy), of_key=False)


def _kind(path: str, value: str, own: Collection[str]) -> Iterator[UnusedAnswer]:
    """A GPU kind that neither the catalogue nor the cluster has."""
    if value not in own:
        try:
            gpu_kind(value)
        except InvalidCluster as error:
            yield _of_value(path, value, error.problem, error.remedy)


def _is_of_node(key: str, nodes: Collection[str]) -> bool:
    """Whether the key is of "node.field": names hold points too."""
    return any(key[:at] in nodes for at, character in enumerate(key) if character == ".")


def _names(facts: Sequence[Fact], answers: Answers) -> set[str]:
    """Every spelling of every name in files or answers."""
    said = {name.text for names in name_groups(facts) for name in names}
    said |= {node for nodes in answers.nodes.values() for node in nodes} | set(answers.hosts.values())
    return {spelling for name in said for spelling in spellings(name)}


def _products(facts: Sequence[Fact]) -> set[str]:
    found: set[str] = set()
    for fact in facts:
        match fact:
            case HostFact():
                found.add(fact.gpu_product or "")
            case WiringFact():
                found.update(fact.gpu_products)
            case RunFact():
                found.update(member.product for member in fact.members)
            case _:
                pass
    return found - {""}


def _nearest(key: str, valid: Collection[str]) -> str:
    """A remedy that names the nearest; of very many, among those that begin alike."""
    if not valid:
        return "leave it out: nothing asks for one"

    def unlike(other: str) -> tuple[int, int, str]:
        same = takewhile(lambda pair: pair[0] == pair[1], zip(key, other, strict=False))
        return -sum(1 for _ in same), len(other), other

    return close_name(key, heapq.nsmallest(_NEAREST, valid, key=unlike))
