"""Counts of a router that a serving workload names, read from what is stored."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.documents.routing import RoutedWorkloadDocument
from app.documents.serving import ServingWorkloadDocument
from app.documents.serving_parts import ServedRoutingDocument
from app.services.experts.routing import resolve_routing, without_pairs
from cluster_models.errors import InvalidInput, InvalidWorkload


def with_stored_counts(session: Session, workload: ServingWorkloadDocument) -> ServingWorkloadDocument:
    """The workload with the counts that ``routing.stored`` names in place; raises ``InvalidWorkload``."""
    given = workload.routing
    if given is None or given.stored is None or given.workloads is not None:
        return workload
    try:
        counts = without_pairs(resolve_routing(session, name=given.stored))
    except InvalidInput as error:
        raise InvalidWorkload("workload.routing.stored", error.value, error.problem, error.remedy) from error
    workloads = [RoutedWorkloadDocument.from_workload(each) for each in counts]
    routing = ServedRoutingDocument(workloads=workloads, redundant_experts=given.redundant_experts)
    return workload.model_copy(update={"routing": routing})
