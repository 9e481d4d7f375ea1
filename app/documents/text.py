"""Text a user hands in, YAML or JSON, to plain values; hostile text ends in one clear error.

YAML is read by the 1.2 core rules (``1e6`` is a number, ``no`` is a word).  Aliases are refused, so a small
text cannot grow into a large value, and nesting is limited, because libyaml composes by recursion in C.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterator
from typing import Any, Final

import yaml

from cluster_models.errors import InvalidInput
from cluster_models.units import MIB

MAX_TEXT_BYTES: Final = 32 * MIB
MAX_YAML_BYTES: Final = 8 * MIB
"""YAML is read at about 1 MB/s, JSON a hundred times faster: what is larger has to be JSON."""
MAX_DEPTH: Final = 64
_MAY_BE_INFINITE: Final = re.compile(r"NaN|Infinity|[eE]\+?\d{3}|\d{100}")
"""Pattern in every JSON number that is not finite, so that other texts are not looked through."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def decode(data: bytes, *, what: str) -> str:
    """The text of a file's bytes (UTF-8, a byte order mark allowed); raises ``InvalidInput`` otherwise."""
    if len(data) > MAX_TEXT_BYTES:
        raise _too_large(what, len(data), MAX_TEXT_BYTES, "split the measurements into several files")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            what, data[:16], f"is not UTF-8 text (byte {error.start})", "save it as text in UTF-8"
        ) from error


def parse_text(text: str, *, what: str) -> Any:
    """The value of a YAML or JSON ``text``; raises ``InvalidInput`` naming ``what`` and the line."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_TEXT_BYTES:
        raise _too_large(what, size, MAX_TEXT_BYTES, "split the measurements into several files")
    if not text.strip():
        raise InvalidInput(what, "", "is empty", "give a YAML or JSON document")
    if (found := _CONTROL.search(text)) is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise InvalidInput(
            what,
            found.group(),
            f"holds a control character in line {line}: this is not a text file",
            "save it as text in UTF-8",
        )
    value = _parse(text, size, what)
    for path, number in _not_finite(value):
        raise InvalidInput(path, number, "must be a finite number", "leave unknown values out")
    return value


def parse_json(data: bytes, *, what: str, finite: bool = True) -> Any:
    """The value of a JSON text's bytes; raises ``InvalidInput`` naming ``what`` and the line.

    ``finite`` false leaves NaN and infinite numbers to a reader that judges numbers by itself.
    """
    text = decode(data, what=what)
    try:
        value = _load_json(text, what)
    except json.JSONDecodeError as error:
        raise _broken(what, text, f"JSON: {error.msg}", error.lineno, error.colno) from error
    suspected = finite and _MAY_BE_INFINITE.search(text) is not None
    for path, number in _not_finite(value) if suspected else ():
        raise InvalidInput(path, number, "must be a finite number", "leave unknown values out")
    return value


def _load_json(text: str, what: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique_mapping)
    except _RepeatedKeyError as error:
        raise InvalidInput(
            what, error.key, f"the key {error.key!r} is given twice", "give each key once"
        ) from error
    except RecursionError as error:
        raise _too_deep(what) from error
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise _too_long(what) from error


def _parse(text: str, size: int, what: str) -> Any:
    if text.lstrip()[0] not in "{[":
        return _parse_yaml(text, size, what)
    try:
        return _load_json(text, what)
    except json.JSONDecodeError as error:
        if size <= MAX_YAML_BYTES:
            try:  # YAML's flow style starts like JSON
                return _parse_yaml(text, size, what)
            except InvalidInput as yaml_error:
                if yaml_error.problem.startswith("is not valid YAML"):
                    raise _broken(what, text, f"JSON: {error.msg}", error.lineno, error.colno) from error
                raise
        raise _broken(what, text, f"JSON: {error.msg}", error.lineno, error.colno) from error


_Place = tuple["_Place | None", str | int]
"""Where a value stands: in what, and under which key or number there."""


class _RepeatedKeyError(Exception):
    """A mapping gives one key twice; the later would silently win."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(key)


