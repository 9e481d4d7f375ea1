"""Files of routing statistics as they are sent: archives unpacked, text and arrays made values for the readers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from app.documents.text import MAX_TEXT_BYTES, decode, parse_json, parse_text
from app.imports.sources import MOST_MEMBERS, MOST_UNPACKED_BYTES, SentFile, decoded, members_of, plain_name
from app.routing.binary import (
    NPY,
    is_npz,
    is_pickle,
    is_safetensors,
    npy_of,
    npz_of,
    pickle_refused,
    safetensors_of,
)
from cluster_models.errors import InvalidInput
from cluster_models.units import MIB
from readers.routing.reading import RoutingSource

_SUFFIXES: Final = frozenset(
    {"json", "jsonl", "yaml", "yml", "csv", "tsv", "txt", "npy", "npz", "gz", "zip", "tar", "tgz", "safetensors"}
)
_RANK_KEY: Final = re.compile(r"\d+_\d+", re.ASCII)
_META: Final = "meta_info.json"
_ONE_RUN: Final = "expert_statistic"


@dataclass(frozen=True, slots=True)
class Opened:
    """``sources`` to be read, and the errors of files that could not be opened."""

    sources: tuple[RoutingSource, ...]
    errors: tuple[InvalidInput, ...]


def open_files(files: Sequence[SentFile], experts: int | None = None) -> Opened:
    """The sources of an upload; TensorRT-LLM's files of one folder are one source.

    ``experts`` is how many a layer of the model has, where that is known.
    """
    values: list[tuple[str, Any, str]] = []
    errors: list[InvalidInput] = []
    left, count = MOST_UNPACKED_BYTES, 0
    for file in files:
        try:
            for member in _members(file, left, MOST_MEMBERS - count):
                left -= len(member.data)
                count += 1
                name = plain_name(member.name)
                try:
                    tree, text = _value(SentFile(name, member.data), left)
                except InvalidInput as error:
                    errors.append(_named(name, error))
                else:
                    left = max(0, left - _unpacked(tree))
                    values.append((name, tree, text))
        except InvalidInput as error:
            errors.append(_named(plain_name(file.name), error))
    return Opened(tuple(_grouped(values, experts)), tuple(errors))


def _members(file: SentFile, left: int, most: int) -> Iterator[SentFile]:
    """The file, or what an archive holds; arrays and PyTorch's files are zip archives themselves and stay whole."""
    if is_pickle(file.name, file.data):
        raise pickle_refused(file.name)
    if is_npz(file.data):
        yield file
    else:
        yield from members_of(file, left, most)


def _value(file: SentFile, left: int) -> tuple[Any, str]:
    """The value of a file, or its text where it is a table."""
    if is_pickle(file.name, file.data):
        raise pickle_refused(file.name)
    if file.data.startswith(NPY):
        return npy_of(file.name, file.data), ""
    if is_npz(file.data):
        return npz_of(file.name, file.data, left), ""
    if is_safetensors(file.name, file.data):
        return safetensors_of(file.name, file.data), ""
    return _of_text(file)


def _of_text(file: SentFile) -> tuple[Any, str]:
    """NaN and infinite numbers stay: the readers leave out the layer that holds them, not the file."""
    if len(file.data) > MAX_TEXT_BYTES:
        size = f"is {len(file.data) / MIB:.1f} MiB of text, more than the {MAX_TEXT_BYTES // MIB} MiB accepted"
        raise InvalidInput(file.name, f"{len(file.data)} bytes", size, "send the sum of all steps, or a .npz file")
    suffix = file.name.casefold().rpartition(".")[2]
    head = file.data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if suffix in {"yaml", "yml"}:
        return parse_text(decode(file.data, what=file.name), what=file.name), ""
    if suffix == "jsonl":
        lines = [line for line in file.data.split(b"\n") if line.strip()]
        names = (f"{file.name}: entry {index}" for index in range(len(lines)))
        return [parse_json(line, what=name, finite=False) for name, line in zip(names, lines, strict=True)], ""
    if suffix == "json" or head in {b"{", b"["}:
        return parse_json(file.data, what=file.name, finite=False), ""
    return None, decoded(file)


def _unpacked(tree: Any) -> int:
    """Bytes of the arrays that an archive of arrays held."""
    arrays = tree.values() if isinstance(tree, dict) else ()
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def _grouped(values: Sequence[tuple[str, Any, str]], experts: int | None) -> Iterator[RoutingSource]:
    """A source for each file, except that the ranks of a folder make one, with the meta data beside them."""
    runs: dict[str, dict[str, Any]] = {}
    for name, tree, _ in values:
        if name.casefold().endswith(".safetensors") and any(_RANK_KEY.fullmatch(key) for key in tree):
            runs.setdefault(_folder(name), {})[_last(name)] = tree
    told: set[str] = set()
    for name, tree, text in values:
        folder = _folder(name)
        if folder in runs and (_last(name) in runs[folder] or _last(name) == _META):
            if folder not in told:
                told.add(folder)
                meta = next((value for other, value, _ in values if other == _beside(folder)), None)
                run = {"ranks": runs[folder], "meta_info": meta}
                yield RoutingSource(folder or name, _stem(folder) or _ONE_RUN, run, experts=experts)
        else:
            yield RoutingSource(name, _stem(name) or name, tree, text, experts)


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _beside(folder: str) -> str:
    return f"{folder}/{_META}" if folder else _META


def _stem(name: str) -> str:
    """The last part of a name without the suffixes of formats and archives."""
    stem = _last(name)
    while (parts := stem.rpartition("."))[0] and parts[2].casefold() in _SUFFIXES:
        stem = parts[0]
    return stem


def _named(name: str, error: InvalidInput) -> InvalidInput:
    """The error with the file's name in its place."""
    if error.field.startswith(name):
        return error
    return InvalidInput(f"{name}: {error.field}", error.value, error.problem, error.remedy)
