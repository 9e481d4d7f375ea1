"""Forms that take a document as text: the example that they begin with, and the plan that they ask for."""

from __future__ import annotations

from collections.abc import Callable

from fastapi.responses import RedirectResponse, Response

from app.db.engine import transaction
from app.documents.reading import problems_of
from app.example_files import examples_folder
from app.resources import Service
from app.services.errors import NotFound
from app.services.planning.requests import AnyPlanRequest
from app.services.planning.sent_forms import sent_once
from cluster_models.errors import InvalidInput


def example_text(name: str) -> str:
    """The text of a shipped example; empty where none are installed."""
    folder = examples_folder()
    return "" if folder is None else (folder / name).read_text(encoding="utf-8")


def ask_for_plan(service: Service, read: Callable[[], AnyPlanRequest]) -> Response | list[str]:
    """The way to the plan that a form asks for, queued; or the problems of the request that ``read`` makes."""
    try:
        wanted = read()
        with transaction(service.sessions) as session:
            plan_id = sent_once(session, service.settings, wanted)
    except InvalidInput as error:
        return [str(problem) for problem in problems_of(error)]
    except NotFound as error:
        return [str(error)]
    service.queue_plan(plan_id)
    return RedirectResponse(f"/plans/{plan_id}", 303)
