"""What an import asks, each question with the option that answers it, and what keeps it from being stored."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import RenderableType

from app.cli.terminal import bullets, command_line, more_line, shown_places
from app.imports.report import ImportAnswer, ImportProblem, ProposedNodeAnswer, QuestionAnswer
from app.presentation.figures import plural
from cluster_models.catalogue import NodeKind, node_kinds
from cluster_models.readers.proposal import EVERY_NODE
from cluster_models.units import GBIT

MOST_LINES: Final = 10
_USUAL: Final = "DGX H100/H200"
"""Node kind of examples where files say nothing of the GPUs."""
_SOLD: Final = frozenset({"gpu_kind", "gpu_count", "nics"})
"""What a node kind of the catalogue says."""
_NODE: Final = re.compile(r"nodes\[(\d+)\]\.?")
_MOST_KINDS: Final = 4
_OF_A_KIND: Final = 3


def questions_view(answer: ImportAnswer) -> list[RenderableType]:
    """What must be answered first, then what only some facts wait for; three of each kind."""
    kinds: dict[str, list[QuestionAnswer]] = {}
    for question in sorted(answer.questions, key=lambda each: not each.needed):
        kinds.setdefault(question.key.partition(":")[0], []).append(question)
    parts: list[RenderableType] = []
    for members in kinds.values():
        for question in members[:_OF_A_KIND]:
            parts.append(bullets([_sentence(question)]))
            parts.extend(command_line(option, indent=6) for option in options_of(question, answer))
        if len(members) > _OF_A_KIND:
            parts.append(more_line(len(members) - _OF_A_KIND, "question of this kind", "questions of this kind"))
    if sold := asked_of_a_kind(answer.questions, answer):
        fitting = [kind.name for kind in _kinds_that_fit(answer.nodes)][:_MOST_KINDS]
        fit = f" that fits ({', '.join(fitting)})" if fitting else ""
        what = "all of these" if len(sold) > 1 else "it, too"
        parts.append(bullets([f"A node kind of the catalogue{fit} answers {what}, where all nodes are alike:"]))
        parts.append(command_line(" ".join(kind_options(answer)), indent=6))
    return parts


def _sentence(question: QuestionAnswer) -> str:
    choices = [choice for choice in question.choices if choice != EVERY_NODE]
    shown = f" ({shown_places(choices, most=_MOST_KINDS)})" if len(choices) > 1 else ""
    waiting = f"; {question.blocks} facts wait for it" if question.blocks > 1 and not question.needed else ""
    return question.sentence[:1].upper() + question.sentence[1:] + shown + waiting


def asked_of_a_kind(asked: Sequence[QuestionAnswer], answer: ImportAnswer) -> set[str]:
    """The questions that one node kind of the catalogue answers; none where it has none for these nodes."""
    kinds = {said.value for node in answer.nodes if (said := node.fields.get("gpu_kind")) is not None}
    if len(kinds) > 1 or (kinds and not _kinds_that_fit(answer.nodes)):
        return set()
    return {question.key.removeprefix(f"{EVERY_NODE}.") for question in asked} & _SOLD


def kind_options(answer: ImportAnswer) -> list[str]:
    """The options that name a likely node kind, with its GPU kind where it is sold with several."""
    sold = _likely(answer)
    options = [_set(f"node_kind={sold.name}")]
    asks_kind = any(question.key == f"{EVERY_NODE}.gpu_kind" for question in answer.questions)
    if asks_kind and len(sold.gpu_kinds) > 1:
        options.append(_set(f"gpu_kind={_example('gpu_kind', answer)}"))
    return options


def _likely(answer: ImportAnswer) -> NodeKind:
    return next(iter(_kinds_that_fit(answer.nodes)), node_kinds()[_USUAL])


def _kinds_that_fit(nodes: Sequence[ProposedNodeAnswer]) -> list[NodeKind]:
    """Node kinds of the catalogue with the GPUs that files give, those of as many first; none where none is given.

    Counts are those of tests as often as not: a node may have more.
    """
    kind, gpus = _common(nodes, "gpu_kind"), _most_gpus(nodes)
    if not (kind or gpus):
        return []
    fitting = [
        sold for sold in node_kinds().values() if (not kind or kind in sold.gpu_kinds) and sold.gpu_count >= gpus
    ]
    return sorted(fitting, key=lambda sold: (gpus > 0 and sold.gpu_count != gpus, sold.name != _USUAL))


def _most_gpus(nodes: Sequence[ProposedNodeAnswer]) -> int:
    counts = [said.value for node in nodes if (said := node.fields.get("gpu_count")) is not None]
    return max((int(text) for text in counts if text.isascii() and text.isdigit()), default=0)


def _common(nodes: Sequence[ProposedNodeAnswer], field: str) -> str:
    """The value that most nodes have; empty where none has one."""
    values = Counter(said.value for node in nodes if (said := node.fields.get(field)) is not None)
    return values.most_common(1)[0][0] if values else ""


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
            return [_set(f"{key}={','.join(named) if len(named) == 2 else 'NODE,NODE'}")]
        case "ranks":
            return [_set(f"{key}=RANKS")]
        case _ if key.startswith("gpu_kind:"):
            return [_set(f"{key}={question.choices[0] if question.choices else 'KIND'}")]
        case _ if key.startswith(f"{EVERY_NODE}."):
            return [_set(f"{key}={_example(key.removeprefix(f'{EVERY_NODE}.'), answer)}")]
        case _:
            return [_set(f"{key}={node}")]


def _example(field: str, answer: ImportAnswer) -> str:
    """A likely value of a field of nodes."""
    sold = _likely(answer)
    match field:
        case "gpu_kind":
            return _common(answer.nodes, field) or sold.gpu_kinds[0]
        case "gpu_count":
            return str(_most_gpus(answer.nodes) or sold.gpu_count)
        case "nics":
            known = _common(answer.nodes, field)
            if " Gb/s" in known:
                return known.replace(" Gb/s", "")
            return f"{sold.nics.count} x {sold.nics.bytes_per_s / GBIT:g} {sold.nics.fabric}"
        case _:
            return "VALUE"


def _set(text: str) -> str:
    return f"--set {shlex.quote(text)}"


def problems_view(answer: ImportAnswer) -> list[RenderableType]:
    """What is wrong beside open questions, each kind once; the questions are counted."""
    if not answer.nodes and not answer.questions:
        return []  # nothing was understood, and each refusal says why
    lines = list(problem_lines(answer))
    if asked := sum(question.needed for question in answer.questions):
        lines.append(f"{plural(asked, 'question')} above must be answered first.")
    parts: list[RenderableType] = [bullets([line]) for line in lines[:MOST_LINES]]
    parts += [command_line(option, indent=6) for option in problem_options(answer)]
    return [*parts, more_line(len(lines) - MOST_LINES)] if len(lines) > MOST_LINES else parts


def problem_lines(answer: ImportAnswer, *, of_options: bool = False) -> Iterator[str]:
    """One sentence for each thing that is wrong, however many nodes have it; or only what no file says."""
    groups: dict[tuple[str, str, str], list[ImportProblem]] = {}
    for problem in answer.problems:
        said = problem.origins or problem.field == "files"
        if not problem.field.startswith("answers.") and not (of_options and said):
            field = _NODE.sub("", problem.field)
            groups.setdefault((field, problem.problem, problem.remedy), []).append(problem)
    for (field, sentence, remedy), members in groups.items():
        first = members[0]
        owners = list(dict.fromkeys(_owner(problem, answer) for problem in members))
        where = [shown_places([owner for owner in owners if owner])] if any(owners) else []
        name = "" if field == "files" else ": ".join([*where, field]) + ": "
        value = "" if field == "files" or not first.value else f" (got {first.value})"
        places = f", said in {shown_places(first.origins)}" if first.origins and not any(owners) else ""
        yield f"{name}{sentence}{value}{places}{'; ' if remedy else ''}{remedy}"


def _owner(problem: ImportProblem, answer: ImportAnswer) -> str:
    """The node that a problem is about; empty where it is about none."""
    found = _NODE.match(problem.field)
    return answer.nodes[int(found[1])].name if found and int(found[1]) < len(answer.nodes) else ""


def problem_options(answer: ImportAnswer) -> list[str]:
    """Options that give what nodes lack and no question asks for."""
    fields = dict.fromkeys(
        field
        for problem in answer.problems
        if _NODE.match(problem.field) and (field := _NODE.sub("", problem.field)) in _SOLD
    )
    return [_set(f"{EVERY_NODE}.{field}={_example(field, answer)}") for field in fields]
