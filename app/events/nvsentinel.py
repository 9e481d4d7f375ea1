"""NVSentinel: health events as JSON, alone, in a list, or inside CloudEvents of its exporter.

Spelling differs between its interfaces (``nodeName``, ``node_name``, ``nodename``): letters count, not their case.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import Field, field_validator

from app.events.payloads import BODY, Payload, ReportCollector, digest, entry, json_value, listed, moment
from app.events.reading import Adapter, Reported
from cluster_models.errors import InvalidInput
from cluster_models.health.events import EntityKind, HealthState
from readers.health.kernel_lines import bus_of

_MAINTENANCE: Final = "maintenance"
"""In the names of checks that pass on what a cloud announces."""
_REMEDY: Final = "send health events as JSON, with nodeName and checkName"


class _Impacted(Payload):
    entitytype: str = ""
    entityvalue: str = ""


class _Event(Payload):
    """A health event with the names of its fields in small letters."""

    nodename: str
    checkname: str
    isfatal: bool = False
    ishealthy: bool = False
    agent: str = ""
    componentclass: str = ""
    message: str = ""
    id: str = ""
    recommendedaction: str = ""
    errorcode: list[str] = Field(default_factory=list)
    entitiesimpacted: list[_Impacted] = Field(default_factory=list)
    generatedtimestamp: str = ""

    @field_validator("errorcode", "entitiesimpacted", mode="before")
    @classmethod
    def _none_is_empty(cls, value: object) -> object:
        return [] if value is None else value

    @field_validator("generatedtimestamp", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        """A time as protobuf's JSON has it, or as its seconds."""
        if isinstance(value, Mapping) and isinstance(seconds := value.get("seconds"), int | str):
            text = str(seconds)
            known = text.isascii() and text.isdigit() and len(text) <= 11
            return datetime.fromtimestamp(int(text), UTC).isoformat() if known else ""
        return value if isinstance(value, str) else ""


def read_nvsentinel(body: bytes, now: datetime) -> Reported:
    """The health events of a body; raises ``InvalidInput`` where it holds none."""
    value = _small(json_value(body))
    taken, found = ReportCollector(now), 0
    for path, each in listed(_events(value), path=BODY):
        found += isinstance(each, Mapping) and "nodename" in each
        with taken.entry(path):
            _take(entry(_Event, each, path=path), taken)
    if not found:
        raise InvalidInput("nodeName", None, "is missing: this is not a health event of NVSentinel", _REMEDY)
    return taken.done()


def _small(value: Any) -> Any:
    """The first levels of a value with keys in small letters and without underscores."""
    return _small_to(value, 6)


def _small_to(value: Any, depth: int) -> Any:
    if depth == 0:
        return value
    if isinstance(value, Mapping):
        return {str(key).casefold().replace("_", ""): _small_to(each, depth - 1) for key, each in value.items()}
    return [_small_to(each, depth - 1) for each in value] if isinstance(value, list) else value


def _events(value: Any, path: str = "", depth: int = 4) -> list[tuple[str, Any]]:
    """The events in lists and envelopes, with their paths."""
    if isinstance(value, list) and depth:
        return [pair for index, each in enumerate(value) for pair in _events(each, f"{path}[{index}]", depth - 1)]
    if isinstance(value, Mapping) and "nodename" not in value and depth:
        for key in ("events", "data", "healthevent", "healthevents"):
            if isinstance(value.get(key), Mapping | list):
                inner = dict(value[key]) if isinstance(value[key], Mapping) else value[key]
                if isinstance(inner, dict) and "id" in value:
                    inner.setdefault("id", value["id"])
                return _events(inner, f"{path}.{key}".lstrip("."), depth - 1)
    return [(path, value)]


def _take(event: _Event, taken: ReportCollector) -> None:
    """A report for each part that the event names; for the node where it names none that jobs run on."""
    state = _state(event)
    at = moment(event.generatedtimestamp)
    codes = f" ({', '.join(event.errorcode)})" if event.errorcode else ""
    action = f"; recommended: {event.recommendedaction}" if event.recommendedaction not in {"", "0", "NONE"} else ""
    parts = _parts(event) or [(EntityKind.NODE, "")]
    uuids = [each.entityvalue for each in event.entitiesimpacted if _kind_of(each) == "gpuuuid"]
    for kind, part in parts:
        key = event.id or f"{event.generatedtimestamp or taken.now.isoformat()} {event.message}"
        taken.add(
            state,
            event.nodename,
            kind=kind,
            part=part,
            at=at,
            source_id=digest(key, event.nodename, part, event.checkname),
            text=f"{event.checkname}{codes}: {event.message}{action}",
            code=event.checkname,
            device=uuids[0] if kind is EntityKind.GPU and len(parts) == len(uuids) == 1 else "",
        )


def _state(event: _Event) -> HealthState:
    if event.ishealthy:
        return HealthState.RECOVERED
    if _MAINTENANCE in f"{event.checkname} {event.componentclass}".casefold():
        return HealthState.DRAINING
    return HealthState.FAILED if event.isfatal else HealthState.SUSPECTED


def _parts(event: _Event) -> list[tuple[EntityKind, str]]:
    """The GPUs and cards of an event, each by its best name: a number before a bus address before a UUID."""
    named: dict[str, list[str]] = {}
    for each in event.entitiesimpacted:
        named.setdefault(_kind_of(each), []).append(each.entityvalue)
    cards = [(EntityKind.NIC, name) for kind in ("nic", "infiniband", "ib") for name in named.get(kind, ()) if name]
    for kind in ("gpu", "pci", "gpuuuid"):
        if values := [value for value in named.get(kind, ()) if value]:
            return [*cards, *((EntityKind.GPU, _gpu_name(value)) for value in dict.fromkeys(values))]
    return cards


def _kind_of(entity: _Impacted) -> str:
    return entity.entitytype.casefold().replace("_", "")


def _gpu_name(value: str) -> str:
    return f"PCI:{bus_of(value)}" if ":" in value else value


NVSENTINEL: Final = Adapter(
    "nvsentinel",
    "NVIDIA NVSentinel",
    read_nvsentinel,
    '{"version": 1, "agent": "gpu-health-monitor", "componentClass": "GPU", "checkName": "GpuMemWatch",\n'
    ' "isFatal": true, "isHealthy": false, "message": "uncorrectable memory error", "errorCode": ["DCGM_FR_X"],\n'
    ' "recommendedAction": "COMPONENT_RESET", "entitiesImpacted": [{"entityType": "GPU", "entityValue": "3"}],\n'
    ' "generatedTimestamp": "2026-03-01T12:00:05Z", "nodeName": "n3"}',
)
