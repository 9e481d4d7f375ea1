"""Bodies of reports: JSON read once, entries taken one by one, texts cut to what can be stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from app.documents.reading import FieldProblem, problems_of_validation
from app.documents.text import decode
from app.events.reading import Reported, ReportedEvent
from cluster_models.errors import InvalidInput
from cluster_models.health.events import UNSTATED, EntityKind, HealthState
from readers.frame.numbers import moment_of
from readers.proposal.aliases import is_host

BODY: Final = "body"
"""Name of a payload as a whole in messages."""
MOST_EVENTS: Final = 50_000
"""Reports in one payload: each GPU of the largest cluster once."""
MOST_UNREAD: Final = 100
"""Entries that could not be read and are shown one by one; the rest are counted."""
_LONGEST_TEXT: Final = 400
_LONGEST_PART: Final = 200
_LONGEST_CODE: Final = 200
_LONGEST_ID: Final = 300
_LONGEST_SHOWN: Final = 120
_EARLIEST: Final = datetime(1990, 1, 1, tzinfo=UTC)
"""Times before it stand for "not set" (Go writes the year 1, others 1970)."""

P = TypeVar("P", bound="Payload")


class Payload(BaseModel):
    """Base of what other systems send: fields that we do not need may be anything."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, coerce_numbers_to_str=True, allow_inf_nan=False, defer_build=True
    )


