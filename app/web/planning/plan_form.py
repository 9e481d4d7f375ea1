"""The form of a new plan, of training and of serving alike: sent, looked at before it is sent, and filled again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from app.db.engine import transaction
from app.documents.cluster import ClusterDocument
from app.documents.model import ModelDocument
from app.resources import Service, service_of
from app.services.clusters import clusters
from app.services.errors import NotFound
from app.services.planning.sent_forms import sent_once
from app.web.forms import FormProblem, Typed
from app.web.planning.form import typed
from app.web.planning.outlook import FormOutlook, form_outlook
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.model.catalogue import catalogue_models

MOST_GIVEN_BACK: Final = 2_000_000
"""Characters of a box that a form with mistakes gives back."""


@dataclass(frozen=True, slots=True)
class PlanForm:
    """A kind of plan's form: its texts before anybody typed, the request they spell, and the page that shows it."""

    route: str
    """Name of the route that shows the form."""
    blank: Callable[..., Typed]
    request_of: Callable[[Typed], Any]
    """Raises ``InvalidInput``."""
    label: Callable[[str], str]
    at_fields: Callable[[InvalidInput, Typed], tuple[FormProblem, ...]]
    page: Callable[[Request, Session, Typed, tuple[FormProblem, ...], FormOutlook | None], Response]

    def empty(self, service: Service) -> Typed:
        """Texts of the form before anybody typed."""
        return self.blank(time_limit_s=service.settings.default_time_limit_s)

    def create(self, service: Service, values: Typed) -> str:
        """Store and queue the plan that the form asks for, if it was not sent before; returns its id."""
        asked = self.request_of(values)
        with transaction(service.sessions) as session:
            plan_id = sent_once(session, service.settings, asked)
        service.queue_plan(plan_id)
        return plan_id

    def send(self, request: Request, data: FormData) -> Response:
        """Queue the plan that was asked for, or show what is wrong with the request."""
        service = service_of(request)
        values, found = typed(data, self.empty(service))
        if not found:
            try:
                return RedirectResponse(f"/plans/{self.create(service, values)}", 303)
            except (InvalidInput, NotFound) as error:
                found = self._problems(error, values)
        return self._again(request, values, found, None)

    def look_ahead(self, request: Request, data: FormData) -> Response:
        """The form as it was sent, with what can be said before a search; nothing is stored."""
        service, seen = service_of(request), None
        empty = self.empty(service)
        values, found = typed(data, empty)
        if not found:
            form = request.url_for(self.route)
            try:
                seen = form_outlook(service.sessions, self.request_of(values), values, empty=empty, form=form)
            except (InvalidInput, NotFound) as error:
                found = self._problems(error, values)
        return self._again(request, values, found, seen)

    def _problems(self, error: InvalidInput | NotFound, values: Typed) -> tuple[FormProblem, ...]:
        if isinstance(error, NotFound):
            return (FormProblem("cluster", self.label("cluster"), str(error)),)
        return self.at_fields(error, values)

    def _again(
        self, request: Request, values: Typed, found: tuple[FormProblem, ...], seen: FormOutlook | None
    ) -> Response:
        for name, text in values.items():
            if isinstance(text, str) and len(text) > MOST_GIVEN_BACK:
                values = {**values, name: ""}
                problem = "is too long to come back; choose its file again"
                found = (*found, FormProblem(name, self.label(name), problem))
        with service_of(request).read_sessions() as session:
            return self.page(request, session, values, found, seen)


def model_again(model: Architecture) -> Typed:
    """The model of an earlier plan in the form: by its name, or as numbers where the catalogue has none like it."""
    if catalogue_models().get(model.name) == model:
        return {"model": model.name}
    document = ModelDocument.from_architecture(model).model_dump(mode="json", exclude_none=True)
    return {"model_text": json.dumps(document, indent=2)}


def cluster_again(session: Session, name: str, snapshot: ClusterSnapshot) -> Typed:
    """The cluster of an earlier plan in the form: by its name, or as text where none of it is stored any more."""
    try:
        return {"cluster": clusters.get_cluster(session, reference=name).name}
    except NotFound:  # it came with the request, or is gone
        document = ClusterDocument.from_cluster(snapshot.cluster, snapshot.samples)
        return {"cluster_text": json.dumps(document.model_dump(mode="json", exclude_defaults=True))}
