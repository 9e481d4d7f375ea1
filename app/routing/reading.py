"""Routing statistics of an upload, or of paths: workloads, maps of running engines, and what was not taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from app.imports.sources import MOST_UNPACKED_BYTES, SentFile
from app.routing.opening import open_files
from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import RoutedWorkload
from cluster_models.units import MIB
from readers.frame.findings import Finding, note_in
from readers.routing.reading import RunningMap
from readers.routing.registry import read

_Named = TypeVar("_Named", RoutedWorkload, RunningMap)


@dataclass(frozen=True, slots=True)
class RoutingRead:
    """All of an upload; workloads have names of their own."""

    workloads: tuple[RoutedWorkload, ...]
    maps: tuple[RunningMap, ...]
    notices: tuple[Finding, ...]


def read_all(files: Sequence[SentFile], *, experts: int | None = None) -> RoutingRead:
    """Content of all files; a file that cannot be used gets a notice.

    ``experts``: how many a layer of the model has; files of other models are refused then.  Raises ``InvalidInput``
    where no file can be used: that of the first.
    """
    opened = open_files(files, experts)
    errors = list(opened.errors)
    workloads: list[RoutedWorkload] = []
    maps: list[RunningMap] = []
    notices: list[Finding] = []
    for source in opened.sources:
        try:
            found = read(source)
        except InvalidInput as error:
            errors.append(error)
            continue
        workloads.extend(found.workloads)
        maps.extend(found.maps)
        notices.extend(found.notices)
    if not workloads and not maps:
        raise errors[0] if errors else InvalidInput("files", "", "there is no file", "send routing statistics")
    notices.extend(_left_out(error) for error in errors)
    return RoutingRead(_renamed(workloads), _renamed(maps), tuple(notices))


def read_routing(files: Sequence[SentFile], *, experts: int | None = None) -> tuple[RoutedWorkload, ...]:
    """The workloads of an upload; raises ``InvalidInput`` as ``read_all`` does, and where there are maps alone."""
    found = read_all(files, experts=experts)
    if not found.workloads:
        problem = "says where experts lie, not how often they were selected"
        raise InvalidInput(found.maps[0].name, "a map", problem, "send the counts too")
    return found.workloads


def loads_of(*paths: Path, experts: int | None = None) -> tuple[RoutedWorkload, ...]:
    """The workloads of files on this machine; a folder stands for all files in it."""
    return read_routing(files_at(*paths), experts=experts)


def files_at(*paths: Path) -> tuple[SentFile, ...]:
    """Files on this machine as they would be sent, named below their folder; raises ``InvalidInput``."""
    found: list[SentFile] = []
    left = MOST_UNPACKED_BYTES
    for path in paths:
        inside = sorted(item for item in path.rglob("*") if item.is_file()) if path.is_dir() else [path]
        for file in inside:
            name = f"{path.name}/{file.relative_to(path).as_posix()}" if path.is_dir() else path.name
            try:
                size = file.stat().st_size
                if size > left:
                    problem = f"more than {MOST_UNPACKED_BYTES // MIB} MiB in all"
                    raise InvalidInput(
                        str(file), f"{size} bytes", problem, "send the sum of all steps, or fewer files"
                    )
                left -= size
                found.append(SentFile(name, file.read_bytes()))
            except OSError as error:
                raise InvalidInput(str(file), "", f"cannot be read: {error.strerror}") from error
    return tuple(found)


def _left_out(error: InvalidInput) -> Finding:
    name, _, place = error.field.partition(": ")
    return note_in("file-left-out", name, place, error.problem, error.remedy)


def _renamed(found: Sequence[_Named]) -> tuple[_Named, ...]:
    """The values with the second and later of one name numbered."""
    names: set[str] = set()
    unique: list[_Named] = []
    for value in found:
        name, count = value.name, 1
        while name in names:
            count += 1
            name = f"{value.name} ({count})"
        names.add(name)
        unique.append(value if name == value.name else replace(value, name=name))
    return tuple(unique)