def entry(kind: type[P], value: object, *, path: str) -> P:
    """``value`` as a ``kind``; raises ``InvalidInput`` with the first problem, its field below ``path``."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        problem = problems_of_validation(error.errors(include_url=False)[:1], what="")[0]
        field = ".".join(name for name in (path, problem.field) if name) or BODY
        raise InvalidInput(field, problem.value, problem.problem, problem.remedy) from error


def json_values(body: bytes) -> list[Any]:
    """The JSON values of a body: one, or several behind each other as watches write them.

    Raises ``InvalidInput`` where it is no JSON.
    """
    text = decode(body, what=BODY)
    decoder = json.JSONDecoder(parse_constant=_no_number)
    values: list[Any] = []
    at = _skip_space(text, 0)
    while at < len(text) and len(values) < MOST_EVENTS:
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            problem = f"is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})"
            raise InvalidInput(BODY, text[at : at + 60], problem, "send the payload unchanged") from error
        except RecursionError as error:
            raise InvalidInput(BODY, text[at : at + 20], "is nested too deeply", "send it unchanged") from error
        except ValueError as error:  # an integer of thousands of digits
            raise InvalidInput(BODY, text[at : at + 20], "holds a number of thousands of digits") from error
        values.append(value)
        at = _skip_space(text, end)
    if not values:
        raise InvalidInput(BODY, "", "is empty", "send the report as the body of the request")
    if at < len(text):
        raise InvalidInput(BODY, f"{len(values)} values", "holds too many values", "send it in parts")
    return values


def json_value(body: bytes) -> Any:
    """The one JSON value of a body; raises ``InvalidInput``."""
    values = json_values(body)
    if len(values) > 1:
        raise InvalidInput(BODY, f"{len(values)} values", "must be one JSON value", "send one payload a request")
    return values[0]


def listed(value: object, *, path: str) -> list[Any]:
    """A list that must be there, not longer than anybody needs; raises ``InvalidInput``."""
    if not isinstance(value, list):
        raise InvalidInput(path, _shown(value), "must be a list", "send the payload unchanged")
    if len(value) > MOST_EVENTS:
        problem = f"has more than {MOST_EVENTS:,} entries"
        raise InvalidInput(path, f"{len(value)} entries", problem, "send it in parts")
    return value


def moment(text: str | None) -> datetime | None:
    """A time with its zone, in UTC; ``None`` where there is none, or one that stands for "not set"."""
    found = moment_of(text) if text else None
    if found is None or found.tzinfo is None:
        return None
    try:
        found = found.astimezone(UTC)
    except OverflowError:
        return None
    return found if found >= _EARLIEST else None


def digest(*parts: str) -> str:
    """A short id of what makes a report itself."""
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "replace")).hexdigest()[:24]


def clean(text: str, longest: int = _LONGEST_TEXT) -> str:
    """One printable line of at most ``longest`` characters."""
    text = text[: 2 * longest]
    if not text.isprintable():
        text = "".join(each if each.isprintable() else " " for each in text)
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 3] + "..."


class ReportCollector:
    """Reports read so far from one payload that came at ``now``."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self._events: dict[tuple[str, HealthState], ReportedEvent] = {}
        self._unread: list[FieldProblem] = []
        self._uncounted = 0

    def add(  # noqa: PLR0913 - the fields of a report
        self,
        state: HealthState,
        told: str,
        *,
        kind: EntityKind = EntityKind.NODE,
        part: str = "",
        at: datetime | None = None,
        source_id: str,
        text: str = "",
        code: str = "",
        compute_slowdown: float = UNSTATED,
        bandwidth_share: float = UNSTATED,
        leave_by: datetime | None = None,
        device: str = "",
        is_sighting: bool = False,
    ) -> None:
        """Take a report; without a time, or with one to come, it happened when it came.

        Raises ``InvalidInput`` where it names no part that a cluster could have.
        """
        told, part = told.strip(), part.strip()
        if (kind is EntityKind.SWITCH) != (not told) or (told and not is_host(told)):
            raise InvalidInput("node", _shown(told), "is not a name of one node", "name the node that it is about")
        if kind is not EntityKind.NODE and not (part and part.isprintable() and len(part) <= _LONGEST_PART):
            raise InvalidInput("part", _shown(part), f"must say which {kind}", "give its number or name")
        if kind is EntityKind.LINK and (part == told or not is_host(part)):
            raise InvalidInput("part", _shown(part), "must be the other node of the link", "name it")
        if len(self._events) >= MOST_EVENTS:
            raise InvalidInput(BODY, MOST_EVENTS, "holds too many reports", "send it in parts")
        event = ReportedEvent(
            kind=kind,
            told=told,
            part="" if kind is EntityKind.NODE else part,
            state=state,
            occurred_at=self.now if at is None else min(at, self.now),
            source_id=source_id if _storable(source_id) else digest(source_id),
            text=clean(text),
            code=clean(code, _LONGEST_CODE),
            compute_slowdown=compute_slowdown,
            bandwidth_share=bandwidth_share,
            leave_by=leave_by,
            device=clean(device, _LONGEST_PART),
            is_sighting=is_sighting,
        )
        known = self._events.setdefault((event.source_id, state), event)
        if (known.kind, known.told, known.part) != (event.kind, event.told, event.part):
            problem = "is the id of a report about another part, too"
            raise InvalidInput("id", source_id[:_LONGEST_SHOWN], problem, "give each report an id of its own")

    def skip(self, field: str, value: object, problem: str, remedy: str = "") -> None:
        """Note an entry that cannot be read."""
        if len(self._unread) < MOST_UNREAD:
            self._unread.append(FieldProblem(clean(field), _shown(value), problem, remedy))
        else:
            self._uncounted += 1

    @contextmanager
    def entry(self, path: str) -> Iterator[None]:
        """Take what the block reads; where that is wrong, note the entry at ``path`` and go on."""
        try:
            yield
        except InvalidInput as wrong:
            field = (
                wrong.field if wrong.field.startswith(path) else f"{path}.{wrong.field}" if path else wrong.field
            )
            self.skip(field, wrong.value, wrong.problem, wrong.remedy)

    def done(self) -> Reported:
        """Events of the payload, and its entries that were not read."""
        unread = tuple(self._unread)
        if self._uncounted:
            unread = (
                *unread,
                FieldProblem(BODY, str(self._uncounted), f"{self._uncounted} more entries were not read"),
            )
        return Reported(tuple(self._events.values()), unread)


def _storable(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_ID and text.isprintable()


def _shown(value: object) -> str:
    """A value as far as a message shows it, whatever its size."""
    if isinstance(value, Mapping):
        names = ", ".join(str(key)[:20] for key, _ in zip(value, range(5), strict=False))
        return clean(f"a mapping of {names or 'nothing'}", _LONGEST_SHOWN)
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return clean(str(value)[: 4 * _LONGEST_SHOWN], _LONGEST_SHOWN)


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _no_number(name: str) -> float:
    raise InvalidInput(BODY, name, "is not a number that JSON has", "leave unknown values out")
