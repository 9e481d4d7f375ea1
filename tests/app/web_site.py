"""The pages over a real database, without a browser and without anybody who solves."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.db.engine import make_engine, make_read_session_factory, make_session_factory
from app.jobs.client import JobClient
from app.metrics import make_metrics
from app.resources import Service
from app.settings import Settings
from app.trusted_requests import TrustedRequests
from app.web.routes import router
from tests.app.shared_routes import with_shared_routes
from tests.databases import begin_at_newest

FOREIGN: Final = {"sec-fetch-site": "cross-site"}


@contextmanager
def site(folder: Path) -> Iterator[tuple[Service, TestClient]]:
    """A service on an empty SQLite database and a client of its pages that follows no redirect."""
    settings = Settings(data_dir=folder)
    begin_at_newest(settings)
    engine = make_engine(settings.resolved_database_url)
    service = Service(
        settings=settings,
        engine=engine,
        sessions=make_session_factory(engine),
        read_sessions=make_read_session_factory(engine),
        jobs=JobClient(settings.resolved_jobs_database_url),
        metrics=make_metrics(),
    )
    app = FastAPI()
    app.state.service = service
    app.include_router(router)
    app.add_middleware(TrustedRequests, hosts=())
    with_shared_routes(app)
    yield service, TestClient(app, headers={"sec-fetch-site": "same-origin"}, follow_redirects=False)
    engine.dispose()


def told(page: str) -> str:
    """The words of a page as somebody reads them."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", page)))


def box(page: str, name: str) -> str:
    """Text in the input of that name."""
    found = re.search(rf'<input id="{name}"[^>]* value="([^"]*)"', page)
    assert found is not None, name
    return html.unescape(found[1])


def ticked(page: str, name: str) -> list[str]:
    """The boxes of that name that are ticked."""
    return re.findall(rf'<input type="checkbox" name="{name}" value="([^"]*)" checked>', page)


def chosen(page: str, name: str) -> str:
    """Choice in the list of that name."""
    options = re.search(rf'<select id="{name}".*?</select>', page, re.DOTALL)
    assert options is not None, name
    found = re.search(r'<option value="([^"]*)" selected>', options[0])
    return "" if found is None else html.unescape(found[1])


def buttons(page: str) -> list[str]:
    """The values that the buttons of a page send."""
    return re.findall(r'<button[^>]*? name="do" value="(\w+)"', page)


def where(answer: Any) -> str:
    """Where an answer sends the browser to."""
    assert answer.status_code == 303, told(answer.text)[:2000]
    address: str = answer.headers["location"]
    return address
