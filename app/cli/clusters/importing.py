"""``meshwright import``: files of other tools read, reported, and made into a cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import typer

from app.cli.clusters.cluster_text import cluster_text
from app.cli.clusters.import_answers import accepted_keys, check_answers, read_answers
from app.cli.clusters.import_files import Given, read_files
from app.cli.clusters.import_next import Asked, next_view
from app.cli.clusters.import_questions import unanswered, unsaid
from app.cli.clusters.import_view import import_view
from app.cli.endings import Ending, complain
from app.cli.files import check_writable, is_path, naming, read_cluster_document, write_text
from app.cli.terminal import console, reading_shown
from app.documents.cluster import ClusterDocument
from app.documents.measurements import MeasurementDocument
from app.imports.dry_run import Report, dry_run
from app.imports.garbage_collection import never_collected
from app.imports.report import answer_of
from app.imports.report_answers import FileAnswer, ImportAnswer, RefusalAnswer
from app.presentation.figures import plural
from app.presentation.imports import problem_lines
from cluster_models.cluster.measurements import Sample
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidInput
from readers.proposal.aliases import AliasTable
from readers.proposal.values import Answers

_UNNAMED = "imported"


@dataclass(frozen=True, slots=True)
class _Base:
    """Base that the files are added to: nothing, a file's cluster, or a stored one."""

    name: str
    known: Cluster | None = None
    samples: tuple[Sample, ...] = ()
    aliases: AliasTable = AliasTable()  # noqa: RUF009 - it cannot change


def run_import(
    asked: Asked,
    *,
    hosts: Sequence[str],
    settings: Sequence[str],
    accepted: Sequence[str],
    as_json: bool,
) -> None:
    """Report what the files say, and write or store the cluster where that is asked for.

    Ends with code 2 where nothing could be used, or could not be written or stored.
    """
    with never_collected():
        _import(asked, hosts=hosts, settings=settings, accepted=accepted, as_json=as_json)


def _import(
    asked: Asked,
    *,
    hosts: Sequence[str],
    settings: Sequence[str],
    accepted: Sequence[str],
    as_json: bool,
) -> None:
    check_writable(asked.output)
    base = _base(asked)
    given = read_files(asked.files)
    answers = read_answers(hosts=hosts, settings=settings, given=given)
    report = _look(base, given, answers)
    if accepted:
        answers = replace(answers, accepted=accepted_keys(accepted, report, given))
        report = _look(base, given, answers)
    check_answers(report)
    answer = _with_unread(answer_of(report, with_documents=as_json), given)
    if not as_json:
        console().print(import_view(answer, asked), crop=False)
    stored = ""
    if answer.can_be_stored:
        stored = _keep(asked, base, given, answers, report)
    if as_json:
        sys.stdout.write(answer.model_dump_json(indent=2) + "\n")
    else:
        console().print(next_view(answer, asked, stored), crop=False)
    sys.stdout.flush()
    _end(answer, report, asked)


def _look(base: _Base, given: Given, answers: Answers) -> Report:
    with reading_shown(f"reading {plural(len(given.sent), 'file')}"):
        return dry_run(
            given.sent,
            name=base.name,
            known=base.known,
            known_samples=base.samples,
            aliases=base.aliases,
            answers=answers,
        )


def _base(asked: Asked) -> _Base:
    if asked.into is not None and asked.cluster is not None:
        raise InvalidInput("--cluster", asked.cluster, "conflicts with --into, which names the cluster", "give one")
    if asked.store and asked.cluster is None and (asked.into is None or is_path(asked.into)):
        problem = "needs the name of the cluster in the database"
        raise InvalidInput("--store", asked.into, problem, "add --cluster NAME, a new one or one that is stored")
    if asked.into is not None and is_path(asked.into):
        document = read_cluster_document(asked.into)
        with naming(asked.into):
            cluster = document.to_cluster()
            return _Base(cluster.name, cluster, document.to_samples(cluster))
    if asked.into is not None or asked.store:
        from app.cli.clusters.stored import stored_base  # noqa: PLC0415 - a dry run needs no database

        name = asked.into or asked.cluster or ""
        stored = stored_base(name, must_exist=asked.into is not None, database_url=asked.database_url)
        return _Base(*stored)
    named_by = asked.output.stem if asked.output is not None else ""
    return _Base(asked.cluster or named_by or _UNNAMED)


def _keep(asked: Asked, base: _Base, given: Given, answers: Answers, report: Report) -> str:
    """Write the file and store the cluster, as asked; returns what was stored, in a sentence."""
    stored = ""
    if asked.store:
        from app.cli.clusters.stored import store_import  # noqa: PLC0415 - a dry run needs no database

        stored = store_import(given.sent, base.name, answers, report.digest, database_url=asked.database_url)
    if asked.output is not None and report.cluster is not None:
        document = _whole(report.cluster, base.samples, report)
        write_text(asked.output, cluster_text(document, as_json=asked.output.suffix == ".json"))
    return stored


def _whole(document: ClusterDocument, before: Sequence[Sample], report: Report) -> ClusterDocument:
    """The cluster with its measurements, those it had first, each once; the dry run has checked the new ones."""
    known = dict.fromkeys(before)
    new = [one for one in report.measurements.samples if not known or one.to_sample() not in known]
    return document.model_copy(update={"samples": [*map(MeasurementDocument.from_value, known), *new]})


def _with_unread(answer: ImportAnswer, given: Given) -> ImportAnswer:
    """The answer with the files that could not be opened."""
    unread = [
        FileAnswer(
            name=name,
            line_count=0,
            sections=[],
            refusals=[RefusalAnswer.from_value(refusal)],
        )
        for name, refusal in given.refused
    ]
    return answer.model_copy(update={"files": [*unread, *answer.files]}) if unread else answer


def _end(answer: ImportAnswer, report: Report, asked: Asked) -> None:
    """Say on standard error why nothing came of it, and end with code 2."""
    if answer.can_be_stored:
        return
    if not any(found.facts for reading in report.readings for _, found in reading.sections):
        complain(f"meshwright: nothing in {_files(answer)} could be used{_first_reason(answer)}")
        raise typer.Exit(Ending.BAD_INPUT)
    options_at_fault = list(problem_lines(answer, unsaid))
    if not (options_at_fault or asked.output is not None or asked.store):
        return
    asks = [question.sentence for question in answer.questions if question.needed]
    reasons = options_at_fault or [*asks, *problem_lines(answer, unanswered)]
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    complain(f"meshwright: nothing can be stored{more}: {reasons[0]}")
    raise typer.Exit(Ending.BAD_INPUT)


def _first_reason(answer: ImportAnswer) -> str:
    for file in answer.files:
        for refusal in (*file.refusals, *(one for section in file.sections for one in section.refusals)):
            return f": {file.name}: {refusal.reason}" + (f"; {refusal.remedy}" if refusal.remedy else "")
    return ""


def _files(answer: ImportAnswer) -> str:
    return "the file" if len(answer.files) == 1 else f"the {len(answer.files)} files"


def run_import_formats(*, as_json: bool) -> None:
    """List the kinds of file that are known."""
    from app.cli.clusters.import_view import formats_view  # noqa: PLC0415 - the registry is large
    from readers.registry import FORMATS  # noqa: PLC0415 - see above

    if as_json:
        import json  # noqa: PLC0415 - see above

        rows = [
            {
                "name": form.name,
                "known_as": form.known_as,
                "family": form.family,
                "refused_because": form.refused_because or None,
            }
            for form in FORMATS
        ]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    else:
        console().print(formats_view(FORMATS))
