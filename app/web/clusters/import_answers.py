"""Questions of an import's report as fields of a form: missing facts, conflicts of files, answers given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.imports.answers import AnswersDocument
from app.imports.fitting_kinds import fitting_kinds
from app.imports.report_answers import ConflictAnswer, ImportAnswer, ImportProblem, QuestionAnswer
from app.presentation.figures import plural
from app.web.clusters.import_form import SentAnswers, about
from cluster_models.cluster.catalogue import gpu_kinds, node_kinds
from cluster_models.wording import named
from readers.proposal.values import ALIAS, EVERY_NODE

MOST_QUESTIONS: Final = 30
MOST_CONFLICTS: Final = 30
MOST_NEWCOMERS: Final = 10
MOST_KNOWN: Final = 50
_MOST_NAMES: Final = 5
_ASKED_OF_NODES: Final = ("gpu_kind", "gpu_count", "nics")
_NODE_FIELD: Final = re.compile(r"nodes\[(\d{1,6})\]\.(gpu_kind|gpu_count|nics)", re.ASCII)
_IS_MISSING: Final = "is missing"
_FIELDS: Final = {
    "gpu_kind": "GPU kind",
    "gpu_count": "Number of GPUs",
    "nics": "Network cards",
    "nvlink_domain": "NVLink domain",
    "node_kind": "Node kind",
    "state": "State",
    "labels.leaf": "Leaf switch",
    "labels.zone": "Zone",
    "labels.rack": "Rack",
}
_ALIKE: Final = "any of them: all nodes look like this"


@dataclass(frozen=True, slots=True)
class Choice:
    """One entry of a list."""

    value: str
    words: str


@dataclass(frozen=True, slots=True)
class AnswerField:
    """One field of the form; ``about`` is what its answer belongs to, ``note`` how much waits for it.

    ``choices`` make it a list; with ``other``, a field beside it takes what the list lacks.
    """

    about: str
    label: str
    hint: str
    kind: str = "text"
    choices: tuple[Choice, ...] = ()
    other: bool = False
    value: str = ""
    note: str = ""
    wrong: str = ""

    @property
    def listed(self) -> bool:
        """Whether the value is one of the choices."""
        return any(choice.value == self.value for choice in self.choices)


@dataclass(frozen=True, slots=True)
class Asked:
    """All fields: ``needed`` before anything can be stored, ``useful`` for what waits, ``given`` ones to change."""

    needed: tuple[AnswerField, ...]
    useful: tuple[AnswerField, ...]
    more_questions: int
    differing: tuple[AnswerField, ...]
    more_differing: int
    given: tuple[AnswerField, ...]

    @property
    def wrong(self) -> tuple[AnswerField, ...]:
        """Fields whose answers cannot be read."""
        fields = (*self.needed, *self.useful, *self.differing, *self.given)
        return tuple(each for each in fields if each.wrong)


@dataclass(slots=True)
class _Filled:
    """Puts what was typed into fields, and knows which answers have one."""

    sent: SentAnswers
    shown: set[str] = field(default_factory=set)

    def field(self, subject: str, label: str, hint: str, **more: object) -> AnswerField:
        """A field with what was answered before."""
        self.shown.add(subject)
        values: Mapping[str, object] = {"value": self.sent.typed.get(subject, ""), **more}
        wrong = self.sent.wrong.get(subject, "")
        return AnswerField(subject, label, hint, wrong=wrong, **values)  # type: ignore[arg-type]


def asked(answer: ImportAnswer, sent: SentAnswers) -> Asked:
    """The fields of a report."""
    form = _Filled(sent)
    missing = _missing(answer)
    needed = _of_nodes(answer, missing, sent.answers, form)
    blocked = not answer.nodes and not needed
    others = sorted(
        (question for question in answer.questions if not question.key.startswith(f"{EVERY_NODE}.")),
        key=lambda question: (question.key.startswith(ALIAS), -question.blocks, question.key),
    )
    useful = [*_newcomers(answer, form), *(_question(question, form) for question in others[:MOST_QUESTIONS])]
    if blocked:  # without an answer to one of them there is not even a node
        needed, useful = useful, []
    groups = _grouped(answer.conflicts)
    differing = [_conflict(group, form) for group in groups[:MOST_CONFLICTS]]
    return Asked(
        needed=tuple(needed),
        useful=tuple(useful),
        more_questions=max(0, len(others) - MOST_QUESTIONS),
        differing=tuple(differing),
        more_differing=max(0, len(groups) - MOST_CONFLICTS),
        given=tuple(_given(sent.answers, form)),
    )


def field_label(name: str) -> str:
    """Name of a node's field on the page."""
    return _FIELDS.get(name, f"Label {name.removeprefix('labels.')}" if name.startswith("labels.") else name)


