"""Arguments of Megatron-LM as values: what must be said, and what a release may lack and still train the same."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from app.exports.contract import unsupported
from app.exports.megatron_releases import SINCE, generation_with, has, release_name


class Flag(NamedTuple):
    """One argument with its value, empty for a switch.

    ``priced``: what the plan counts on, in words, where training runs without it, too; empty where a release that
    lacks the argument would train something else or not at all.
    """

    name: str
    value: str | int = ""
    priced: str = ""

    def __str__(self) -> str:
        text = str(self.value)
        quoted = f'"{text}"' if set(text) & set("[]()|*,") else text
        return f"{self.name} {quoted}".rstrip()


class Arguments(NamedTuple):
    """The arguments of a launch, one with its value an entry, and a sentence for all that they cannot say."""

    flags: tuple[str, ...]
    unsaid: tuple[str, ...] = ()


def arguments(flags: Iterable[Flag], release: int) -> Arguments:
    """Arguments that a release has; raises ``InvalidConfiguration`` where it lacks what training depends on."""
    said: list[str] = []
    unsaid: dict[str, str] = {}
    for flag in flags:
        if has(release, flag.name):
            said.append(str(flag))
            continue
        since = SINCE[flag.name]
        if not flag.priced:
            raise unsupported(
                release_name(release),
                "framework",
                flag.name,
                f"the argument came with 0.{since}",
                f"plan with framework {generation_with(since)}, or a newer one",
            )
        unsaid.setdefault(flag.priced, f"{flag.priced} ({flag.name} came with 0.{since})")
    return Arguments(tuple(said), tuple(unsaid.values()))


def pattern(layers: Iterable[bool]) -> str:
    """One digit a layer as Megatron's parser reads it: ``([0]*3+[1]*58)``."""
    runs = ((int(value), len(list(run))) for value, run in groupby(layers))
    return "(" + "+".join(f"[{digit}]*{length}" for digit, length in runs) + ")"
