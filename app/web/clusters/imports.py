"""The report of an import as a page: what each file gave, line by line what it did not, what would be stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeVar

from app.imports.report_answers import (
    DoubtAnswer,
    FileAnswer,
    ImportAnswer,
    ProposedNodeAnswer,
    RefusalAnswer,
)
from app.imports.summaries import measurements_shown
from app.presentation.figures import capital, count, plural
from app.presentation.imports import all_refusals, new_nodes, other_changes, problem_lines, used_sections
from app.web.clusters.import_answers import Asked, asked, field_label, is_asked
from app.web.clusters.import_form import SentAnswers, about, key_text
from readers.frame.findings import Severity

T = TypeVar("T")

MOST_FILES: Final = 60
"""Files shown in full; of the others, those least in need of a look, only a line."""
MOST_LINES: Final = 40
_FEW: Final = 3
MOST_NODES: Final = 50
MOST_CHANGES: Final = 20
MOST_HEALTH: Final = 30
_MOODS: Final = {
    "not read": "bad",
    "not used": "bad",
    "read in part": "warn",
    "worth a look": "warn",
    "understood": "good",
}
"""States of a file, the worst first: ``not used`` are figures that would mislead, unless they are accepted."""
_COLUMNS: Final = ("gpu_kind", "gpu_count", "nics", "nvlink_domain", "state")


@dataclass(frozen=True, slots=True)
class RefusalLine:
    """Lines that were not taken; ``shown`` is how the first of them begins."""

    where: str
    reason: str
    remedy: str
    shown: str


@dataclass(frozen=True, slots=True)
class DoubtLine:
    """Something odd.  With a ``key``, its figures are used only where the box is ticked."""

    where: str
    sentence: str
    remedy: str
    mood: str
    key: str
    accepted: bool


@dataclass(frozen=True, slots=True)
class Few(Generic[T]):
    """The first of many, those behind a click, and how many are not shown at all."""

    first: tuple[T, ...]
    more: tuple[T, ...]
    left_out: int

    @property
    def count(self) -> int:
        """All of them."""
        return len(self.first) + len(self.more) + self.left_out

    @property
    def hidden(self) -> int:
        """Number of lines that are not seen at once."""
        return len(self.more) + self.left_out


@dataclass(frozen=True, slots=True)
class FileCard:
    """One file; ``leave`` is the number of the file as sent, where it can be left out by itself."""

    name: str
    state: str
    mood: str
    kind: str
    said: tuple[str, ...]
    refusals: Few[RefusalLine]
    doubts: Few[DoubtLine]
    leave: int | None


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node as it would be: the columns of the table, each with where it is from."""

    name: str
    aliases: str
    is_new: bool
    values: tuple[tuple[str, str], ...]
    labels: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on the upload, in a sentence or two."""

    mood: str
    title: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImportPage:
    """A report as words and tables."""

    verdict: Verdict
    figures: tuple[tuple[str, str], ...]
    asked: Asked
    files: tuple[FileCard, ...]
    other_files: tuple[FileCard, ...]
    doubts: Few[DoubtLine]
    suspicions: Few[str]
    columns: tuple[str, ...]
    nodes: tuple[NodeLine, ...]
    more_nodes: int
    changes: Few[str]
    asides: tuple[tuple[str, str, str], ...]
    health: tuple[tuple[str, str, str, str], ...]
    more_health: int
    digest: str
    can_be_stored: bool
    accepted: tuple[str, ...]


def import_page(answer: ImportAnswer, sent: SentAnswers, *, cluster: str, names: Sequence[str]) -> ImportPage:
    """The page of a report; ``names`` are those of the files as they were sent."""
    order = {state: rank for rank, state in enumerate(_MOODS)}
    numbers = {name: number for number, name in enumerate(names)}
    of_file: dict[str, list[DoubtAnswer]] = {file.name: [] for file in answer.files}
    elsewhere: list[DoubtAnswer] = []
    for doubt in answer.doubts:
        of_file.get(doubt.file, elsewhere).append(doubt)
    cards = [_card(file, of_file[file.name], numbers) for file in answer.files]
    cards.sort(key=lambda card: (order[card.state], card.name))
    questions = asked(answer, sent)
    across = [_doubt(doubt, with_file=True) for doubt in elsewhere]
    boxes = {line.key for card in cards for line in (*card.doubts.first, *card.doubts.more)}
    boxes |= {line.key for line in across[:MOST_LINES]}
    return ImportPage(
        verdict=_verdict(answer, questions, cluster),
        figures=_figures(answer, cards),
        asked=questions,
        files=tuple(cards[:MOST_FILES]),
        other_files=tuple(cards[MOST_FILES:]),
        doubts=_few(across, 8),
        suspicions=_few([doubt.text for doubt in answer.suspicions], 8),
        columns=tuple(field_label(name) for name in _COLUMNS),
        nodes=tuple(_node(node) for node in answer.nodes[:MOST_NODES]),
        more_nodes=max(0, len(answer.nodes) - MOST_NODES),
        changes=_changes(answer),
        asides=tuple((one.reason, one.what, _many(one.origin, one.count)) for one in answer.kept_aside),
        health=tuple(
            (one.node or "not named", one.entity, f"{one.state}: {one.text}", one.origin)
            for one in answer.health[:MOST_HEALTH]
        ),
        more_health=max(0, len(answer.health) - MOST_HEALTH),
        digest=answer.digest,
        can_be_stored=answer.can_be_stored and not questions.wrong,
        accepted=tuple(key for key in map(key_text, sent.answers.accepted) if key not in boxes),
    )


def _few(items: Sequence[T], first: int = _FEW) -> Few[T]:
    """One more than the first is shown too: a click for a single line is a line itself."""
    first = first if len(items) > first + 1 else first + 1
    return Few(tuple(items[:first]), tuple(items[first:MOST_LINES]), max(0, len(items) - max(first, MOST_LINES)))


def _card(file: FileAnswer, across: Sequence[DoubtAnswer], numbers: dict[str, int]) -> FileCard:
    refusals = all_refusals(file)
    doubts = sorted(
        (*(doubt for section in file.sections for doubt in section.doubts), *across),
        key=lambda doubt: (doubt.trust is not Severity.REJECT, doubt.trust is Severity.NOTE),
    )
    said = used_sections(file)
    if not said:
        state = "not read"
    elif any(doubt.trust is Severity.REJECT and not doubt.accepted for doubt in doubts):
        state = "not used"
    elif refusals:
        state = "read in part"
    elif any(doubt.trust is not Severity.NOTE for doubt in doubts):
        state = "worth a look"
    else:
        state = "understood"
    kinds = ", ".join(dict.fromkeys(section.known_as for section in file.sections)) or "not recognised"
    lines = f", {plural(file.line_count, 'line')}" if file.line_count else ""
    return FileCard(
        name=file.name,
        state=state,
        mood=_MOODS[state],
        kind=kinds + lines,
        said=tuple(capital(section.summary) for section in said[:MOST_LINES]),
        refusals=_few([_refusal(refusal) for refusal in refusals]),
        doubts=_few([_doubt(doubt) for doubt in doubts]),
        leave=numbers.get(file.name),
    )


def _refusal(refusal: RefusalAnswer) -> RefusalLine:
    first, last = refusal.first_line, refusal.last_line
    where = f"line {count(first)}" if first == last else f"lines {count(first)}\N{EN DASH}{count(last)}"
    return RefusalLine(where, refusal.reason, refusal.remedy, refusal.shown)


def _doubt(doubt: DoubtAnswer, *, with_file: bool = False) -> DoubtLine:
    where = f"line {count(doubt.first_line)}"
    return DoubtLine(
        where=f"{doubt.file}, {where}" if with_file else where,
        sentence=doubt.sentence,
        remedy=doubt.remedy,
        mood={Severity.NOTE: "busy", Severity.DOUBT: "warn", Severity.REJECT: "bad"}[doubt.trust],
        key=key_text(doubt.key) if doubt.trust is Severity.REJECT else "",
        accepted=doubt.accepted,
    )


def _node(node: ProposedNodeAnswer) -> NodeLine:
    kind = node.fields.get("node_kind")
    values = []
    for name in _COLUMNS:
        said = node.fields.get(name)
        if said is not None:
            origin = said.origins[0] if said.origins else "as stored or answered"
            values.append((said.value, origin))
        elif kind is not None and name in ("gpu_kind", "gpu_count", "nics"):
            values.append((f"as {kind.value}", "by its node kind"))
        else:
            values.append(("", ""))
    labels = [
        f"{name.removeprefix('labels.')}={said.value}"
        for name, said in node.fields.items()
        if name.startswith("labels.")
    ]
    names = [f"{alias.alias} ({alias.kind.replace('_', ' ')})" for alias in node.aliases]
    return NodeLine(node.name, ", ".join(names[:6]), node.is_new, tuple(values), ", ".join(sorted(labels)))


def _changes(answer: ImportAnswer) -> Few[str]:
    """Changes that storing makes; new nodes are in the table and only counted here."""
    sentence, _ = new_nodes(answer)
    return _few([*([f"{sentence}."] if sentence else []), *other_changes(answer)], MOST_CHANGES)


def _figures(answer: ImportAnswer, cards: Sequence[FileCard]) -> tuple[tuple[str, str], ...]:
    read = sum(card.state != "not read" for card in cards)
    refused = sum(one.last_line - one.first_line + 1 for file in answer.files for one in all_refusals(file))
    doubts = [doubt for file in answer.files for section in file.sections for doubt in section.doubts]
    look = sum(doubt.trust is not Severity.NOTE for doubt in (*doubts, *answer.doubts))
    return (
        ("files understood", f"{count(read)} of {count(len(cards))}"),
        ("lines refused", count(refused)),
        ("doubts", count(look + len(answer.suspicions))),
        ("open questions", count(len(answer.questions))),
        ("nodes", count(len(answer.nodes))),
        ("measurements", count(answer.sample_count - answer.failed_count)),
        *([("failed tests", count(answer.failed_count))] if answer.failed_count else []),
    )


def _verdict(answer: ImportAnswer, questions: Asked, cluster: str) -> Verdict:
    if questions.wrong:
        return Verdict("bad", "An answer cannot be read", ("Nothing is stored yet. Correct it and look again.",))
    if answer.can_be_stored:
        samples = measurements_shown(answer.sample_count, answer.failed_count)
        words = f"“{cluster}” would have {plural(len(answer.nodes), 'node')}; the files give {samples}."
        waiting = sum(question.blocks for question in answer.questions)
        more = () if not waiting else (f"{plural(waiting, 'result')} would be left out: see the questions below.",)
        return Verdict("good", "Ready to store", (words, *more))
    lines = problem_lines(answer, lambda problem: not is_asked(problem))
    told = tuple(f"{capital(line)}." for line in islice(lines, MOST_CHANGES))
    if questions.needed:
        number = max(1, sum(each.about != about("node_kind") for each in questions.needed))
        title = f"{'One answer is' if number == 1 else f'{number} answers are'} needed"
        return Verdict(
            "warn", title, ("Nothing is stored yet. Fill in what is asked first, then look again.", *told)
        )
    return Verdict("bad", "Nothing can be stored yet", told)


def _many(origin: str, number: int) -> str:
    return origin if number == 1 else f"{count(number)} times, first at {origin}"
