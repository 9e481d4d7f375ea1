"""Routing statistics in the form of a new plan: of an address, and of a plan that was made before."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.documents.routing import RoutedWorkloadDocument, RoutingDocument, planned_loads
from app.services.experts import routing
from app.services.pagination import MAX_LIMIT
from app.web.experts.workload_weights import weight_lines
from app.web.forms import Typed
from cluster_models.errors import InvalidInput
from solver.problem import PlanningProblem


def asked_routing(session: Session, name: str) -> Typed:
    """The fields for stored statistics, all workloads alike; raises ``NotFound``."""
    told = routing.find_routing(session, name=name).statistics
    return {"routing": name, "routing_weights": weight_lines(each.name for each in told.workloads)}


def routing_before(session: Session, problem: PlanningProblem) -> Typed:
    """The fields as they were: stored statistics where these still hold the same counts, else the counts."""
    order = {"keep_expert_order": "true" if problem.keep_expert_order else ""}
    if not problem.routing:
        return order
    weights = weight_lines({each.name: each.weight for each in problem.routing})
    found = {"routing_weights": weights, **order}
    names = [each.name for each in problem.routing]
    for record in routing.list_routing(session, limit=MAX_LIMIT).items:
        told = [each.name for each in record.statistics.workloads]
        if told == names and _same_counts(session, record.name, problem):
            return found | {"routing": record.name}
    documents = [RoutedWorkloadDocument.from_workload(each.counted()) for each in problem.routing]
    text = RoutingDocument.model_construct(workloads=documents).model_dump_json(exclude_defaults=True)
    return found | {"routing_text": text}


def _same_counts(session: Session, name: str, problem: PlanningProblem) -> bool:
    try:
        counts = planned_loads(routing.resolve_routing(session, name=name), None, problem.architecture)
    except InvalidInput:  # of another model with as many experts
        return False
    return [(each.layers, each.loads) for each in counts] == [(each.layers, each.loads) for each in problem.routing]
