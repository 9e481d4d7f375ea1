"""``meshwright experts``: routing statistics read, looked at, and made into maps; no database."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.cli.endings import complain
from app.cli.experts.expert_options import KnownLinks, MapFiles, as_options
from app.cli.terminal import console, reading_shown
from app.documents.reading import read_document
from app.documents.routing import check_set
from app.experts.answer import answer_of
from app.experts.budget import MOST_RANKS
from app.experts.placing import propose
from app.experts.rebalancing import RebalanceFields, prepared_rebalancing, rebalanced
from app.experts.request import PlacementFields, Prepared, prepared
from app.experts.statistics import statistics_of
from app.presentation.figures import plural
from app.routing.reading import RoutingRead, files_at, read_all
from app.serialization import jsonable
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.routing.counts import RoutedWorkload
from readers.frame.findings import Finding


@dataclass(frozen=True, slots=True)
class Place:
    """The options of ``experts place`` as typed; ``fields`` are those of a placement over HTTP."""

    loads: tuple[Path, ...]
    fields: dict[str, Any]
    workloads: str | None
    worst: bool
    speeds: str | None
    known: KnownLinks
    files: MapFiles
    as_json: bool


def run_place(given: Place) -> None:
    """Place experts and print what that is worth; write the files of an engine where asked."""
    given.files.check()
    model, experts = given.known.read_model()
    found = read_counts(given.loads, experts)
    asked = _asked(given, found, model)
    with reading_shown(f"placing experts for {plural(len(asked.ask.planned), 'workload')}"):
        answer = answer_of(propose(asked.workloads, asked.ask), asked)
    if given.as_json:
        sys.stdout.write(answer.model_dump_json(indent=2) + "\n")
    else:
        from app.cli.experts.expert_view import after_place, placement_view  # noqa: PLC0415 - tables are for people only

        console().print(placement_view(answer, after_place(answer, given)), crop=False)
    given.files.write(answer.placement.to_slots(), model, given.known.rule())
    sys.stdout.flush()


def run_show(files: Sequence[Path], *, experts: int | None, as_json: bool) -> None:
    """Print what statistics say: skew by layer, how alike the workloads are, what was not taken."""
    found = read_counts(files, experts, notices=not as_json)
    if not found.workloads:
        raise InvalidInput(found.maps[0].name, "a map", "says where experts lie, not how often they were selected")
    statistics = statistics_of(found.workloads)
    if as_json:
        notices = [_notice(notice) for notice in found.notices]
        sys.stdout.write(json.dumps(jsonable(statistics) | {"notices": notices}, indent=2) + "\n")
    else:
        from app.cli.experts.expert_view import statistics_view  # noqa: PLC0415 - tables are for people only

        console().print(statistics_view(statistics, found, [str(path) for path in files]), crop=False)
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Rebalance:
    """The options of ``experts rebalance`` as typed; ``fields`` are those of a rebalancing over HTTP."""

    running: Path
    loads: tuple[Path, ...]
    fields: dict[str, Any]
    workloads: str | None
    known: KnownLinks
    files: MapFiles
    as_json: bool


def run_rebalance(given: Rebalance) -> None:
    """Say which moves bring a running map back to balance, and whether they pay; write the new map where asked."""
    given.files.check()
    model, experts = given.known.read_model()
    found = read_counts(given.loads, experts)
    fields = _typed(given.fields, given.workloads) | _running_map(given.running)
    with as_options():
        document = read_document(RebalanceFields, fields, what="options")
        asked = prepared_rebalancing(document, counted(found), given.known.given(document, model))
        with reading_shown("looking for moves"):
            answer = rebalanced(asked)
    if given.as_json:
        sys.stdout.write(answer.model_dump_json(indent=2) + "\n")
    else:
        from app.cli.experts.expert_moves_view import moves_view  # noqa: PLC0415 - tables are for people only

        console().print(moves_view(answer, given.files.words()), crop=False)
    given.files.write(answer.placement.to_slots(), model, given.known.rule())
    sys.stdout.flush()


def _running_map(path: Path) -> dict[str, Any]:
    """The map in a file, as fields of a request."""
    maps = read_all(files_at(path)).maps
    if not maps:
        remedy = "give the file with physical_to_logical_map that the engine loaded or dumped"
        raise InvalidInput("--running", str(path), "holds counts, not a map", remedy)
    return {"physical_to_logical_map": maps[0].slots.tolist(), "layers": list(maps[0].layers)}


def _notice(notice: Finding) -> dict[str, str]:
    place = notice.place
    return {
        "code": notice.code,
        "file": place.file,
        "place": place.path,
        "sentence": notice.sentence,
        "remedy": notice.remedy,
    }


def read_counts(files: Sequence[Path], experts: int | None, *, notices: bool = True) -> RoutingRead:
    """The counts in ``files``, of so many ``experts`` where that is known; names what was not taken."""
    if not files:
        raise InvalidInput("--loads", None, "is missing", "name files of counts: --loads prefill.json decode.json")
    with reading_shown(f"reading {plural(len(files), 'file')}"):
        found = read_all(files_at(*files), experts=experts)
        if found.workloads:
            check_set(found.workloads)
    for notice in found.notices if notices else ():
        remedy = f"; {notice.remedy}" if notice.remedy else ""
        complain(f"meshwright: {notice.place.file}: {notice.place.path}: {notice.sentence}{remedy}")
    return found


def _asked(given: Place, found: RoutingRead, model: Architecture | None) -> Prepared:
    """The request as the API would get it, with options where it has fields."""
    if given.worst and given.workloads is not None and "=" in given.workloads:
        raise InvalidInput("--worst", given.workloads, "conflicts with weights", "leave one of them out")
    fields = _typed(given.fields, given.workloads)
    if given.speeds is not None:
        fields["speeds"] = _speeds(given.speeds)
    with as_options():
        document = read_document(PlacementFields, fields, what="options")
        known = given.known.given(document, model)
        return prepared(document, counted(found), known, form=given.files.form)


def _typed(fields: Mapping[str, Any], workloads: str | None) -> dict[str, Any]:
    """The fields that were given, with the workloads to plan for."""
    return dict(fields) if workloads is None else {**fields, "workloads": _planned(workloads)}


def counted(found: RoutingRead) -> tuple[RoutedWorkload, ...]:
    """The workloads of the files; raises ``InvalidInput`` where they hold maps alone."""
    if not found.workloads:
        raise InvalidInput("--loads", found.maps[0].name, "is a map, not counts", "give counts too")
    return found.workloads


def _planned(text: str) -> list[str] | dict[str, float]:
    """The workloads of "prefill,decode" or, with weights, of "prefill=2,decode=1"."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    weighed = [part for part in parts if "=" in part]
    if not parts or (weighed and len(weighed) < len(parts)):
        remedy = "write --workloads prefill,decode or --workloads prefill=2,decode=1"
        raise InvalidInput("--workloads", text, "must be names, or a weight for each", remedy)
    if not weighed:
        return parts
    weights: dict[str, float] = {}
    for part in parts:
        name, _, figure = part.rpartition("=")
        weights[name] = _number("--workloads", part, figure)
    if len(weights) < len(parts):
        raise InvalidInput("--workloads", text, "names a workload twice", "name each once")
    return weights


def _speeds(text: str) -> list[float]:
    """The speed of each rank, of "1x24,0.8x8": 24 ranks of speed 1, then 8 of 0.8."""
    found: list[float] = []
    for part in text.split(","):
        figure, times, ranks = part.strip().partition("x")
        try:
            speed, count = float(figure), int(ranks) if times else 1
        except ValueError:
            speed, count = 0.0, 0
        if not 1 <= count <= MOST_RANKS:
            remedy = "write --speeds 1,1,0.8,0.8, or 1x24,0.8x8 for 24 ranks of speed 1 and 8 of speed 0.8"
            raise InvalidInput("--speeds", part, "must be a number, or a number x ranks", remedy)
        found += [speed] * count
        if len(found) > MOST_RANKS:
            raise InvalidInput("--speeds", text, f"are more than {MOST_RANKS:,}", "give one for each rank")
    return found


def _number(option: str, part: str, figure: str) -> float:
    try:
        return float(figure)
    except ValueError as error:
        raise InvalidInput(option, part, "has no number after =", "write prefill=2") from error
