"""The report of an upload as an answer: the same for the API, the pages and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.documents.reading import FieldProblem
from app.documents.remarks import RemarkDocument
from app.imports.dry_run import Report
from app.imports.obstacles import blocked_by, origins_of
from app.imports.report_answers import (
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
    SectionAnswer,
    places,
)
from app.imports.summaries import fact_words, summary
from cluster_models.cluster.measurements import SampleStatus
from readers.frame.facts import Fact
from readers.frame.findings import Finding, Severity
from readers.frame.reading import Contents, Reading, Section
from readers.proposal.values import Answers, Proposal, place_of
from readers.registry import FORMATS

_KNOWN_AS: Final = {form.name: form.known_as for form in FORMATS}
_LONGEST_LIST: Final = 20


def answer_of(report: Report, *, with_documents: bool = False) -> ImportAnswer:
    """The answer; ``with_documents`` adds the documents, which are large."""
    proposal, answers = report.proposal, report.answers
    blocked = blocked_by(report)
    return ImportAnswer(
        files=[_file(reading, answers) for reading in report.readings],
        nodes=[ProposedNodeAnswer.from_value(node) for node in proposal.nodes],
        sample_count=len(proposal.samples),
        failed_count=sum(one.sample.status is SampleStatus.FAILED for one in proposal.samples),
        switches_count=len(proposal.switches),
        conflicts=[ConflictAnswer.from_value(conflict) for conflict in proposal.conflicts],
        questions=[QuestionAnswer.from_value(question) for question in proposal.questions],
        doubts=[_doubt(doubt, answers) for doubt in _across(report.readings, proposal)],
        kept_aside=_aside(proposal.kept_aside),
        health=[HealthAnswer.from_value(fact) for fact in proposal.health],
        problems=[_problem(problem, proposal) for problem in blocked],
        suspicions=[RemarkDocument.from_value(doubt) for doubt in report.suspicions],
        changes=list(report.changes),
        digest=report.digest,
        can_be_stored=not blocked,
        document=report.cluster if with_documents else None,
        measurements=report.measurements if with_documents else None,
    )


def _file(reading: Reading, answers: Answers) -> FileAnswer:
    sections = [_section(section, found, answers) for section, found in reading.sections]
    return FileAnswer.from_value(reading, sections=sections)


def _section(section: Section, found: Contents, answers: Answers) -> SectionAnswer:
    return SectionAnswer(
        format=section.format,
        known_as=_KNOWN_AS.get(section.format, section.format),
        first_line=section.first_line,
        last_line=section.last_line,
        summary=summary(found.facts),
        refusals=[RefusalAnswer.from_value(refusal) for refusal in found.refusals],
        doubts=[_doubt(doubt, answers) for doubt in found.doubts],
    )


def _doubt(doubt: Finding, answers: Answers) -> DoubtAnswer:
    assert doubt.severity is not Severity.REFUSED
    return DoubtAnswer.from_value(doubt, accepted=doubt.key in answers.accepted)


def _across(readings: Sequence[Reading], proposal: Proposal) -> list[Finding]:
    """The doubts that no section has."""
    in_sections = {doubt for reading in readings for _, found in reading.sections for doubt in found.doubts}
    return [doubt for doubt in proposal.doubts if doubt not in in_sections]


def _aside(kept: Sequence[tuple[Fact, str]]) -> list[AsideAnswer]:
    """One entry a reason: a sweep keeps thousands of runs aside for the same one."""
    by_reason: dict[str, list[Fact]] = {}
    for fact, reason in kept:
        by_reason.setdefault(reason, []).append(fact)
    return [
        AsideAnswer(what=fact_words(facts[0]), reason=reason, origin=place_of(facts[0].origin), count=len(facts))
        for reason, facts in by_reason.items()
    ]


def _problem(problem: FieldProblem, proposal: Proposal) -> ImportProblem:
    return ImportProblem(
        field=problem.field,
        value=None if problem.value is None else _start_of(problem.value),
        problem=problem.problem,
        remedy=problem.remedy,
        origins=places(origins_of(problem.field, proposal)),
    )


def _start_of(value: object) -> str:
    text = str(value[:_LONGEST_LIST] if isinstance(value, list) else value)  # a list may hold a million entries
    return text if len(text) <= 200 else f"{text[:197]}..."
