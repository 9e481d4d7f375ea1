"""The report of an upload as an answer: the same for the API, the pages and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from app.documents.reading import FieldProblem
from app.imports.answers import AnswersDocument
from app.imports.blocking import blocked_by, is_needed, origins_of
from app.imports.documents import shown
from app.imports.dry_run import Report
from app.imports.report_answers import (
    AliasAnswer,
    AsideAnswer,
    ConflictAnswer,
    DoubtAnswer,
    FileAnswer,
    HealthAnswer,
    ImportAnswer,
    ImportProblem,
    ProposedNodeAnswer,
    QuestionAnswer,
    RefusalAnswer,
    SaidAnswer,
    SectionAnswer,
)
from app.imports.summaries import fact_words, summary
from cluster_models.measurements import SampleStatus
from readers.frame.facts import Fact, Origin
from readers.frame.findings import Finding, Severity
from readers.frame.reading import Contents, Reading, Section
from readers.proposal.values import Answers, Proposal, ProposedNode, Question, SourcedValue
from readers.registry import FORMATS

__all__ = [
    "AliasAnswer",
    "AnswersDocument",
    "AsideAnswer",
    "ConflictAnswer",
    "DoubtAnswer",
    "FileAnswer",
    "HealthAnswer",
    "ImportAnswer",
    "ImportProblem",
    "ProposedNodeAnswer",
    "QuestionAnswer",
    "RefusalAnswer",
    "SaidAnswer",
    "SectionAnswer",
    "answer_of",
]

_KNOWN_AS: Final = {form.name: form.known_as for form in FORMATS}
_MOST_ORIGINS: Final = 20


def answer_of(report: Report, *, with_documents: bool = False) -> ImportAnswer:
    """The answer; ``with_documents`` adds the documents, which are large."""
    proposal, answers = report.proposal, report.answers
    blocked = blocked_by(report)
    return ImportAnswer(
        files=[_file(reading, answers) for reading in report.readings],
        nodes=[_node(node) for node in proposal.nodes],
        sample_count=len(proposal.samples),
        failed_count=sum(one.sample.status is SampleStatus.FAILED for one in proposal.samples),
        switches_count=len(proposal.switches),
        conflicts=[
            ConflictAnswer(where=one.where, said=[_said(said) for said in one.said], taken=_said(one.taken))
            for one in proposal.conflicts
        ],
        questions=[_question(question) for question in proposal.questions],
        doubts=[_doubt(doubt, answers) for doubt in _across(report.readings, proposal)],
        kept_aside=_aside(proposal.kept_aside),
        health=[
            HealthAnswer(
                node=fact.host or "",
                entity=fact.entity,
                state=fact.state,
                text=fact.text,
                origin=_place(fact.origin),
            )
            for fact in proposal.health
        ],
        problems=[_problem(problem, proposal) for problem in blocked],
        suspicions=list(report.suspicions),
        changes=list(report.changes),
        digest=report.digest,
        can_be_stored=not blocked,
        document=report.cluster if with_documents else None,
        measurements=report.measurements if with_documents else None,
    )


def _file(reading: Reading, answers: Answers) -> FileAnswer:
    return FileAnswer(
        name=reading.file,
        line_count=reading.lines,
        sections=[_section(section, found, answers) for section, found in reading.sections],
        refusals=_refusals(reading.refusals),
    )


def _section(section: Section, found: Contents, answers: Answers) -> SectionAnswer:
    return SectionAnswer(
        format=section.format,
        known_as=_KNOWN_AS.get(section.format, section.format),
        first_line=section.first_line,
        last_line=section.last_line,
        summary=summary(found.facts),
        refusals=_refusals(found.refusals),
        doubts=[_doubt(doubt, answers) for doubt in found.doubts],
    )


def _refusals(refusals: Iterable[Finding]) -> list[RefusalAnswer]:
    return [RefusalAnswer.of(refusal) for refusal in refusals]


def _doubt(doubt: Finding, answers: Answers) -> DoubtAnswer:
    assert doubt.severity is not Severity.REFUSED
    return DoubtAnswer(
        key=doubt.key,
        code=doubt.code,
        trust=doubt.severity,
        file=doubt.place.file,
        first_line=doubt.first_line,
        sentence=doubt.sentence,
        remedy=doubt.remedy,
        accepted=doubt.key in answers.accepted,
    )


def _across(readings: Sequence[Reading], proposal: Proposal) -> list[Finding]:
    """The doubts that no section has."""
    in_sections = {doubt for reading in readings for _, found in reading.sections for doubt in found.doubts}
    return [doubt for doubt in proposal.doubts if doubt not in in_sections]


def _node(node: ProposedNode) -> ProposedNodeAnswer:
    return ProposedNodeAnswer(
        name=node.name,
        aliases=[AliasAnswer(alias=name.text, kind=name.kind.value) for name in node.aliases],
        is_new=node.is_new,
        fields={field: _said(said) for field, said in node.fields.items()},
    )


def _said(said: SourcedValue) -> SaidAnswer:
    return SaidAnswer(value=shown(said.value), origins=_places(said.origins))


def _question(question: Question) -> QuestionAnswer:
    kind, _, rest = question.key.partition(":")
    field, key = {"host": ("hosts", rest), "nodes": ("nodes", rest), "ranks": ("ranks", rest)}.get(
        kind, ("chosen", question.key)
    )
    return QuestionAnswer(
        key=question.key,
        sentence=question.sentence,
        choices=list(question.choices),
        blocks=question.blocks,
        needed=is_needed(question),
        answer_in=field,
        answer_as=key,
    )


def _aside(kept: Sequence[tuple[Fact, str]]) -> list[AsideAnswer]:
    """One entry a reason: a sweep keeps thousands of runs aside for the same one."""
    by_reason: dict[str, list[Fact]] = {}
    for fact, reason in kept:
        by_reason.setdefault(reason, []).append(fact)
    return [
        AsideAnswer(what=fact_words(facts[0]), reason=reason, origin=_place(facts[0].origin), count=len(facts))
        for reason, facts in by_reason.items()
    ]


def _problem(problem: FieldProblem, proposal: Proposal) -> ImportProblem:
    return ImportProblem(
        field=problem.field,
        value=None if problem.value is None else _start_of(problem.value),
        problem=problem.problem,
        remedy=problem.remedy,
        origins=_places(origins_of(problem.field, proposal)),
    )


def _start_of(value: object) -> str:
    text = str(value[:_MOST_ORIGINS] if isinstance(value, list) else value)  # a list may hold a million entries
    return text if len(text) <= 200 else f"{text[:197]}..."


def _places(origins: Sequence[Origin]) -> list[str]:
    return [_place(origin) for origin in origins[:_MOST_ORIGINS]]


def _place(origin: Origin) -> str:
    return f"{origin.file}:{origin.first_line}"