def is_asked(problem: ImportProblem) -> bool:
    """Whether a problem is nothing but an answer that is missing: a field of the form asks for it."""
    return (problem.field.startswith("answers.") and problem.value is None) or (
        _NODE_FIELD.fullmatch(problem.field) is not None and (problem.problem.startswith(_IS_MISSING))
    )


@dataclass(frozen=True, slots=True)
class _Missing:
    """A field that some nodes lack, and what else is to be said of it."""

    nodes: tuple[str, ...]
    hint: str = ""


def _missing(answer: ImportAnswer) -> dict[str, _Missing]:
    """Facts of nodes that no file gives, by field; some node kinds leave the GPU kind open besides."""
    open_questions = {question.key for question in answer.questions}
    found: dict[str, _Missing] = {}
    for name in _ASKED_OF_NODES:
        lacking = [node.name for node in answer.nodes if not {name, "node_kind"} & node.fields.keys()]
        if lacking and f"{EVERY_NODE}.{name}" in open_questions:
            found[name] = _Missing(tuple(lacking))
    for problem in answer.problems:
        match = _NODE_FIELD.fullmatch(problem.field)
        if match is None or match[2] in found or not problem.problem.startswith(_IS_MISSING):
            continue
        same = [int(other[1]) for one in answer.problems if (other := _NODE_FIELD.fullmatch(one.field))]
        names = tuple(answer.nodes[number].name for number in same if number < len(answer.nodes))
        reason = problem.problem.removeprefix(_IS_MISSING).removeprefix(": ")
        found[match[2]] = _Missing(names, f"{reason}; {problem.remedy}." if reason else "")
    return found


def _of_nodes(
    answer: ImportAnswer, missing: Mapping[str, _Missing], given: AnswersDocument, form: _Filled
) -> list[AnswerField]:
    """Fields for what no file says of nodes: a node kind answers for all of it."""
    if not missing:
        return []
    fields = []
    if sold := fitting_kinds(answer, or_larger=True):
        names = dict.fromkeys([*(kind.name for kind in sold), *([given.node_kind] if given.node_kind else [])])
        kinds = (Choice("", "none of these"), *(Choice(name, name) for name in names))
        hint = "Answers the rest at once; what files say still counts."
        fields = [form.field(about("node_kind"), "Node kind", hint, choices=kinds, value=given.node_kind or "")]
    for name, lack in missing.items():
        said = lack.hint or f"No file says it of {named(lack.nodes, _MOST_NAMES)}."
        every = len(lack.nodes) == len(answer.nodes)
        keys = [f"{EVERY_NODE}.{name}"] if every else [f"{node}.{name}" for node in lack.nodes]
        if name == "gpu_kind":
            choices = (Choice("", "choose"), *(Choice(kind, kind) for kind in gpu_kinds()))
            fields.append(form.field(about("gpu_kind"), _FIELDS[name], said, choices=choices))
        elif name == "gpu_count":
            fields.append(form.field(about("chosen", *keys), "GPUs of each node", said, kind="number"))
        else:
            said = f"{said} Write 8 x 400 infiniband: cards, Gbit/s of each, fabric."
            fields.append(form.field(about("chosen", *keys), "Network cards of each node", said))
    return fields


def _newcomers(answer: ImportAnswer, form: _Filled) -> Iterator[AnswerField]:
    """A host that a stored cluster does not have is a new node, or one of its nodes by another name."""
    known = [node.name for node in answer.nodes if not node.is_new]
    if not known:
        return
    choices = (Choice("", "yes, it is new"), *(Choice(name, f"no, it is {name}") for name in known[:MOST_KNOWN]))
    for node in [node for node in answer.nodes if node.is_new][:MOST_NEWCOMERS]:
        subject = about("chosen", f"{ALIAS}{node.name}")
        more = len(known) > MOST_KNOWN
        yield form.field(subject, f"Is {node.name} a new node?", "", choices=choices, other=more)


def _question(question: QuestionAnswer, form: _Filled) -> AnswerField:
    label, mark, hint = question.sentence.partition("? ")
    label = label[:1].upper() + label[1:] + mark.strip()
    kind, _, rest = question.key.partition(":")
    note = f"{plural(question.blocks, 'result')} {'waits' if question.blocks == 1 else 'wait'} for it"
    subject = about(question.answer_in, question.answer_as)
    if kind in ("host", "alias"):
        choices = [Choice("", "not said")]
        choices += [Choice(each, _ALIKE if each == EVERY_NODE else each) for each in question.choices]
        hint = "" if kind == "host" else hint
        return form.field(subject, label, hint, choices=tuple(choices), other=True, note=note)
    if kind == "gpu_kind":
        kinds = (Choice("", "not said"), *(Choice(name, name) for name in gpu_kinds()))
        return form.field(subject, f"Which GPU kind is {rest}?", "", choices=kinds, note=note)
    if kind == "ranks":
        return form.field(subject, label, hint, kind="number", note=note)
    known = f" Known: {named(question.choices, _MOST_NAMES)}." if question.choices else ""
    return form.field(subject, label, f"Write n1,n2 or n[1-4].{known}", note=note)


