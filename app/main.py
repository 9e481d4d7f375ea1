"""The application: API, pages, and in role ``all`` the solves, put together from settings."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from functools import cached_property
from importlib.metadata import version
from typing import Any, Final

import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.gzip import GZipMiddleware

from app import problems
from app.access import description, provider
from app.access.admission import check_right
from app.access.control import AccessControl
from app.api import health, webhook_messages
from app.api.v1 import (
    access,
    aliases,
    audit,
    calibrations,
    clusters,
    comparisons,
    event_sources,
    events,
    experiments,
    expert_placements,
    frameworks,
    imports,
    keys,
    measured_runs,
    measurements,
    measuring,
    models,
    occupancy,
    outlooks,
    parameters,
    plans,
    portfolios,
    predictions,
    replan_settings,
    replans,
    resilience,
    routing,
    running_jobs,
    running_plans,
    sensitivity,
    serving_predictions,
    sweeps,
    webhooks,
)
from app.api.v1.answers import PREFIX
from app.api.v1.queries import refuse_unknown_query
from app.conditional_requests import ConditionalRequests
from app.db.engine import make_read_session_factory, make_session_factory
from app.db.migrate import prepared_engine
from app.head_requests import HeadRequests
from app.http_heads import BoundedHeads
from app.jobs.client import JobClient
from app.jobs.runtime import JobRuntime, lock_data_folder
from app.jobs.worker import run_worker
from app.logs import configure_logs
from app.looks import Looks
from app.metrics import Metrics, make_metrics
from app.problems import PROBLEM_RESPONSE
from app.request_log import ObservedRequests
from app.resources import Service
from app.settings import DEFAULT_TENANT, Role, Settings
from app.startup import connect, explained, listening_socket
from app.tracing import start_tracing
from app.trusted_requests import TrustedRequests
from app.unchanged_answers import UnchangedAnswers
from app.warming import warm_up_beside
from app.web import manual
from app.web.routes import router as pages
from cluster_models.errors import MeshwrightError

API: Final = (
    access,
    aliases,
    audit,
    calibrations,
    clusters,
    comparisons,
    event_sources,
    events,
    experiments,
    expert_placements,
    frameworks,
    imports,
    keys,
    measured_runs,
    measurements,
    measuring,
    models,
    occupancy,
    outlooks,
    plans,
    portfolios,
    predictions,
    replan_settings,
    replans,
    resilience,
    routing,
    running_jobs,
    running_plans,
    sensitivity,
    serving_predictions,
    sweeps,
    webhooks,
)
STOP_STREAMS_AFTER_S: Final = 3
"""Open event streams would keep a stopping server up for minutes."""

DESCRIPTION: Final = """\
Plans how a large language model is spread over a measured GPU cluster, with a proof of how good the plan is.

Every field carries its unit in its name or its description.  Errors are problem details (RFC 9457).
"""


class DescribedApp(FastAPI):
    """An application whose errors are in its description, which is made when it is first asked for."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI description."""
        if self.openapi_schema is None:
            webhook_messages.describe(self.webhooks)
            problems.describe(super().openapi())
            description.describe(super().openapi())
            parameters.describe(super().openapi())
        return super().openapi()

    @cached_property
    def description_body(self) -> bytes:
        """The description as JSON."""
        return bytes(JSONResponse(self.openapi()).body)


def get_description(request: Request) -> Response:
    """The description; made in a thread, for its two seconds of processor time would hold up every other answer."""
    return Response(request.app.description_body, media_type="application/json")


