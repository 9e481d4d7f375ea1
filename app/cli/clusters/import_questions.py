"""Questions of an import, each with the option that answers it, and problems that keep it from being stored."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from rich.console import RenderableType

from app.cli.terminal import bullets, command_line, more_line
from app.imports.fitting_kinds import fitting_kinds, shows_gpus
from app.imports.report_answers import ImportAnswer, ImportProblem, QuestionAnswer
from app.presentation.figures import plural
from app.presentation.imports import NODE_ENTRY, problem_lines
from cluster_models.wording import named
from readers.proposal.values import EVERY_NODE

MOST_LINES: Final = 10
_SOLD: Final = frozenset({"gpu_kind", "gpu_count", "nics"})
"""Fields that a node kind of the catalogue answers."""
_UNKNOWN: Final = {"gpu_kind": "GPU_KIND", "gpu_count": "GPUS", "nics": "CARDS x GBITS FABRIC"}
"""Words that stand for what only the user knows."""
_MOST_KINDS: Final = 4
OF_A_KIND: Final = 3
"""Questions of one kind that are shown."""


def questions_view(answer: ImportAnswer) -> list[RenderableType]:
    """Questions to answer first, then those that only some facts wait for; three of each kind.

    Below those that a node kind answers stands that option, and below it the others, which it does not answer.
    """
    sold = asked_of_a_kind(answer.questions, answer)
    kinds: dict[str, list[QuestionAnswer]] = {}
    for question in sorted(answer.questions, key=lambda each: not each.needed):
        kinds.setdefault(question.key.partition(":")[0], []).append(question)
    of_hardware = [members for kind, members in kinds.items() if kind.removeprefix(f"{EVERY_NODE}.") in sold]
    parts = _lines(of_hardware, answer)
    if sold:
        fitting = [kind.name for kind in fitting_kinds(answer)] if shows_gpus(answer) else []
        fit = f" that fits ({named(fitting, _MOST_KINDS)})" if fitting else ""
        what = "all of these" if len(sold) > 1 else "it, too"
        parts.append(bullets([f"A node kind of the catalogue{fit} answers {what}, where all nodes are alike:"]))
        parts.append(command_line(" ".join(kind_options()), indent=6))
    return [*parts, *_lines([members for members in kinds.values() if members not in of_hardware], answer)]


def _lines(kinds: Sequence[Sequence[QuestionAnswer]], answer: ImportAnswer) -> list[RenderableType]:
    """Up to three questions of each kind, each with the options that answer it."""
    parts: list[RenderableType] = []
    for members in kinds:
        for question in members[:OF_A_KIND]:
            parts.append(bullets([_sentence(question)]))
            parts.extend(command_line(option, indent=6) for option in options_of(question, answer))
        if len(members) > OF_A_KIND:
            parts.append(more_line(len(members) - OF_A_KIND, "question of this kind", "questions of this kind"))
    return parts


def _sentence(question: QuestionAnswer) -> str:
    choices = [choice for choice in question.choices if choice != EVERY_NODE]
    shown = f" ({named(choices, _MOST_KINDS)})" if len(choices) > 1 else ""
    waiting = f"; {question.blocks} facts wait for it" if question.blocks > 1 and not question.needed else ""
    return question.sentence[:1].upper() + question.sentence[1:] + shown + waiting


def asked_of_a_kind(asked: Sequence[QuestionAnswer], answer: ImportAnswer) -> set[str]:
    """The questions that one node kind of the catalogue answers; none where it has none for these nodes."""
    if not fitting_kinds(answer):
        return set()
    return {question.key.removeprefix(f"{EVERY_NODE}.") for question in asked} & _SOLD


def kind_options() -> list[str]:
    """The option that names a node kind: which one, no file says."""
    return [_set("node_kind=NODE_KIND")]


def options_of(question: QuestionAnswer, answer: ImportAnswer) -> list[str]:
    """Options that answer a question; words in capitals stand for what the user knows."""
    key = question.key
    named = [choice for choice in question.choices if choice != EVERY_NODE]
    node = named[0] if len(named) == 1 else "NODE"
    match question.answer_in:
        case "hosts":
            hosts = [node, EVERY_NODE] if answer.nodes else [node]
            return [f"--host {shlex.quote(f'{question.answer_as}={host}')}" for host in hosts]
        case "nodes":
            pair = ",".join(named) if len(named) == 2 else "NODE,NODE"
            return [_set(f"{key}={node if ' which node ' in question.sentence else pair}")]
        case "ranks":
            return [_set(f"{key}=RANKS")]
        case _ if key.startswith("gpu_kind:"):
            return [_set(f"{key}={_UNKNOWN['gpu_kind']}")]
        case _ if key.startswith(f"{EVERY_NODE}."):
            return [_set(f"{key}={_example(key.removeprefix(f'{EVERY_NODE}.'), answer)}")]
        case _:
            return [_set(f"{key}={node}")]


def _example(field: str, answer: ImportAnswer) -> str:
    """The value that the files give to all other nodes, else words that the command refuses."""
    values = {said.value for node in answer.nodes if (said := node.fields.get(field)) is not None}
    if len(values) == 1:
        return values.pop().replace(" Gb/s", "")
    return _UNKNOWN.get(field, "VALUE")


def _set(text: str) -> str:
    return f"--set {shlex.quote(text)}"


def problems_view(answer: ImportAnswer) -> list[RenderableType]:
    """Problems beside open questions, each kind once; the questions are counted."""
    if not answer.nodes and not answer.questions and all(each.field == "files" for each in answer.problems):
        return []  # nothing was understood, and each refusal says why
    lines = list(problem_lines(answer, unanswered))
    if asked := sum(question.needed for question in answer.questions):
        lines.append(f"{plural(asked, 'question')} above must be answered first.")
    parts: list[RenderableType] = [bullets([line]) for line in lines[:MOST_LINES]]
    parts += [command_line(option, indent=6) for option in problem_options(answer)]
    return [*parts, more_line(len(lines) - MOST_LINES)] if len(lines) > MOST_LINES else parts


def unanswered(problem: ImportProblem) -> bool:
    """Whether a problem is one that no answer to a question takes away."""
    return not problem.field.startswith("answers.")


def unsaid(problem: ImportProblem) -> bool:
    """Whether a problem is about what was typed, and about nothing that a file says."""
    return unanswered(problem) and not (problem.origins or problem.field == "files")


def problem_options(answer: ImportAnswer) -> list[str]:
    """Options that give what nodes lack and no question asks for."""
    fields = dict.fromkeys(
        field
        for problem in answer.problems
        if NODE_ENTRY.match(problem.field) and (field := NODE_ENTRY.sub("", problem.field)) in _SOLD
    )
    return [_set(f"{EVERY_NODE}.{field}={_example(field, answer)}") for field in fields]