def _grouped(conflicts: Iterable[ConflictAnswer]) -> list[list[ConflictAnswer]]:
    """Conflicts of one field with the same values on several nodes are decided together."""
    groups: dict[tuple[str, ...], list[ConflictAnswer]] = {}
    for conflict in conflicts:
        name = _split(conflict.where)[1]
        groups.setdefault((name, *(said.value for said in conflict.said)), []).append(conflict)
    return list(groups.values())


def _conflict(group: Sequence[ConflictAnswer], form: _Filled) -> AnswerField:
    name = _split(group[0].where)[1]
    nodes = named([_split(conflict.where)[0] for conflict in group], _MOST_NAMES)
    first = group[0]
    choices = [Choice("", f"{first.taken.value} ({_places(first.taken.origins)}; used unless you choose)")]
    choices += [
        Choice(said.value, f"{said.value} ({_places(said.origins)})")
        for said in first.said
        if said.value != first.taken.value
    ]
    subject = about("chosen", *(conflict.where for conflict in group))
    return form.field(subject, f"{field_label(name)} of {nodes}", "", choices=tuple(choices))


def _places(origins: Sequence[str]) -> str:
    if not origins:
        return "as stored or answered"
    return origins[0] + (f" and {len(origins) - 1} more" if len(origins) > 1 else "")


def _given(answers: AnswersDocument, form: _Filled) -> Iterator[AnswerField]:
    """Answers whose questions are gone: they are carried on, and can be changed."""
    for part, label, value, known in (
        ("node_kind", "Node kind of all nodes", answers.node_kind, node_kinds()),
        ("gpu_kind", "GPU kind where no file says it", answers.gpu_kind, gpu_kinds()),
    ):
        if value and about(part) not in form.shown:
            names = dict.fromkeys(["", *known, value])
            choices = tuple(Choice(name, name or "take the answer back") for name in names)
            yield form.field(about(part), label, "", choices=choices, value=value)
    made: list[tuple[str, str, str]] = []
    made += [(about("hosts", file), f"{file} is from", node) for file, node in answers.hosts.items()]
    made += [(about("ranks", place), f"Ranks of the run at {place}", str(n)) for place, n in answers.ranks.items()]
    made += [
        (about("nodes", place), f"Nodes of the run at {place}", ",".join(names))
        for place, names in answers.nodes.items()
    ]
    made += _chosen(answers.chosen)
    for subject, label, value in made:
        if value and subject not in form.shown:
            yield form.field(subject, label, "", value=value)
    moment = f"{answers.measured_at:%Y-%m-%dT%H:%M}" if answers.measured_at else ""
    hint = "For runs that do not say it themselves; UTC."
    label = "When were these measurements made?"
    # what was typed wrong stays; what was understood is shown as it was understood
    more = {} if about("measured_at") in form.sent.wrong else {"value": moment}
    yield form.field(about("measured_at"), label, hint, kind="datetime-local", **more)


def _chosen(chosen: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Values chosen, those that are the same of several nodes together."""
    made: list[tuple[str, str, str]] = []
    groups: dict[tuple[str, str], list[str]] = {}
    for where, value in chosen.items():
        kind, _, rest = where.partition(":")
        if kind == "alias":
            made.append((about("chosen", where), f"{rest} is the node", value))
        elif kind == "gpu_kind":
            made.append((about("chosen", where), f"{rest} is the GPU kind", value))
        else:
            groups.setdefault((_split(where)[1], value), []).append(where)
    for (name, value), keys in groups.items():
        nodes = named([_split(key)[0] for key in keys], _MOST_NAMES)
        whose = "all nodes" if keys == [f"{EVERY_NODE}.{name}"] else nodes
        made.append((about("chosen", *keys), f"{field_label(name)} of {whose}", value))
    return made


def _split(where: str) -> tuple[str, str]:
    """Node and field of "n1.example.labels.leaf": names hold points, and labels are fields with one."""
    before, point, label = where.rpartition(".labels.")
    if point:
        return before, f"labels.{label}"
    node, _, name = where.rpartition(".")
    return node, name