def _unique_mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RepeatedKeyError(key)
            seen.add(key)
    return mapping


class _CoreLoader(yaml.CSafeLoader):
    """Safe loader with the scalars of the YAML 1.2 core schema and unique keys.

    Timestamps are those of YAML 1.1; octal and sexagesimal integers and ``yes``/``no`` are words.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as in PyYAML

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """The mapping of ``node``; a key given twice is an error."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key_node.value!r} is given twice", key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]
)
_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")
)
_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)
_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:timestamp",
    re.compile(
        r"^\d{4}-\d\d-\d\d"
        r"(?:(?:[Tt]|[ \t]+)\d{1,2}:\d\d:\d\d(?:\.\d*)?(?:[ \t]*(?:Z|[-+]\d\d?(?::\d\d)?))?)?$"
    ),
    list("0123456789"),
)


def _parse_yaml(text: str, size: int, what: str) -> Any:
    if size > MAX_YAML_BYTES:
        raise _too_large(what, size, MAX_YAML_BYTES, "write a document of this size as JSON")
    try:
        _check_events(text, what)
        return yaml.load(text, Loader=_CoreLoader)  # noqa: S506 - a safe loader
    except yaml.constructor.ConstructorError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark else 1
        raise InvalidInput(what, _line(text, line), f"{error.problem} (line {line})") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise _broken(what, text, f"YAML: {error.problem}", line, column) from error
    except yaml.YAMLError as error:
        raise InvalidInput(what, _line(text, 1), f"is not valid YAML: {error}") from error
    except ValueError as error:
        if "digits" in str(error):
            raise _too_long(what) from error
        raise InvalidInput(what, _line(text, 1), f"holds a date that does not exist: {error}") from error


def _check_events(text: str, what: str) -> None:
    """Refuse aliases, deep nesting and several documents before anything is built."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise InvalidInput(
                what,
                f"*{event.anchor}",
                "uses a YAML alias",
                "write the value out where it is used",
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(what)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise InvalidInput(what, "---", "holds more than one YAML document", "give one document a file")


def _not_finite(value: Any) -> Iterator[tuple[str, float]]:
    """Dotted paths of the numbers in ``value`` that are NaN or infinite.

    Paths are written for those alone: a request may hold millions of values.
    """
    waiting: list[tuple[_Place | None, Any]] = [(None, value)]
    while waiting:
        place, item = waiting.pop()
        if isinstance(item, float):
            if not math.isfinite(item):
                yield _path(place), item
            continue
        if isinstance(item, dict | list):
            children = item.items() if isinstance(item, dict) else enumerate(item)
            waiting.extend(((place, key), child) for key, child in children if _is_worth_a_look(child))


def _is_worth_a_look(value: Any) -> bool:
    return bool(value) if isinstance(value, dict | list) else isinstance(value, float) and not math.isfinite(value)


def _path(place: _Place | None) -> str:
    steps: list[str] = []
    while place is not None:
        place, key = place
        steps.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    return "".join(reversed(steps)).removeprefix(".")


def _too_large(what: str, size: int, limit: int, remedy: str) -> InvalidInput:
    return InvalidInput(
        what,
        f"{size} bytes",
        f"is {size / MIB:.1f} MiB, more than the {limit / MIB:.0f} MiB accepted",
        remedy,
    )


def _too_deep(what: str) -> InvalidInput:
    return InvalidInput(
        what, "[[[...", f"is nested more than {MAX_DEPTH} levels deep", "no document of ours is deeper than six"
    )


def _too_long(what: str) -> InvalidInput:
    return InvalidInput(what, "999...", "holds a number of thousands of digits")


def _broken(what: str, text: str, problem: str, line: int, column: int) -> InvalidInput:
    return InvalidInput(
        what,
        _line(text, line),
        f"is not valid {problem} (line {line}, column {column})",
        "check the syntax there",
    )


def _line(text: str, number: int) -> str:
    """Line ``number`` (from 1), as far as it fits a message."""
    lines = text.splitlines()
    return lines[min(number, len(lines)) - 1].strip()[:60] if lines else ""
