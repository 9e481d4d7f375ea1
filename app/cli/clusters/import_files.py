"""The files that ``meshwright import`` is given: folders walked, standard input read, short names for all."""

from __future__ import annotations

import os
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, Final

from app.documents.reading import close_name
from app.documents.text import MAX_TEXT_BYTES
from app.imports.sources import MOST_UNPACKED_BYTES, SentFile, is_packed
from cluster_models.errors import InvalidInput
from cluster_models.units import MIB
from readers.frame.findings import Finding, refusal

STANDARD_INPUT: Final = "stdin"
"""Name of standard input in a report."""
MOST_FILES: Final = 20_000
MOST_BYTES: Final = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Given:
    """``sent`` can be read; ``refused`` is the rest, each by its name.

    ``paths`` are all of them as the user may write them: name in the report -> path.
    """

    sent: tuple[SentFile, ...]
    refused: tuple[tuple[str, Finding], ...]
    paths: Mapping[str, str]

    def name_of(self, written: str, *, option: str) -> str:
        """The name of the file that a user calls ``written``: its name, its path or the end of its path.

        Names inside archives are known only when these are open: what begins with the name of a file passes.
        """
        if written in self.paths or any(written.startswith(f"{name}/") for name in self.paths):
            return written
        plain = os.path.normpath(written)
        ends = [name for name, path in self.paths.items() if path == plain or path.endswith(f"{os.sep}{plain}")]
        if len(ends) == 1:
            return ends[0]
        if ends:
            raise InvalidInput(
                option, written, f"may be any of {len(ends)} files", f"write {' or '.join(ends[:3])}"
            )
        raise InvalidInput(option, written, "is not one of the files given", close_name(written, list(self.paths)))

    def names_like(self, pattern: str, *, option: str) -> list[str]:
        """The names of the files whose names or paths fit a pattern such as "*/topo.txt"."""
        found = [
            name for name, path in self.paths.items() if fnmatchcase(name, pattern) or fnmatchcase(path, pattern)
        ]
        if not found:
            raise InvalidInput(option, pattern, "fits none of the files given", "write it as */topo.txt={folder}")
        return found

    def folder_of(self, written: str, *, option: str) -> str:
        """The name of the folder that a file lies in."""
        name = self.name_of(written, option=option)
        folder = Path(self.paths[name]).parent.name if name in self.paths else Path(name).parent.name
        if not folder:
            raise InvalidInput(option, written, "lies in no folder that is named", "name the node itself")
        return folder


def read_files(arguments: Sequence[str]) -> Given:
    """The content of files, of all files below folders, and of standard input for ``-``.

    Raises ``InvalidInput`` for a name that leads nowhere, and for more than is read at once.
    """
    paths = list(dict.fromkeys(os.path.normpath(path) for argument in arguments for path in _walk(argument)))
    names = _short_names(paths)
    sent: list[SentFile] = []
    refused: list[tuple[str, Finding]] = []
    total = 0
    for path, name in zip(paths, names, strict=True):
        try:
            data = _content(path)
        except OSError as error:
            reason = f"cannot be read: {error.strerror or error}"
            refused.append((name, refusal(1, 1, reason, "give yourself the right to read it, or leave it out")))
            continue
        except InvalidInput as error:
            refused.append((name, refusal(1, 1, error.problem, error.remedy)))
            continue
        sent.append(SentFile(name, data))
        total += len(data)
        if total > MOST_BYTES:
            problem = f"hold more than {MOST_BYTES // MIB:,} MiB together"
            raise InvalidInput("FILES", len(paths), problem, "import them in several parts")
    return Given(tuple(sent), tuple(refused), dict(zip(names, paths, strict=True)))


def _walk(argument: str) -> Iterator[str]:
    """The file itself, or every file below a folder in the order of names; hidden ones and links stay out."""
    if argument == "-":
        yield argument
        return
    if not Path(argument).exists():
        raise InvalidInput("FILES", argument, "there is no such file or folder", "check the path")
    if not Path(argument).is_dir():
        yield argument
        return
    found = 0
    for folder, folders, files in os.walk(argument):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = str(Path(folder, name))
            if name.startswith(".") or not _is_regular(path):
                continue
            found += 1
            if found > MOST_FILES:
                problem = f"holds more than {MOST_FILES:,} files"
                raise InvalidInput("FILES", argument, problem, "name the folders inside it that hold logs")
            yield path
    if not found:
        raise InvalidInput("FILES", argument, "is a folder without files", "name the folder that holds the logs")


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:
        return False


def _short_names(paths: Sequence[str]) -> list[str]:
    """The ends of paths that tell them apart: mostly the names of the files."""
    parts = [(STANDARD_INPUT,) if path == "-" else Path(path).parts for path in paths]
    lengths = [1] * len(parts)
    while True:
        names = [str(Path(*part[-length:])) for part, length in zip(parts, lengths, strict=True)]
        counts = Counter(names)
        longer = [
            min(length + (counts[name] > 1), len(part))
            for name, length, part in zip(names, lengths, parts, strict=True)
        ]
        if longer == lengths:
            return names
        lengths = longer


def _content(path: str) -> bytes:
    """All bytes of a file of a size that is read; raises ``InvalidInput`` of a larger one, without reading it."""
    if path == "-":
        return _bounded(sys.stdin.buffer)
    with Path(path).open("rb") as file:
        return _bounded(file)


def _bounded(file: BinaryIO) -> bytes:
    """Archives may be larger than text: what is in them is measured when they are open."""
    data = file.read(MAX_TEXT_BYTES + 1)
    if len(data) <= MAX_TEXT_BYTES:
        return data
    if not is_packed(data):
        problem = f"is larger than the {MAX_TEXT_BYTES // MIB} MiB of text accepted"
        raise InvalidInput("FILES", len(data), problem, "split it, or cut it to the part that the tool printed")
    data += file.read(MOST_UNPACKED_BYTES - len(data) + 1)
    if len(data) > MOST_UNPACKED_BYTES:
        problem = f"is larger than the {MOST_UNPACKED_BYTES // MIB} MiB accepted of an archive"
        raise InvalidInput("FILES", len(data), problem, "unpack it, and import its folders one by one")
    return data
