"""Files with one figure or one host name changed, as a slip of a renderer would change it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from app.exports.contract import ExportFile, Files


class Mutation(NamedTuple):
    """The files, and where they were changed: file, the line as it is now, the old word and the new."""

    files: Files
    where: str
    line: str
    old: str
    new: str


def changed_figures(files: Files) -> Iterator[Mutation]:
    """Each whole number of each file one larger."""
    for index, file in enumerate(files):
        for match in re.finditer(r"(?<![A-Za-z_.\d-])\d+(?![A-Za-z_.%])", file.text):
            yield _changed(files, index, match, str(int(match[0]) + 1))


def swapped_hosts(files: Files, hosts: Sequence[str]) -> Iterator[Mutation]:
    """Each mention of each host replaced by the next host of the plan."""
    for index, file in enumerate(files):
        for host, other in zip(hosts, [*hosts[1:], *hosts[:1]], strict=True):
            if host == other:
                continue
            for match in re.finditer(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", file.text):
                yield _changed(files, index, match, other)


def _changed(files: Files, index: int, match: re.Match[str], new: str) -> Mutation:
    text = files[index].text
    other = replace(files[index], text=text[: match.start()] + new + text[match.end() :])
    start = other.text.rfind("\n", 0, match.start()) + 1
    line = other.text[start : other.text.find("\n", match.start() + len(new))]
    found: list[ExportFile] = [*files[:index], other, *files[index + 1 :]]
    return Mutation(tuple(found), files[index].name, line, match[0], new)
