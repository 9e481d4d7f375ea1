"""Serial numbers and UUIDs of hardware in the messages of those that tell them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.events.reports import read

XID = 'DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-5e0c",Hostname="n1"} 79\n'
ALERT = {"status": "firing", "labels": {"alertname": "GpuXid", "xid": "79", "node": "n1", "gpu": "3"}}


def sentinel(*entities: tuple[str, str]) -> dict[str, Any]:
    """An event about hardware of these kinds and names."""
    impacted = [{"entityType": kind, "entityValue": value} for kind, value in entities]
    return {"checkName": "GpuWatch", "isFatal": True, "nodeName": "n1", "entitiesImpacted": impacted}


def alert(**labels: str) -> dict[str, Any]:
    """An alert about a GPU."""
    return {"alerts": [{**ALERT, "labels": {**ALERT["labels"], **labels}}]}


@pytest.mark.parametrize(
    ("adapter", "payload", "device"),
    [
        ("plain", {"kind": "gpu", "node": "n1", "part": 3, "state": "failed", "device": "1653222"}, "1653222"),
        ("dcgm", XID, "GPU-5e0c"),
        ("alertmanager", alert(UUID="GPU-5e0c"), "GPU-5e0c"),
        ("alertmanager", alert(uuid="4c4c4544"), ""),  # of the node
        ("nvsentinel", sentinel(("GPU", "3"), ("GPU_UUID", "GPU-5e0c")), "GPU-5e0c"),
        ("nvsentinel", sentinel(("GPU", "3"), ("GPU", "4"), ("GPU_UUID", "GPU-5e0c")), ""),  # of which?
    ],
)
def test_reports_keep_the_device_that_their_source_names(adapter: str, payload: Any, device: str) -> None:
    assert {event.device for event in read(adapter, payload).events} == {device}
