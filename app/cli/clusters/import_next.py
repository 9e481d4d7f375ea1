"""Commands to type after an import: the same with what it lacks, or those that use its cluster."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from app.cli.clusters.import_questions import (
    OF_A_KIND,
    asked_of_a_kind,
    kind_options,
    options_of,
    problem_options,
)
from app.cli.files import is_path
from app.cli.terminal import command_line
from app.imports.report_answers import ImportAnswer
from app.imports.unused_answers import PRODUCT

_MODEL: Final = "llama-3-8b"


@dataclass(frozen=True, slots=True)
class Asked:
    """The command as typed.  ``answers``: options that answer questions, word by word."""

    files: tuple[str, ...]
    cluster: str | None = None
    into: str | None = None
    output: Path | None = None
    store: bool = False
    answers: tuple[str, ...] = ()
    database_url: str | None = None


def next_view(answer: ImportAnswer, asked: Asked, stored: str = "") -> RenderableType:
    """Files written, clusters stored, and the commands to type next."""
    if not answer.can_be_stored:
        again = _again(answer, asked)
        if not again:
            known = (
                "meshwright import-formats lists what can be read."
                if not answer.nodes and all(each.field == "files" for each in answer.problems)
                else "See above for why."
            )
            return Text(f"\nNothing is stored.  {known}", style="bold")
        return Group(Text("\nNothing is stored.  Next:", style="bold"), command_line(again))
    done, commands = [], []
    if asked.output is not None:
        done.append(f"{asked.output} is written.")
        name = shlex.quote(str(asked.output))
        planned = f"meshwright plan --cluster {name} --model {_MODEL} --workload WORKLOAD.yaml"
        commands = [f"meshwright cluster show {name}", f"meshwright measure {name}", planned]
    if stored:
        done.append(stored)
        name = " ".join([shlex.quote(asked.cluster or asked.into or ""), *_database(asked)])
        commands = commands or [f"meshwright cluster show {name}", f"meshwright measure {name}"]
    if not done:
        done.append("Nothing is stored yet.")
        stored_one = asked.into is not None and not is_path(asked.into)
        file = "new.yaml" if asked.into else f"{shlex.quote(asked.cluster or 'cluster')}.yaml"
        commands = [f"{_typed(asked)} {'--store' if stored_one else f'--output {file}'}"]
    head = Text("\n" + "  ".join(done) + "  Next:", style="bold")
    return Group(head, *(command_line(line) for line in commands))


def _again(answer: ImportAnswer, asked: Asked) -> str:
    """The same command with the answers that it lacks; empty where no answer helps."""
    needed = [question for question in answer.questions if question.needed]
    if not needed and not answer.nodes:
        needed = answer.questions[:1]
    elif needed:  # figures whose ranks nobody said are read and not used
        ranks = (question for question in answer.questions if question.answer_in == "ranks" and not question.needed)
        needed += islice(ranks, OF_A_KIND)
    if products := [question for question in answer.questions if question.key.startswith(PRODUCT)]:
        needed = [*products, *(question for question in needed if not question.key.endswith(".gpu_kind"))]
    options = []
    if len(sold := asked_of_a_kind(needed, answer)) > 1:
        options = kind_options()
        needed = [question for question in needed if question.key.partition(".")[2] not in sold]
    options += [options_of(question, answer)[0] for question in needed]
    options += problem_options(answer)
    given = {option.partition("=")[0] for option in options}
    pairs = zip(asked.answers[::2], asked.answers[1::2], strict=True)
    kept = [pair for pair in pairs if f"{pair[0]} {shlex.quote(pair[1])}".partition("=")[0] not in given]
    typed = replace(asked, answers=tuple(word for pair in kept for word in pair))
    return " ".join([_typed(typed), *dict.fromkeys(options), *_endings(asked)]) if options else ""


def _typed(asked: Asked) -> str:
    words = ["meshwright import", *map(shlex.quote, asked.files)]
    for option, value in (("--cluster", asked.cluster), ("--into", asked.into)):
        if value is not None:
            words.append(f"{option} {shlex.quote(value)}")
    return " ".join([*words, *map(shlex.quote, asked.answers), *_database(asked)])


def _database(asked: Asked) -> list[str]:
    return [] if asked.database_url is None else [f"--database-url {shlex.quote(asked.database_url)}"]


def _endings(asked: Asked) -> list[str]:
    words = [] if asked.output is None else [f"--output {shlex.quote(str(asked.output))}"]
    return [*words, *(["--store"] if asked.store else [])]
