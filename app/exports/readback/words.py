"""Shell text taken apart by the shell's own rules of quoting, and flags found among its words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from app.exports.claims import ExpertOrder
from app.exports.contract import Files, unreadable


def file_named(files: Files, name: str) -> str:
    """The text of the file called ``name``; refuses where it is missing."""
    for file in files:
        if file.name == name:
            return file.text
    raise unreadable("exports", [file.name for file in files], f"holds no file {name}")


def words(text: str) -> list[str]:
    """The words of shell text, comments left out; refuses on quotes that do not close."""
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise unreadable("exports", text, f"is not shell text: {error}") from error


def array(text: str, name: str) -> list[str]:
    """The words of a bash array that is set once; refuses where there is none or more than one."""
    found = re.findall(rf"^{name}=\((.*?)\)$", text, re.MULTILINE | re.DOTALL)
    if len(found) != 1:
        raise unreadable(f"exports.{name}", len(found), "must be set once")
    return words(found[0])


def expert_order(text: str) -> ExpertOrder:
    """The bash array ``EXPERT_ORDER`` of a script, by layer; empty where it is not set; else refused."""
    if not re.search(r"^EXPERT_ORDER=", text, re.MULTILINE):
        return ()
    found = []
    for word in array(text, "EXPERT_ORDER"):
        layer, row = one(r"^\[(\d+)\]=([\d ]+)$", word, "EXPERT_ORDER")
        order = tuple(number(part, "EXPERT_ORDER") for part in row.split())
        if sorted(order) != list(range(len(order))):
            raise unreadable("exports.EXPERT_ORDER", row, f"is not a permutation of the experts of layer {layer}")
        found.append((int(layer), order))
    return tuple(found)


def flags(given: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For each flag the words behind it, up to the next flag; refuses where a flag is given twice."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in given:
        if re.match(r"--?[A-Za-z]", word):
            name, equals, value = word.partition("=")
            if name in found:
                raise unreadable(f"exports.{name}", word, "is given twice")
            found[name] = [value] if equals else []
        elif name:
            found[name].append(word)
    return {flag: tuple(values) for flag, values in found.items()}


def value(given: Mapping[str, tuple[str, ...]], flag: str) -> str:
    """The one value of a flag; refuses where it is missing or has several."""
    values = given.get(flag, ())
    if len(values) != 1:
        raise unreadable(f"exports.{flag}", values, "must have one value")
    return values[0]


def number(text: str, what: str) -> int:
    """A whole number written in digits; refuses anything else."""
    if not (text.isascii() and text.isdigit()):
        raise unreadable(f"exports.{what}", text, "is not a whole number")
    return int(text)


def flag_number(given: Mapping[str, tuple[str, ...]], flag: str) -> int:
    """The one value of a flag, which must be a whole number."""
    return number(value(given, flag), flag)


def setting_number(given: Mapping[str, str], name: str) -> int:
    """The value of a setting, which must be a whole number; refuses where it is missing."""
    return number(given.get(name, ""), name)


def numbers(text: str, what: str) -> tuple[int, ...]:
    """Whole numbers between commas."""
    return tuple(number(part, what) for part in text.split(","))


def one(pattern: str, text: str, what: str) -> tuple[str, ...]:
    """The groups of the only place where ``pattern`` matches (``^`` and ``$`` are of lines); refuses otherwise."""
    found = list(re.finditer(pattern, text, re.MULTILINE))
    if len(found) != 1:
        raise unreadable(f"exports.{what}", len(found), "must stand in the file once")
    return found[0].groups()


def same(numbers_said: Iterable[int], what: str) -> int:
    """The one number that all are; refuses where they differ or there are none."""
    said = set(numbers_said)
    if len(said) != 1:
        raise unreadable(f"exports.{what}", sorted(said), "must be the same everywhere")
    return said.pop()
