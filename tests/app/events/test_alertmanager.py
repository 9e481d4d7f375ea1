"""Alerts say what they mean by their names, or by labels of ours."""

from __future__ import annotations

from typing import Any

import pytest

from cluster_models.errors import InvalidInput
from tests.app.events.reports import read, shown

ZERO = "0001-01-01T00:00:00Z"


def alert(name: str, status: str = "firing", **labels: str) -> dict[str, Any]:
    """One alert."""
    return {
        "status": status,
        "labels": {"alertname": name, **labels},
        "annotations": {"summary": f"{name} it is"},
        "startsAt": "2026-03-01T11:50:00.123456789Z",
        "endsAt": "2026-03-01T11:55:00Z" if status == "resolved" else ZERO,
        "generatorURL": "-",
        "fingerprint": f"f-{name}-{labels.get('gpu', '')}",
    }


def webhook(*alerts: Any) -> dict[str, Any]:
    """A webhook as Alertmanager sends it."""
    return {"version": "4", "groupKey": "{}", "status": "firing", "truncatedAlerts": 0, "alerts": list(alerts)}


@pytest.mark.parametrize(
    ("value", "report"),
    [
        (alert("KubeNodeNotReady", node="n1", instance="10.0.0.9:8443"), "node n1 failed KubeNodeNotReady"),
        (alert("HostDown", instance="n1:9100"), "node n1:9100 failed HostDown"),
        (alert("GpuXidError", Hostname="n1", gpu="3", xid="79"), "gpu n1:3 failed GpuXidError"),
        (alert("GpuXidError", Hostname="n1", gpu="3", xid="94"), "gpu n1:3 suspected GpuXidError"),
        (alert("GPUDoubleBitEcc", Hostname="n1", device="nvidia5"), "gpu n1:5 failed GPUDoubleBitEcc"),
        (alert("GpuThermalThrottling", Hostname="n1", gpu="0"), "gpu n1:0 degraded GpuThermalThrottling"),
        (alert("GpuThermalThrottling", Hostname="n1"), "node n1 degraded GpuThermalThrottling"),
        (
            alert("NodeNetworkInterfaceFlapping", instance="n1:9100", device="ib4"),
            "nic n1:9100:ib4 degraded NodeNetworkInterfaceFlapping",
        ),
        (alert("LeafSwitchDown", switch="leaf-3"), "switch :leaf-3 failed LeafSwitchDown"),
        (alert("SpotInterruption", node="n1"), "node n1 draining SpotInterruption"),
        (alert("Whatever", node="n1", severity="critical"), "node n1 suspected Whatever"),
        (alert("Whatever", node="n1", gpu="5", severity="critical"), "gpu n1:5 suspected Whatever"),
        (alert("Whatever", node="n1", uuid="4c4c4544", severity="critical"), "node n1 suspected Whatever"),
        (alert("NodeCordoned", node="n1"), "node n1 suspected NodeCordoned"),
        (alert("Whatever", node="n1", meshwright_state="degraded"), "node n1 degraded Whatever"),
        (
            alert(
                "Slow",
                meshwright_node="n1",
                meshwright_kind="link",
                meshwright_part="n2",
                meshwright_state="failed",
            ),
            "link n1:n2 failed Slow",
        ),
    ],
)
def test_an_alert_becomes_a_report(value: dict[str, Any], report: str) -> None:
    assert shown(read("alertmanager", webhook(value))) == [report]


def test_a_resolved_alert_takes_its_own_word_back() -> None:
    """It bears the same code and another state, and happened when it ended."""
    firing, resolved = (
        read("alertmanager", webhook(alert("KubeNodeNotReady", status, node="n1"))).events[0]
        for status in ("firing", "resolved")
    )
    assert (firing.state, resolved.state) == ("failed", "recovered")
    assert firing.code == resolved.code
    assert firing.source_id == resolved.source_id
    assert firing.occurred_at < resolved.occurred_at


def test_figures_in_labels_say_how_slow_it_is() -> None:
    labels = {
        "node": "n1",
        "meshwright_state": "degraded",
        "meshwright_slowdown": "1.25",
        "meshwright_share": "0.5",
    }
    (event,) = read("alertmanager", webhook(alert("Slow", **labels))).events
    assert (event.compute_slowdown, event.bandwidth_share) == (1.25, 0.5)
    reported = read("alertmanager", webhook(alert("Slow", **(labels | {"meshwright_share": "2"}))))
    assert reported.unread[0].field == "alerts[0].labels.meshwright_share"


def test_alerts_that_say_nothing_of_hardware_are_passed_over() -> None:
    quiet = [
        alert("Watchdog", severity="none"),
        alert("CPUBusy", node="n1", severity="info"),
        alert("GpuXidError", Hostname="n1", gpu="3", xid="13"),
        alert("GpuThermalThrottling", node="n1", meshwright_state="none"),
    ]
    assert shown(read("alertmanager", webhook(*quiet))) == []


def test_alerts_that_cannot_be_read_are_shown_and_the_others_taken() -> None:
    odd = [
        alert("DiskWillFill", node="n1", severity="warning"),
        alert("KubeNodeNotReady"),
        alert("X", node="n1", meshwright_state="broken"),
        {"labels": {}},
        None,
    ]
    reported = read("alertmanager", webhook(*odd, alert("HostDown", node="n2")))
    assert [each.told for each in reported.events] == ["n2"]
    assert [each.field for each in reported.unread] == [
        "alerts[0].labels.alertname",
        "alerts[1].labels",
        "alerts[2].labels.meshwright_state",
        "alerts[3].status",
        "alerts[4]",
    ]
    assert all(each.problem for each in reported.unread)
    assert "meshwright_state" in reported.unread[0].remedy


@pytest.mark.parametrize("body", [{}, [], {"alerts": 3}, "", "no JSON"])
def test_other_payloads_are_refused(body: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        read("alertmanager", body)
    assert refused.value.field in ("alerts", "body")
