"""Arguments of serving engines by generation: facts of each engine's own parser, in ``data/serving_flags.toml``."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from cluster_models.serving.engines import ServingEngine, serving_engine

_VALUES: Final = {
    "count": r"[1-9][0-9]*",
    "number": r"[0-9]+",
    "share": r"0?\.[0-9]+|1(\.0+)?",
    "word": r"[A-Za-z0-9/][A-Za-z0-9._/:@-]*",
}
"""Patterns of values, by how the table calls them; ``json`` and ``nothing`` have none, a list has its choices."""


@dataclass(frozen=True, slots=True)
class EngineFlag:
    """One argument.

    ``takes`` names the kind of its value (``nothing`` for a switch), ``choices`` are the values where it takes
    certain words only, ``since`` is the generation from which the engine knows it.
    """

    name: str
    takes: str
    choices: tuple[str, ...]
    since: ServingEngine

    def problem(self, values: tuple[str, ...]) -> str:
        """The complaint of the engine's parser about ``values``; empty where it takes them."""
        if len(values) != (self.takes != "nothing"):
            return f"takes {'nothing' if self.takes == 'nothing' else 'one value'}, not {len(values)}"
        if self.choices and values[0] not in self.choices:
            return f"must be one of {', '.join(self.choices)}"
        if self.takes == "json":
            return "" if _is_json(values[0]) else "must be JSON"
        pattern = _VALUES.get(self.takes)
        return "" if pattern is None or re.fullmatch(pattern, values[0]) else f"must be a {self.takes}"


@cache
def engine_flags(engine: ServingEngine) -> Mapping[str, EngineFlag]:
    """The arguments that this generation knows, by name; none for an engine without a table."""
    flags = (_flag(name, entry, engine) for name, entry in _table(engine).get("flags", {}).items())
    return {flag.name: flag for flag in flags if flag.since.released <= engine.released}


def engine_program(engine: ServingEngine) -> tuple[str, ...]:
    """The words that start a server of this generation; the model follows.  Empty without a table."""
    programs = _table(engine).get("programs", ())
    known = [each for each in programs if serving_engine(each["since"]).released <= engine.released]
    return tuple(known[-1]["words"]) if known else ()


def flag_problems(engine: ServingEngine, given: Iterable[tuple[str, tuple[str, ...]]]) -> Iterator[str]:
    """A sentence for each argument that the engine's parser would refuse."""
    known = engine_flags(engine)
    for name, values in given:
        if name not in known:
            yield f"{engine.title} has no argument {name}"
        elif problem := known[name].problem(values):
            yield f"{name} {problem}"


@cache
def _tables() -> Mapping[str, Any]:
    text = resources.files("cluster_models").joinpath("data", "serving_flags.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _table(engine: ServingEngine) -> Mapping[str, Any]:
    table: Mapping[str, Any] = _tables().get(engine.family, {})
    return table


def _flag(name: str, entry: Mapping[str, Any], engine: ServingEngine) -> EngineFlag:
    takes = entry["takes"]
    choices = tuple(takes) if isinstance(takes, list) else ()
    since = entry.get("since", _table(engine)["programs"][0]["since"])
    return EngineFlag(name, "choice" if choices else takes, choices, serving_engine(since))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
