"""Workloads of serving from a file and the options of the command line."""

from __future__ import annotations

from app.cli.files import read_serving_workload, read_text
from app.cli.planning.serving_options import ServingOptions
from app.documents.reading import read_document
from app.documents.routing import RoutedWorkloadDocument
from app.documents.serving import ServingWorkloadDocument
from app.routing.reading import loads_of
from cluster_models.errors import InvalidInput


def served_workload(file: str, serving: ServingOptions) -> ServingWorkloadDocument:
    """The workload of a file with the options of the command line in place; raises ``InvalidInput`` naming them."""
    document = read_serving_workload(file)
    changes: dict[str, object] = {}
    if serving.objective is not None:
        changes["objective"] = serving.objective
    if serving.max_gpus is not None:
        changes["max_gpus"] = serving.max_gpus
    if serving.trace is not None:
        changes["trace"] = read_text(serving.trace)
    if serving.routing:
        counted = map(RoutedWorkloadDocument.from_workload, loads_of(*serving.routing))
        changes["routing"] = {"workloads": [each.model_dump(mode="json") for each in counted]}
    if serving.redundant is not None:
        told = changes.get("routing") or (document.routing and document.routing.model_dump(mode="json"))
        if not isinstance(told, dict):
            raise InvalidInput("--redundant", serving.redundant, "needs counts", "give --routing as well")
        changes["routing"] = told | {"redundant_experts": serving.redundant}
    if serving.pins:
        changes["pinned"] = document.pinned | dict(map(_pin, serving.pins))
    if not changes:
        return document
    given = document.model_dump(mode="json", exclude_unset=True) | changes
    return read_document(ServingWorkloadDocument, given, what="workload")


def _pin(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    if not equals or not (value.isascii() and value.isdigit()):
        raise InvalidInput("--pin", text, "is not NAME=NUMBER", "write it as --pin tensor=4")
    return name, int(value)
