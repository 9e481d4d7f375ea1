"""Answers for whoever operates the service: is it up, can it work, what does it do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Final

import structlog
from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field
from sqlalchemy.exc import SQLAlchemyError

from app.db import migrate
from app.problems import TYPES, problem_response
from app.resources import Service, whole_service_of
from app.services import workers
from app.services.errors import NotFound
from app.services.gauges import WORKER_SEEN_WITHIN, take_gauges

ANSWER_WITHIN_S: Final = 3.0
"""Probes give up soon; a database that takes longer does not answer."""

router = APIRouter(tags=["operation"])
log = structlog.get_logger(__name__)


class Health(BaseModel):
    """The process answers."""

    status: str = Field(description="Always ok.", examples=["ok"])


class ProblemType(BaseModel):
    """Explain a type of problem."""

    type: str = Field(description="Its address.", examples=["/problems/not-found"])
    meaning: str = Field(description="In words.", examples=["There is no such thing under this address."])


@router.get("/healthz")
async def get_health() -> Health:
    """The process answers; says nothing about databases, and waits for no thread that may hang on one."""
    return Health(status="ok")


@router.get("/readyz", responses={503: {"description": "Not ready: the detail says why."}})
async def get_readiness(request: Request) -> Response:
    """The database answers within 3 s and is at the newest schema, and a worker was seen within 30 s.

    While a newer version is rolled out the schema may be that one's: what runs already goes on.
    """
    missing = await _asked(_missing, whole_service_of(request))
    if missing is None:
        return JSONResponse({"status": "ok"})
    return problem_response(request, kind="not-ready", status=503, detail=missing)


@router.get("/metrics", response_class=Response)
async def get_metrics(request: Request) -> Response:
    """Measurements for Prometheus; what the database knows is as it was last while that does not answer."""
    service = whole_service_of(request)
    missing = await _asked(_measure, service)
    service.metrics.database_up.set(missing is None)
    metrics = service.metrics
    text = generate_latest(metrics.registry) + generate_latest(metrics.asked)
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


@router.get("/problems/{name}")
async def get_problem_type(
    name: Annotated[str, Path(description="Last part of a problem's type.", examples=["not-found"])],
) -> ProblemType:
    """Explain a type of problem."""
    if name not in TYPES:
        raise NotFound("type of problem", name)
    return ProblemType(type=f"/problems/{name}", meaning=TYPES[name])


async def _asked(ask: Callable[[Service], str | None], service: Service) -> str | None:
    """Result of ``ask``, or a sentence where the database does not answer in time.

    Asked in the loop's own threads, for those of requests may all wait for the database; one may go on waiting.
    """
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            return await asyncio.to_thread(ask, service)
    except (SQLAlchemyError, TimeoutError) as error:
        log.warning("database_away", reason=str(error)[:300])
        return "The database does not answer."


def _measure(service: Service) -> None:
    with service.read_sessions() as session:
        take_gauges(session, service.metrics)


def _missing(service: Service) -> str | None:
    """Why the service cannot work, in a sentence."""
    if not (migrate.is_current(service.engine) or migrate.is_newer(service.engine)):
        return "The database's schema is not the newest: migrate it."
    with service.read_sessions() as session:
        silent = workers.silence(session)
    if silent is None or silent > WORKER_SEEN_WITHIN:
        return "No worker was seen within 30 s: plans wait."
    return None