def create_app(settings: Settings, *, tenant: str = DEFAULT_TENANT) -> FastAPI:
    """The application; databases are opened and solves begin when its lifespan does.

    Where anybody may use it, they use it as ``tenant``.
    """
    metrics, looks = make_metrics(), Looks()
    app = DescribedApp(
        title="Meshwright",
        version=version("meshwright"),
        description=DESCRIPTION,
        lifespan=_lifespan(settings, metrics),
        generate_unique_id_function=_operation_id,
        responses={"4XX": PROBLEM_RESPONSE, "5XX": PROBLEM_RESPONSE},
        openapi_url=None,
        redirect_slashes=False,  # ``problems`` does so without the host that was sent
        docs_url=None,
        redoc_url=None,
    )
    app.add_route(f"{PREFIX}/openapi.json", get_description)
    problems.install(app)
    for module in API:
        app.include_router(
            module.router, prefix=PREFIX, dependencies=[Depends(check_right), Depends(refuse_unknown_query)]
        )
    manual.install(app)
    for router in (calibrations.script_router, health.router, pages):
        app.include_router(router, dependencies=[Depends(check_right)])
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=settings.max_body_bytes)
    app.add_middleware(problems.DeclaredSize, max_bytes=settings.max_body_bytes)
    provider.install(app, settings)
    app.add_middleware(GZipMiddleware, minimum_size=2000, compresslevel=5)
    app.add_middleware(UnchangedAnswers, looks=looks)
    app.add_middleware(AccessControl, settings=settings, tenant=tenant, looks=looks)
    app.add_middleware(TrustedRequests, hosts=settings.known_hosts)
    app.add_middleware(ObservedRequests, metrics=metrics, logs_reads=settings.log_reads)
    app.add_middleware(ConditionalRequests)
    app.add_middleware(HeadRequests)
    return app


def serve(
    settings: Settings,
    *,
    announce: Callable[[str], None] = lambda _address: None,
    listening: socket.socket | None = None,
) -> None:
    """Serve until a signal ends the process; in role ``worker`` there is no server but solves are run.

    ``announce`` gets the address as soon as it is ours, unless ``listening`` is so already.  Raises
    ``MeshwrightError`` where the data folder or the address is taken, the database cannot be used, or is not at the
    newest schema.
    """
    configure_logs(settings)
    send_spans = start_tracing(settings.role)
    with explained(settings):
        if settings.role is Role.ALL:
            lock_data_folder(settings).release()
        prepared_engine(settings).dispose()
    with explained(settings, database="the job engine's database", variable="MESHWRIGHT_JOBS_DATABASE_URL"):
        connect(settings.resolved_jobs_database_url)
    if settings.role is Role.WORKER:
        run_worker(settings)
        send_spans()
        return
    with listening or listening_socket(settings) as own, suppress(KeyboardInterrupt):
        announce(f"http://{settings.host}:{own.getsockname()[1]}/")
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(settings),
                http=BoundedHeads,
                log_config=None,
                log_level="warning",
                timeout_graceful_shutdown=STOP_STREAMS_AFTER_S,
            )
        )
        warm_up_beside(lambda: server.started, lambda: server.should_exit)
        server.run(sockets=[own])
        send_spans()
        if not server.started:
            sys.exit(1)


def _lifespan(settings: Settings, metrics: Metrics) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Opens everything before the first request and closes it after the last, in the opposite order."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with ExitStack() as stack:
            app.state.service = await run_in_threadpool(_open, settings, metrics, stack)
            yield
            await run_in_threadpool(stack.close)

    return lifespan


def _open(settings: Settings, metrics: Metrics, stack: ExitStack) -> Service:
    if settings.role is Role.ALL:
        stack.callback(lock_data_folder(settings).release)
    engine = prepared_engine(settings)
    stack.callback(engine.dispose)
    sessions = make_session_factory(engine, tenant=None)
    if settings.role is Role.ALL:
        runtime = JobRuntime(settings, sessions, metrics)
        runtime.start()
        stack.callback(runtime.stop)
    jobs = JobClient(settings.resolved_jobs_database_url)
    stack.callback(jobs.close)
    return Service(settings, engine, sessions, make_read_session_factory(engine, tenant=None), jobs, metrics)


def _operation_id(route: APIRoute) -> str:
    """The function's name: short, and the same as long as the function is called so."""
    return route.name


if __name__ == "__main__":
    try:
        serve(Settings())
    except MeshwrightError as error:
        sys.exit(str(error))
