"""Pages of joint plans of reinforcement learning: the form of a new one, and what came out."""

from __future__ import annotations

from typing import Annotated, Final

import yaml
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from app.documents.reading import parse_text, read_document
from app.documents.reinforcement import ReinforcementWorkloadDocument
from app.exports.reinforcement import JOINT_FORMATS
from app.presentation.reinforcement import (
    PART_COLUMNS,
    SPLIT_COLUMNS,
    STEP_COLUMNS,
    headline,
    part_rows,
    proof,
    refusal,
    split_cells,
    step_rows,
)
from app.resources import service_of
from app.services.clusters import clusters
from app.services.pagination import MAX_LIMIT
from app.services.planning import models, plans, reinforcement_plans
from app.services.planning.plans import PlanRecord
from app.services.planning.requests import ReinforcementPlanRequest
from app.web.error_pages import PageRoute
from app.web.listing import plan_head
from app.web.origin import sent_form
from app.web.planning.progress import ProgressNow
from app.web.planning.text_forms import ask_for_plan, example_text
from app.web.rendering import page
from cluster_models.model.catalogue import catalogue_models
from cluster_models.reinforcement.plan import NoReinforcementPlan, ReinforcementPlan

EXAMPLE: Final = "workloads/reinforcement-llama-3.1-8b.yaml"
_FIELDS: Final = ("cluster", "model", "workload_text", "time_limit_s")

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/plans/new/reinforcement")
def new_reinforcement_plan(
    request: Request, cluster: str = "", model: str = "llama-3.1-8b", again: str = ""
) -> Response:
    """The form with an example, or as it was filled for an earlier plan."""
    if again:
        with service_of(request).read_sessions() as session:
            return _form(request, _asked_before(session, again))
    values = {"cluster": cluster, "model": model, "workload_text": example_text(EXAMPLE), "time_limit_s": "120"}
    return _form(request, values)


@router.post("/plans/new/reinforcement")
def ask_for_reinforcement_plan(request: Request, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Queue the plan that was asked for, or show what is wrong with the request."""
    values = {name: str(data.get(name, "")) for name in _FIELDS}

    def read() -> ReinforcementPlanRequest:
        limit = parse_text(values["time_limit_s"] or "null", what="time limit")
        asked = {
            "cluster": values["cluster"],
            "model": values["model"],
            "workload": parse_text(values["workload_text"], what="workload"),
            "options": {"time_limit_s": limit},
        }
        return read_document(ReinforcementPlanRequest, asked, what="request")

    answer = ask_for_plan(service_of(request), read)
    return _form(request, values, answer) if isinstance(answer, list) else answer


def reinforcement_plan_page(
    request: Request, session: Session, record: PlanRecord, progress: ProgressNow | None
) -> Response:
    """A joint plan: its progress while it is searched for, then what came out."""
    answer = reinforcement_plans.get_reinforcement_result(session, plan_id=record.id)
    found = answer if isinstance(answer, ReinforcementPlan) else None
    formats = []
    if found is not None:
        formats = [
            (
                each.name,
                each.description,
                f"{error.problem}; {error.remedy}".rstrip("; ") if (error := each.refusal(found)) else "",
            )
            for each in JOINT_FORMATS.values()
        ]
    return page(
        request,
        "reinforcement_plan.html",
        plan=plan_head(session, record),
        progress=progress,
        headline=headline(found) if found else "",
        proof=proof(found) if found else "",
        columns=PART_COLUMNS,
        rows=part_rows(found) if found else [],
        step_columns=STEP_COLUMNS,
        step=list(step_rows(found)) if found else [],
        nodes=[("trainer", ", ".join(found.training_nodes)), ("engine", ", ".join(found.rollout_nodes))]
        if found
        else [],
        formats=formats,
        split_columns=SPLIT_COLUMNS,
        splits=[split_cells(split) for split in answer.splits] if answer else [],
        nothing=refusal(answer) if isinstance(answer, NoReinforcementPlan) else None,
        failure=record.error,
    )


def _asked_before(session: Session, plan_id: str) -> dict[str, str]:
    record = plans.get_plan(session, plan_id=plan_id)
    problem = reinforcement_plans.get_reinforcement_problem(session, plan_id=plan_id)
    document = ReinforcementWorkloadDocument.from_value(problem.workload, problem.architecture)
    written = document.model_dump(mode="json", exclude_defaults=True) | {"kind": "reinforcement"}
    return {
        "cluster": record.cluster_name,
        "model": problem.architecture.name,
        "workload_text": yaml.safe_dump(written, sort_keys=False, default_flow_style=None, width=100),
        "time_limit_s": f"{record.options.time_limit_s:g}",
    }


def _form(request: Request, values: dict[str, str], problems: list[str] | None = None) -> Response:
    with service_of(request).read_sessions() as session:
        stored = clusters.list_clusters(session, limit=MAX_LIMIT)
        own = models.list_models(session, limit=MAX_LIMIT)
    return page(
        request,
        "new_reinforcement_plan.html",
        status=422 if problems else 200,
        values=values,
        found=(),
        problems=problems or [],
        clusters=_offered(values["cluster"], [record.name for record in stored.items]),
        models=_offered(values["model"], [*(record.name for record in own.items), *catalogue_models()]),
    )


def _offered(chosen: str, names: list[str]) -> list[tuple[str, str]]:
    """The names to choose from; none is chosen where one is asked for that is not among them."""
    nothing = [("", f"{chosen} is not stored: choose one")] if chosen and chosen not in names else []
    return [*nothing, *((name, name) for name in names)]
