"""The form of a rebalancing: the running map, new counts, and what is wanted, as fields of a request.

A map that was read goes back into its box as text, so that nothing is lost when something else is wrong; files of
counts are carried along in a hidden field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from app.documents.reading import FieldProblem
from app.documents.routing import check_set
from app.imports.sources import SentFile
from app.routing.reading import read_all, read_routing
from app.services.errors import NotFound, NotReady
from app.services.experts import routing
from app.services.planning import plans
from app.web.clusters.import_form import PASTED, uploads
from app.web.clusters.packed_files import check_size, pack, unpack
from app.web.experts import expert_links
from app.web.experts.expert_links import field_name, link_data
from app.web.experts.workload_weights import weights_of
from app.web.forms import FormProblem, Typed, number, sent_words, sentence_of
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.routing.counts import RoutedWorkload

_NUMBERS: Final = (
    "ranks",
    "nodes",
    "target_balancedness",
    "steps_until_next",
    "expert_bytes",
    "bytes_per_weight",
    "balanced_layer_ms",
)
_BOXES: Final = ("plan", "running_text", "routing", "workloads", *_NUMBERS, *expert_links.FIELDS)
_COSTS: Final = ("expert_bytes", "bytes_per_weight", "balanced_layer_ms")
_DEFAULTS: Final = {"nodes": "1", "steps_until_next": "10000", "bytes_per_weight": "2"}
LABELS: Final = expert_links.LABELS | {
    "plan": "Map of a plan",
    "running_file": "File of the map",
    "running_text": "Map as text",
    "routing": "Stored statistics",
    "counts": "Files of counts",
    "workloads": "Workloads that run",
    "ranks": "Expert ranks",
    "nodes": "Nodes",
    "target_balancedness": "Balance to reach",
    "steps_until_next": "Steps until the next look",
    "expert_bytes": "Bytes of one expert",
    "bytes_per_weight": "Bytes of a weight",
    "balanced_layer_ms": "Time of a layer",
}


@dataclass(frozen=True, slots=True)
class Running:
    """The map that runs; ``ranks`` and ``model`` where its source says them, ``text`` what stands in the box."""

    layers: Sequence[int]
    rows: Sequence[Sequence[int]]
    ranks: int | None = None
    model: Architecture | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Sent:
    """The form as sent: texts, the file of the map, and files of counts with what carries these on."""

    values: Typed
    map_files: tuple[SentFile, ...] = ()
    counts: tuple[SentFile, ...] = ()
    carried: str = ""

    @property
    def map_anchor(self) -> str:
        """The field that the map came in."""
        return "running_file" if self.map_files else "plan" if self.values["plan"] else "running_text"

    @property
    def counts_anchor(self) -> str:
        """The field that the counts came in."""
        return "counts" if self.counts else "routing"


def blank() -> Typed:
    """Texts of the form before anybody typed."""
    return dict.fromkeys(_BOXES, "") | _DEFAULTS


def sent_form(data: FormData, most_bytes: int) -> Sent:
    """The form as sent, with files of counts from before where no others were chosen; raises ``InvalidInput``."""
    values = typed(data)
    counts, carried = uploads(data, "counts"), data.get("carried_counts")
    if not counts and isinstance(carried, str) and not values["routing"]:
        counts = list(unpack(carried)) if carried else []
    check_size(counts, "", most_bytes)
    packed = pack(counts) if counts else ""
    check_size(counts, packed, most_bytes)
    return Sent(values, tuple(uploads(data, "running_file")), tuple(counts), packed)


def typed(data: FormData) -> Typed:
    """The texts of the form over those of an empty one."""
    return sent_words(data, blank())


def running_of(session: Session, sent: Sent) -> Running:
    """The map of the plan, the file or the box; raises ``InvalidInput``."""
    if sent.values["plan"]:
        if sent.map_files:
            raise InvalidInput("running_file", "", "conflicts with the map of a plan", "choose one of them")
        return _of_plan(session, sent.values["plan"])
    if sent.map_files:
        return _of_file(sent.map_files[0])
    if not sent.values["running_text"]:
        raise InvalidInput("running_text", "", "is missing", "choose a plan or a file, or paste the map here")
    return _of_file(SentFile(PASTED, sent.values["running_text"].encode("utf-8", "replace")))


def workloads_of(session: Session, sent: Sent) -> tuple[RoutedWorkload, ...]:
    """The workloads of the stored statistics or of the files; raises ``InvalidInput``."""
    if sent.values["routing"]:
        if sent.counts:
            raise InvalidInput("counts", "", "stand beside stored statistics", "choose one of them")
        return routing.resolve_routing(session, name=sent.values["routing"])
    if not sent.counts:
        raise InvalidInput("routing", "", "is missing", "choose stored statistics, or files of counts")
    found = read_routing(sent.counts)
    check_set(found)
    return found


def request_data(values: Typed, running: Running | None) -> dict[str, Any]:
    """The request that the form spells, without counts; empty fields are left out.  Raises ``InvalidInput``."""
    fields: dict[str, Any] = {name: number(values[name]) for name in _NUMBERS if values[name]}
    fields |= link_data(values)
    if weights := weights_of(values["workloads"], field="workloads"):
        fields["workloads"] = weights
    if running is not None:
        fields |= {"physical_to_logical_map": running.rows, "layers": running.layers}
        if running.ranks is not None:
            fields.setdefault("ranks", running.ranks)
    return fields


def at_fields(problems: Iterable[FieldProblem], map_anchor: str) -> tuple[FormProblem, ...]:
    """Problems of a request at the fields of the form that they concern; ``map_anchor``: where the map came in."""
    return tuple(_at_field(problem, map_anchor) for problem in problems)


def costs_in_use(values: Typed, found: Sequence[FormProblem]) -> bool:
    """Whether the part about what moves cost has to be open."""
    asked = any(values[name] != _DEFAULTS.get(name, "") for name in _COSTS)
    return asked or any(problem.anchor in _COSTS for problem in found)


def _at_field(problem: FieldProblem, map_anchor: str) -> FormProblem:
    name = field_name(problem)
    if name in {"physical_to_logical_map", "layers"}:
        place = problem.field.removeprefix(name).strip("[]")
        sentence = ": ".join(filter(None, (place, sentence_of(problem))))
        return FormProblem(map_anchor, LABELS[map_anchor], sentence)
    if name not in LABELS:
        return FormProblem("", "", str(problem))
    return FormProblem(name, LABELS[name], sentence_of(problem))


def _of_plan(session: Session, plan_id: str) -> Running:
    try:
        plan = plans.get_finished_plan(session, plan_id=plan_id)
    except (NotFound, NotReady) as error:
        raise InvalidInput("plan", plan_id, "there is no finished plan of this id", "choose another") from error
    slots = plan.expert_slots
    if slots is None:
        raise InvalidInput("plan", plan_id, "is of a model without experts", "choose another")
    model = plans.get_problem(session, plan_id=plan_id).architecture
    return Running(list(slots.layers), [list(row) for row in slots.slots], slots.ranks, model)


def _of_file(file: SentFile) -> Running:
    found = read_all([file])
    if not found.maps:
        remedy = "choose the file with physical_to_logical_map that the engine loaded or dumped"
        raise InvalidInput(file.name, "", "holds counts, not a map", remedy)
    chosen = found.maps[0]
    rows = chosen.slots.tolist()
    told = {"layers": list(chosen.layers)} | ({} if chosen.ranks is None else {"ranks": chosen.ranks})
    lines = ",\n  ".join(map(json.dumps, rows))
    text = f'{json.dumps(told)[:-1]}, "physical_to_logical_map": [\n  {lines}\n]}}'
    return Running(list(chosen.layers), rows, chosen.ranks, text=text)
