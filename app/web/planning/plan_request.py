"""From what stands in a form to what the services take; every problem of every part is reported at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from app.documents.calibration import CalibrationDocument
from app.documents.cluster import ClusterDocument
from app.documents.framework import FrameworkDescription
from app.documents.hardware_profile import HardwareProfileDocument
from app.documents.model import model_document
from app.documents.reading import (
    NAME,
    Document,
    FieldProblem,
    InvalidDocument,
    parse_text,
    problems_of,
    read_document,
)
from app.documents.routing import RoutingDocument
from app.documents.workload import WorkloadDocument
from app.services.field_paths import errors_under
from app.services.planning.requests import OptionsDocument, PlanRequest, RoutingWeights
from app.web.experts.workload_weights import weights_of
from app.web.forms import Typed
from app.web.planning.form import options_data, workload_data
from cluster_models.errors import InvalidInput

D = TypeVar("D", bound=Document)


def plan_request(values: Typed) -> PlanRequest:
    """The request for a plan that the form spells; raises ``InvalidDocument``."""
    return PlanRequest(**read_parts(values, _PARTS))


def read_parts(values: Typed, readers: Mapping[str, Callable[[Typed], object]]) -> dict[str, Any]:
    """Every part of a form by its reader; raises ``InvalidDocument`` with the problems of all parts."""
    parts: dict[str, Any] = {}
    problems: list[FieldProblem] = []
    for name, read in readers.items():
        try:
            parts[name] = read(values)
        except InvalidInput as error:
            problems += problems_of(error)
    if problems:
        raise InvalidDocument(problems)
    return parts


def calibration_parts(values: Typed) -> dict[str, Any]:
    """Read the form of a new calibration; raises ``InvalidInput``."""
    profile, finished = values["profile_text"].strip(), values["calibration_text"].strip()
    return {
        "name": _calibration_name(values["name"].strip()),
        "gpu": values["gpu"] or None,
        "runs_csv": values["runs_text"] if values["runs_text"].strip() else None,
        "profile": _document(HardwareProfileDocument, profile, "profile") if profile else None,
        "calibration": _document(CalibrationDocument, finished, "calibration") if finished else None,
        "serving_csv": values["serving_text"] if values["serving_text"].strip() else None,
        "frameworks": _frameworks(values["frameworks_text"].strip()),
    }


class _Frameworks(Document):
    """Descriptions alone, so that a problem with one names its place."""

    frameworks: list[FrameworkDescription]


def _frameworks(text: str) -> list[FrameworkDescription]:
    if not text:
        return []
    data = parse_text(text, what="frameworks")
    listed = data if isinstance(data, list) else [data]
    return read_document(_Frameworks, {"frameworks": listed}, what="frameworks").frameworks


def _calibration_name(name: str) -> str | None:
    if name and not re.fullmatch(NAME, name):
        raise InvalidInput(
            "name", name, "is not a name", "begin with a letter or digit; then letters, digits, . _ -"
        )
    return name or None


def _document(kind: type[D], text: str, what: str) -> D:
    with errors_under(what):
        return read_document(kind, parse_text(text, what=what), what=what)


def cluster_document(text: str) -> ClusterDocument:
    """The cluster in a box of the form."""
    if not text.strip():
        raise InvalidInput("cluster", "", "is missing", "paste a cluster or choose a file")
    return read_document(ClusterDocument, parse_text(text, what="cluster"), what="cluster")


def asked_cluster(values: Typed) -> str | ClusterDocument:
    """The stored cluster that was chosen, or the one in the box; raises ``InvalidInput``."""
    return values["cluster"] or cluster_document(values["cluster_text"])


def asked_model(values: Typed) -> str | dict[str, Any]:
    """The model that was chosen, or the one in the box; raises ``InvalidInput``."""
    if values["model"]:
        return str(values["model"])
    if not values["model_text"].strip():
        raise InvalidInput("model", "", "is missing", "choose one of the catalogue, or paste its config.json")
    data = parse_text(values["model_text"], what="model")
    model_document(data, what="model").to_architecture()
    return str(data) if isinstance(data, str) else dict(data)


def _workload(values: Typed) -> WorkloadDocument:
    return read_document(WorkloadDocument, workload_data(values), what="workload")


def _options(values: Typed) -> OptionsDocument:
    return read_document(OptionsDocument, options_data(values), what="options")


def _routing(values: Typed) -> str | RoutingDocument | None:
    if values["routing"]:
        return str(values["routing"])
    return _document(RoutingDocument, values["routing_text"], "routing") if values["routing_text"].strip() else None


def _routing_weights(values: Typed) -> dict[str, Any] | None:
    weights = weights_of(values["routing_weights"], field="routing_weights")
    return read_document(_Weights, {"routing_weights": weights or None}, what="weights").routing_weights


def background(values: Typed) -> bool:
    """Whether the plan lets all others go first."""
    return bool(values["background"] == "true")


def _keep_expert_order(values: Typed) -> bool:
    return bool(values["keep_expert_order"] == "true")


def _calibration(values: Typed) -> str | None:
    return values["calibration"] or None


class _Weights(Document):
    """Weights alone, so that what is wrong with them is reported with all else."""

    routing_weights: RoutingWeights | None = None


_PARTS: Final[dict[str, Callable[[Typed], object]]] = {
    "cluster": asked_cluster,
    "model": asked_model,
    "workload": _workload,
    "options": _options,
    "calibration": _calibration,
    "routing": _routing,
    "routing_weights": _routing_weights,
    "keep_expert_order": _keep_expert_order,
    "background": background,
}
