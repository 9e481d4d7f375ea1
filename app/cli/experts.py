"""What ``meshwright experts`` does: routing statistics read, looked at, and made into maps; no database."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.cli.endings import complain
from app.cli.exporting import write_folder
from app.cli.files import read_architecture, read_snapshot
from app.cli.terminal import console, reading_shown
from app.documents.reading import FieldProblem, InvalidDocument, close_name, problems_of, read_document
from app.documents.routing import check_set
from app.experts.answer import answer_of
from app.experts.exporting import FORMATS, files_of, model_layers_of
from app.experts.links import Given
from app.experts.placing import propose
from app.experts.request import PlacementFields, Prepared, RouterDocument, prepared
from app.experts.statistics import statistics_of
from app.presentation.figures import plural
from app.routing.reading import RoutingRead, files_at, read_all
from app.serialization import jsonable
from cluster_models.architecture import Architecture
from cluster_models.errors import InvalidInput

_OPTIONS = {
    "between_nodes_gbit_per_s_per_gpu": "--link-speed",
    "inside_node_gbit_per_s_per_gpu": "--inside-speed",
    "redundant_experts": "--redundant",
    "gpu_kind": "--gpu",
    "tokens_per_gpu": "--tokens",
}


@dataclass(frozen=True, slots=True)
class Place:
    """The options of ``experts place`` as typed; ``fields`` are those of a placement over HTTP."""

    loads: tuple[Path, ...]
    fields: dict[str, Any]
    workloads: str | None
    worst: bool
    model: str | None
    router: str | None
    cluster: str | None
    form: str | None
    output: Path | None
    as_json: bool


def run_place(given: Place) -> None:
    """Place experts and print what that is worth; write the files of an engine where asked."""
    if given.form is not None and given.form not in FORMATS:
        raise InvalidInput("--format", given.form, "unknown format", close_name(given.form, list(FORMATS)))
    if given.form is None and given.output is not None:
        raise InvalidInput(
            "--output", str(given.output), "belongs to a format", f"add --format {'|'.join(FORMATS)}"
        )
    if given.form is not None and given.output is None:
        raise InvalidInput("--format", given.form, "makes several files", "name a folder with --output DIR")
    model = None if given.model is None else read_architecture(given.model)
    found = _read(given.loads, None if model is None or model.experts is None else model.experts.count)
    asked = _asked(given, found, model)
    with reading_shown(f"placing experts for {plural(len(asked.ask.planned), 'workload')}"):
        answer = answer_of(propose(asked.workloads, asked.ask), asked)
    if given.as_json:
        sys.stdout.write(answer.model_dump_json(indent=2) + "\n")
    else:
        from app.cli.expert_view import placement_view  # noqa: PLC0415 - tables are for people only

        console().print(placement_view(answer, given), crop=False)
    if given.form is not None:
        slots = answer.placement.to_slots()
        write_folder(given.output, given.form, files_of(given.form, slots, model_layers_of(slots, model, None)))
    sys.stdout.flush()


def run_show(files: Sequence[Path], *, experts: int | None, as_json: bool) -> None:
    """Print what statistics say: skew by layer, how alike the workloads are, what was not taken."""
    found = _read(files, experts, notices=not as_json)
    if not found.workloads:
        raise InvalidInput(found.maps[0].name, "a map", "says where experts lie, not how often they were selected")
    statistics = statistics_of(found.workloads)
    if as_json:
        notices = [jsonable(notice) for notice in found.notices]
        sys.stdout.write(json.dumps(jsonable(statistics) | {"notices": notices}, indent=2) + "\n")
    else:
        from app.cli.expert_view import statistics_view  # noqa: PLC0415 - tables are for people only

        console().print(statistics_view(statistics, found, [str(path) for path in files]), crop=False)
    sys.stdout.flush()


def _read(files: Sequence[Path], experts: int | None, *, notices: bool = True) -> RoutingRead:
    if not files:
        raise InvalidInput("--loads", None, "is missing", "name files of counts: --loads prefill.json decode.json")
    with reading_shown(f"reading {plural(len(files), 'file')}"):
        found = read_all(files_at(*files), experts=experts)
        if found.workloads:
            check_set(found.workloads)
    for notice in found.notices if notices else ():
        remedy = f"; {notice.remedy}" if notice.remedy else ""
        complain(f"meshwright: {notice.file}: {notice.place}: {notice.sentence}{remedy}")
    return found


def _asked(given: Place, found: RoutingRead, model: Architecture | None) -> Prepared:
    """The request as the API would get it, with options where it has fields."""
    if not found.workloads:
        raise InvalidInput("--loads", found.maps[0].name, "is a map, and no counts", "give counts too")
    if given.worst and given.workloads is not None and "=" in given.workloads:
        raise InvalidInput("--worst", given.workloads, "stands beside weights", "leave one of them out")
    fields = {name: value for name, value in given.fields.items() if value is not None}
    if given.workloads is not None:
        fields["workloads"] = _planned(given.workloads)
    with as_options():
        document = read_document(PlacementFields, fields, what="options")
        rule = None if given.router is None else _router(given.router).to_rule()
        known = Given(
            model=model,
            rule=rule,
            cluster=None if given.cluster is None else read_snapshot(given.cluster),
            between_gbit_per_s=document.between_nodes_gbit_per_s_per_gpu,
            inside_gbit_per_s=document.inside_node_gbit_per_s_per_gpu,
            gpu=document.gpu_kind,
            tokens=document.tokens_per_gpu,
        )
        return prepared(document, found.workloads, known)


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


def _router(text: str) -> RouterDocument:
    """The router of "8" (experts of a token) or "8,8,4" (also groups, and groups of a token)."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in {1, 3}:
        remedy = "write --router 8, or --router 8,8,4 for 8 experts in 4 of 8 groups"
        raise InvalidInput("--router", text, "must be one whole number, or three", remedy)
    names = ("active", "groups", "active_groups")
    return read_document(RouterDocument, dict(zip(names, numbers, strict=False)), what="--router")


def _number(option: str, part: str, figure: str) -> float:
    try:
        return float(figure)
    except ValueError as error:
        raise InvalidInput(option, part, "has no number after =", "write prefill=2") from error


@contextmanager
def as_options() -> Iterator[None]:
    """Errors raised inside name options instead of the fields of a document."""
    try:
        yield
    except InvalidInput as error:
        problems = [
            FieldProblem(_option(problem.field), problem.value, problem.problem, problem.remedy)
            for problem in problems_of(error)
        ]
        raise InvalidDocument(problems) from error


def _option(field: str) -> str:
    """The option that stands for a field."""
    if field.startswith("--"):
        return field
    name = re.split(r"[.\[]", field, maxsplit=1)[0]
    return _OPTIONS.get(name, f"--{name.replace('_', '-')}") + field[len(name) :]
