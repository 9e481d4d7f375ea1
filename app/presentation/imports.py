"""The report of an import in words, the same on terminal and page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from app.imports.report_answers import FileAnswer, ImportAnswer, ImportProblem, RefusalAnswer, SectionAnswer
from app.imports.summaries import NOTHING
from app.presentation.figures import plural
from cluster_models.wording import named

NODE_ENTRY: Final = re.compile(r"nodes\[(\d{1,6})\]\.?", re.ASCII)
"""The node in the field of a problem."""


def used_sections(file: FileAnswer) -> list[SectionAnswer]:
    """The parts of a file that say something that is used."""
    return [section for section in file.sections if section.summary != NOTHING]


def all_refusals(file: FileAnswer) -> list[RefusalAnswer]:
    """Refusals of the file and of its parts."""
    return [*file.refusals, *(refusal for section in file.sections for refusal in section.refusals)]


def with_remedy(sentence: str, remedy: str) -> str:
    """A problem with its remedy, where there is one."""
    return f"{sentence.rstrip('.')}; {remedy}" if remedy else sentence


def new_nodes(answer: ImportAnswer) -> tuple[str, list[str]]:
    """A sentence that counts the nodes that are new, empty where none is, and their names."""
    names = [node.name for node in answer.nodes if node.is_new]
    return (f"{plural(len(names), 'node')} {'is' if len(names) == 1 else 'are'} new" if names else ""), names


def other_changes(answer: ImportAnswer) -> list[str]:
    """Changes that storing makes beside new nodes."""
    return [change for change in answer.changes if not (change.startswith("Node ") and change.endswith(" is new."))]


def problem_lines(answer: ImportAnswer, is_told: Callable[[ImportProblem], bool]) -> Iterator[str]:
    """One line for each thing that is wrong, however many nodes have it, of those that ``is_told`` takes."""
    groups: dict[tuple[str, str, str], list[ImportProblem]] = {}
    for problem in filter(is_told, answer.problems):
        field = NODE_ENTRY.sub("", problem.field)
        groups.setdefault((field, problem.problem, problem.remedy), []).append(problem)
    for (field, sentence, remedy), members in groups.items():
        first = members[0]
        owners = list(dict.fromkeys(_owner(problem, answer) for problem in members))
        where = [named([owner for owner in owners if owner], 2)] if any(owners) else []
        name = "" if field == "files" else ": ".join([*where, field]) + ": "
        value = "" if field == "files" or not first.value else f" (got {first.value})"
        places = f", said in {named(first.origins, 2)}" if first.origins and not any(owners) else ""
        yield f"{name}{sentence}{value}{places}{'; ' if remedy else ''}{remedy}"


def _owner(problem: ImportProblem, answer: ImportAnswer) -> str:
    """The node that a problem is about; empty where it is about none."""
    found = NODE_ENTRY.match(problem.field)
    return answer.nodes[int(found[1])].name if found and int(found[1]) < len(answer.nodes) else ""
