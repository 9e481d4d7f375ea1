"""Health events of NVSentinel in the spellings of its interfaces."""

from __future__ import annotations

from typing import Any

import pytest

from cluster_models.errors import InvalidInput
from tests.app.events.reports import NOW, read, shown


def event(*entities: tuple[str, str], **more: Any) -> dict[str, Any]:
    """A health event."""
    return {
        "version": 1,
        "agent": "monitor",
        "componentClass": "GPU",
        "checkName": "GpuWatch",
        "isFatal": True,
        "isHealthy": False,
        "message": "it broke",
        "recommendedAction": 2,
        "errorCode": ["79"],
        "entitiesImpacted": [{"entityType": kind, "entityValue": value} for kind, value in entities],
        "generatedTimestamp": "2026-03-01T11:00:00Z",
        "nodeName": "n1",
        **more,
    }


@pytest.mark.parametrize(
    ("value", "reports"),
    [
        (event(("GPU", "3")), ["gpu n1:3 failed GpuWatch"]),
        (event(("GPU", "3"), isHealthy=True, isFatal=False), ["gpu n1:3 recovered GpuWatch"]),
        (event(("GPU", "3"), isFatal=False), ["gpu n1:3 suspected GpuWatch"]),
        (event(("PCI", "0000:4E:00.0"), ("GPU_UUID", "GPU-1")), ["gpu n1:PCI:0000:4e:00 failed GpuWatch"]),
        (event(("GPU", "3"), ("PCI", "0000:4e:00")), ["gpu n1:3 failed GpuWatch"]),
        (event(("NIC", "mlx5_0")), ["nic n1:mlx5_0 failed GpuWatch"]),
        (event(), ["node n1 failed GpuWatch"]),
        (event(entitiesImpacted=None, checkName="CSPMaintenance"), ["node n1 draining CSPMaintenance"]),
        (event(("GPU", "3"), ("GPU", "4")), ["gpu n1:3 failed GpuWatch", "gpu n1:4 failed GpuWatch"]),
    ],
)
def test_an_event_becomes_reports_on_its_parts(value: dict[str, Any], reports: list[str]) -> None:
    assert shown(read("nvsentinel", value)) == reports
    assert shown(read("nvsentinel", {"version": 1, "events": [value]})) == reports
    assert shown(read("nvsentinel", [value])) == reports


def test_spelling_and_envelopes_do_not_matter() -> None:
    plain = event(("GPU", "3"))
    small = {key.lower(): value for key, value in plain.items()}
    small["entitiesimpacted"] = [{"entitytype": "GPU", "entityvalue": "3"}]
    envelope = {"specversion": "1.0", "id": "c1", "type": "t", "data": {"healthEvent": plain}}
    told = read("nvsentinel", plain).events[0]
    assert read("nvsentinel", {"healthevent": small}).events[0] == told
    inside = read("nvsentinel", envelope).events[0]
    assert (inside.told, inside.part, inside.state) == ("n1", "3", "failed")
    assert inside.source_id != told.source_id
    seconds = event(("GPU", "3"), generatedTimestamp={"seconds": int(NOW.timestamp()) - 60, "nanos": 5})
    assert (NOW - read("nvsentinel", seconds).events[0].occurred_at).total_seconds() == 60


@pytest.mark.parametrize("body", [{}, [], 7, {"events": []}, {"data": {"data": {}}}])
def test_other_payloads_are_refused(body: object) -> None:
    with pytest.raises(InvalidInput):
        read("nvsentinel", body)


def test_an_event_without_its_check_is_shown() -> None:
    (unread,) = read("nvsentinel", {"nodename": "n1"}).unread
    assert (unread.field, unread.problem) == ("checkname", "is missing")
