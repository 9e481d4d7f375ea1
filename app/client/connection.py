"""Requests to a service: tried again where that does no harm, refusals as errors, answers as models."""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, Final, Self
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, TypeAdapter, ValidationError

from app.client.models import MODELS
from app.documents.reading import FieldProblem, InvalidDocument
from cluster_models.errors import MeshwrightError

Body = BaseModel | Sequence[BaseModel] | Mapping[str, Any] | bytes | None
"""A request body: models, of which the fields that were set are sent, a JSON object, or bytes as they are."""

LONGEST_PAUSE_S: Final = 30.0
_BUSY: Final = frozenset({429, 503})
_REPEATABLE: Final = frozenset({"GET", "PUT", "DELETE"})
_KEY: Final = "Idempotency-Key"


class Refusal(MeshwrightError):
    """The service's answer that it does not do what was asked.

    ``kind`` is the last part of the problem's type (``not-found``), ``request_id`` finds the request in the
    service's log.
    """

    def __init__(self, kind: str, status: int, detail: str, request_id: str = "") -> None:
        super().__init__(detail)
        self.kind, self.status, self.request_id = kind, status, request_id


class ServiceAway(MeshwrightError):
    """The service does not answer, or what answers is not Meshwright."""


class Connection:
    """A connection to one service, as one caller; close it, or use it in ``with``.

    ``etag`` is the tag of the newest answer that had one, to be sent as ``if_match`` with a change of what was
    read.  Not to be shared by threads.
    """

    def __init__(self, http: httpx2.Client, *, retries: int = 3) -> None:
        self._http = http
        self._retries = retries
        self.etag: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _ask(
        self,
        method: str,
        path: str,
        answer: str,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
        body: Body = None,
    ) -> Any:
        """Answer as a model of that name in the client's table (``PageAnswer[...]``, ``list[...]``).

        ``None`` where it has no content, ``bytes`` for an empty name.  Raises ``InvalidInput`` for values that the
        service refuses, ``Refusal``, and ``ServiceAway``.
        """
        response = self._sent(method, path, query, headers, body)
        self.etag = response.headers.get("etag", self.etag)
        if not answer:
            return response.content
        if answer == "None":
            return None
        try:
            # A newer service may tell more than this client knows.
            return _adapter(answer).validate_json(response.content, extra="ignore")
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise ServiceAway(
                f"{response.url} answers what this version does not understand: {place}: {first['msg']}"
            ) from error

    def _events(self, path: str) -> Iterator[httpx2.ServerSentEvent]:
        """The events of a stream, until it ends; a stream that breaks is opened again where it broke."""
        last: str | None = None
        while True:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
            with self._away_explained(), self._http.stream("GET", path, headers=headers, timeout=None) as stream:
                if not stream.is_success:
                    stream.read()
                    raise _refusal(stream)
                for event in httpx2.EventSource(stream):
                    last = event.id or last
                    yield event
                    if event.event == "end":
                        return

    def _sent(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        headers: Mapping[str, str | None] | None,
        body: Body,
    ) -> httpx2.Response:
        sent = {name: value for name, value in (headers or {}).items() if value is not None}
        if _KEY in (headers or {}):
            sent.setdefault(_KEY, uuid.uuid4().hex)
        tries_left = self._retries if method in _REPEATABLE or _KEY in sent else 0
        pause_s = 1.0
        while True:
            try:
                with self._away_explained():
                    response = self._http.request(
                        method, path, params=_texts(query or {}), headers=sent, **_content(body)
                    )
            except ServiceAway:
                if not tries_left:
                    raise
            else:
                if response.is_success:
                    return response
                if response.status_code not in _BUSY or not tries_left:
                    raise _refusal(response)
                pause_s = _asked_pause_s(response, pause_s)
            tries_left -= 1
            time.sleep(min(pause_s, LONGEST_PAUSE_S))
            pause_s *= 2.0

    @contextmanager
    def _away_explained(self) -> Iterator[None]:
        try:
            yield
        except httpx2.TransportError as error:
            raise ServiceAway(f"{self._http.base_url} does not answer: {error or type(error).__name__}") from error


def part(text: str) -> str:
    """A part of a path."""
    return quote(text, safe="")


def _content(body: Body) -> dict[str, Any]:
    """The arguments that send a body."""
    if body is None:
        return {}
    return {"content": body} if isinstance(body, bytes) else {"json": _jsonable(body)}


def _jsonable(body: Any) -> Any:
    if isinstance(body, BaseModel):
        return body.model_dump(mode="json", exclude_unset=True)
    return dict(body) if isinstance(body, Mapping) else [_jsonable(each) for each in body]


def _texts(query: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that were given, as text."""
    return {name: _text(value) for name, value in query.items() if value is not None}


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.value if isinstance(value, Enum) else value


def _asked_pause_s(response: httpx2.Response, default_s: float) -> float:
    try:
        return float(response.headers.get("retry-after", default_s))
    except ValueError:
        return default_s


def _refusal(response: httpx2.Response) -> MeshwrightError:
    """The error of an answer that is not a success."""
    try:
        problem = response.json()
        kind = str(problem["type"]).rpartition("/")[2]
        errors = [
            FieldProblem(each["field"], each["value"], each["problem"], each["remedy"])
            for each in problem.get("errors", ())
        ]
        detail, request_id = str(problem["detail"]), str(problem.get("request_id", ""))
    except (ValueError, KeyError, TypeError):
        return ServiceAway(f"{response.url} answers {response.status_code} and is not Meshwright's API")
    if errors:
        return InvalidDocument(errors)
    return Refusal(kind, response.status_code, detail, request_id)


@cache
def _adapter(answer: str) -> TypeAdapter[Any]:
    """Reads an answer of that kind; models load when one is first read."""
    outer, _, inner = answer.rstrip("]").partition("[")
    whole: Any = list if outer == "list" else _model(outer)
    return TypeAdapter(whole[_model(inner)] if inner else whole)


def _model(name: str) -> Any:
    return getattr(importlib.import_module(MODELS[name]), name)
