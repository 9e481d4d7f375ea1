"""Reasons why an upload cannot be stored, and their places in its files."""

from __future__ import annotations

import re
from typing import Final

from app.documents.reading import FieldProblem
from app.imports.dry_run import Report
from readers.frame.facts import Origin
from readers.proposal.values import EVERY_NODE, Proposal, Question

_ENTRY: Final = re.compile(r"(nodes|samples|switches)\[(\d+)\](?:\.(\w+))?")


def is_needed(question: Question) -> bool:
    """Whether no node can be stored before it is answered; facts that wait for other answers are left out."""
    return question.key.startswith(f"{EVERY_NODE}.")


def blocked_by(report: Report) -> tuple[FieldProblem, ...]:
    """Why nothing of the report can be stored; empty where it can."""
    found = [
        FieldProblem(f'answers.chosen["{question.key}"]', None, question.sentence)
        for question in report.proposal.questions
        if is_needed(question)
    ]
    asked = {question.key.removeprefix(f"{EVERY_NODE}.") for question in report.proposal.questions}
    found += [
        problem
        for problem in report.problems
        if problem.value is not None or problem.field.rpartition(".")[2] not in asked
    ]
    if not any(understood.facts for reading in report.readings for _, understood in reading.sections):
        return (
            FieldProblem(
                "files", len(report.readings), "nothing in them could be used", "see why each was refused"
            ),
        )
    if not report.proposal.nodes and not report.proposal.too_many_nodes:
        found.append(
            FieldProblem("files", len(report.readings), "no file names a node", _how_to_name(report.proposal))
        )
    return tuple(found)


def _how_to_name(proposal: Proposal) -> str:
    if proposal.questions:
        return f"answer the question: {proposal.questions[0].sentence}"
    return "send a file that lists the hosts, too: scontrol show node, kubectl get nodes -o json, or one of ours"


def origins_of(field: str, proposal: Proposal) -> tuple[Origin, ...]:
    """The places in the files that a field of the cluster document, or of the measurements, is from."""
    found = _ENTRY.match(field)
    if found is None:
        return ()
    kind, index, name = found[1], int(found[2]), found[3] or ""
    if kind == "samples" and index < len(proposal.samples):
        return (proposal.samples[index].origin,)
    if kind == "nodes" and index < len(proposal.nodes):
        fields = proposal.nodes[index].fields
        said = [fields[name]] if name in fields else list(fields.values())
        return tuple(dict.fromkeys(origin for one in said for origin in one.origins))
    return ()
