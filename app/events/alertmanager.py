"""Webhooks of Prometheus Alertmanager, version 4.

The name of an alert says what it means (``app.events.alert_rules``), unless the alert carries labels of our own.
``instance`` is often the address of an exporter and not of what the alert is about: every other label goes first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from pydantic import Field

from app.events.alert_rules import OWN_LABELS, AlertRule, rule_of
from app.events.payloads import Payload, ReportCollector, digest, entry, json_value, listed, moment
from app.events.reading import Adapter, Reported
from cluster_models.errors import InvalidInput
from cluster_models.health.events import UNSTATED, EntityKind, HealthState
from cluster_models.health.xids import state_of_xid, xid_in

_NODE_LABELS: Final = (
    f"{OWN_LABELS}node",
    "node",
    "kubernetes_node",
    "Hostname",
    "hostname",
    "nodename",
    "node_name",
    "host",
    "exported_instance",
    "instance",
)
_GPU_LABELS: Final = ("gpu", "gpu_id", "minor_number", "pci_bus_id", "UUID", "uuid")
_CARD: Final = re.compile(r"(?:ib|mlx|eth|en[ops]|rdma|bond|hsn|roce|efa|irdma|bnxt)[\w.\-]{0,60}")
_GPU_UUID: Final = re.compile(r"(?:GPU|MIG)-")
_GPU_DEVICE: Final = re.compile(r"nvidia(\d{1,2})")
_XID_LABELS: Final = ("xid", "XID", "err_code")
_REMEDY: Final = f"give the alert the label {OWN_LABELS}state: failed, degraded, draining, suspected or none"


class _Alert(Payload):
    """One alert as Alertmanager sends it."""

    status: str
    labels: dict[str, str]
    annotations: dict[str, str] = Field(default_factory=dict)
    startsAt: str = ""  # noqa: N815 - as Alertmanager writes it
    endsAt: str = ""  # noqa: N815
    fingerprint: str = ""


def read_alertmanager(body: bytes, now: datetime) -> Reported:
    """The alerts of a webhook; raises ``InvalidInput`` where the body is none."""
    value = json_value(body)
    if not isinstance(value, Mapping) or "alerts" not in value:
        remedy = "set this address as url of a webhook_config of Alertmanager"
        raise InvalidInput("alerts", None, "is missing: this is not a webhook of Alertmanager", remedy)
    taken = ReportCollector(now)
    for index, each in enumerate(listed(value["alerts"], path="alerts")):
        with taken.entry(f"alerts[{index}]"):
            _take(entry(_Alert, each, path=f"alerts[{index}]"), taken)
    return taken.done()


def _take(alert: _Alert, taken: ReportCollector) -> None:
    """Take one alert; one that says nothing about hardware is left out without a word."""
    labels = alert.labels
    name = labels.get("alertname", "")
    rule = rule_of(name)
    if (state := _state(name, rule, labels)) is None:
        return
    node, kind, part = _entity(rule, labels, state)
    begun = alert.startsAt or taken.now.isoformat()
    key = alert.fingerprint or digest(*(f"{key}={labels[key]}" for key in sorted(labels)))
    resolved = alert.status.lower() == "resolved"
    said = alert.annotations
    taken.add(
        HealthState.RECOVERED if resolved else state,
        node,
        kind=kind,
        part=part,
        at=moment(alert.endsAt if resolved else alert.startsAt),
        source_id=f"{key}@{begun}",
        text=said.get("summary") or said.get("description") or said.get("message") or name,
        code=name,
        compute_slowdown=UNSTATED if resolved else _number(labels, "slowdown", 1, float("inf")),
        bandwidth_share=UNSTATED if resolved else _number(labels, "share", 0, 1),
        device=_device(labels) if kind is EntityKind.GPU else "",
    )


def _state(name: str, rule: AlertRule | None, labels: Mapping[str, str]) -> HealthState | None:
    """State that a firing alert means, ``None`` for nothing; raises ``InvalidInput`` where nobody knows."""
    told = labels.get(f"{OWN_LABELS}state", "").strip().casefold()
    if told:
        if told not in {*HealthState, "none"} or told == HealthState.RECOVERED:
            raise InvalidInput(f"labels.{OWN_LABELS}state", told, "is not a state", _REMEDY)
        return None if told == "none" else HealthState(told)
    if (xid := _xid(labels)) is not None:
        return state_of_xid(xid)
    if rule is not None:
        return rule.state
    severity = labels.get("severity", "").casefold()
    if severity in {"info", "none"}:
        return None
    if severity in {"critical", "page", "error"}:
        return HealthState.SUSPECTED
    raise InvalidInput("labels.alertname", name, "is an alert that no rule speaks of", _REMEDY)


def _entity(rule: AlertRule | None, labels: Mapping[str, str], state: HealthState) -> tuple[str, EntityKind, str]:
    """Node, kind and part; raises ``InvalidInput`` where no label says them."""
    part = labels.get(f"{OWN_LABELS}part", "")
    if own := labels.get(f"{OWN_LABELS}kind", "").strip().casefold():
        if own not in {*EntityKind}:
            raise InvalidInput(
                f"labels.{OWN_LABELS}kind", own, "is not a kind of part", f"one of {', '.join(EntityKind)}"
            )
        kind = EntityKind(own)
        part = part or _part(kind, labels)
    else:
        # without a rule, the label of a GPU says what the alert is about: the node is not to blame
        guessed = rule.kind if rule is not None else EntityKind.GPU
        part = part or _part(guessed, labels)
        kind = guessed if part else EntityKind.NODE
    if kind is EntityKind.SWITCH:
        return "", kind, part
    node = next((labels[label] for label in _NODE_LABELS if labels.get(label, "").strip()), "")
    if not node:
        remedy = f"keep the label node or instance in the alert, or set {OWN_LABELS}node"
        raise InvalidInput("labels", ", ".join(sorted(labels))[:100], f"names no node that is {state}", remedy)
    return node, kind, part


def _part(kind: EntityKind, labels: Mapping[str, str]) -> str:
    """Number or name of the part in the labels, empty for nothing."""
    device = labels.get("device", "")
    if kind is EntityKind.GPU:
        named = ((label, labels[label]) for label in _GPU_LABELS if labels.get(label))
        if told := next((name for label, name in named if label.lower() != "uuid" or _GPU_UUID.match(name)), ""):
            return told
        numbered = _GPU_DEVICE.fullmatch(device)
        return numbered[1] if numbered else ""
    if kind is EntityKind.NIC:
        return device if _CARD.fullmatch(device) else labels.get("interface", "") or labels.get("hca", "")
    if kind is EntityKind.SWITCH:
        return labels.get("switch", "") or labels.get("leaf", "") or labels.get("switch_name", "")
    return ""


def _device(labels: Mapping[str, str]) -> str:
    """UUID of the GPU in the labels; others write that of their node or pod there."""
    uuid = labels.get("UUID") or labels.get("uuid", "")
    return uuid if _GPU_UUID.match(uuid) else ""


def _xid(labels: Mapping[str, str]) -> int | None:
    told = next((labels[label] for label in _XID_LABELS if labels.get(label)), "")
    return xid_in(told) if told else None


def _number(labels: Mapping[str, str], name: str, least: float, most: float) -> float:
    """A figure in a label of our own, ``UNSTATED`` without; raises ``InvalidInput``."""
    told = labels.get(f"{OWN_LABELS}{name}", "")
    if not told:
        return UNSTATED
    try:
        value = float(told)
    except ValueError:
        value = -1.0
    if not (least <= value <= most and 0 < value < float("inf")):
        remedy = "1.2 is 20 % slower than healthy" if name == "slowdown" else "0.5 is half of what the link had"
        raise InvalidInput(f"labels.{OWN_LABELS}{name}", told, f"must lie between {least} and {most}", remedy)
    return value


ALERTMANAGER: Final = Adapter(
    "alertmanager",
    "Prometheus Alertmanager (webhook version 4)",
    read_alertmanager,
    '{"version": "4", "status": "firing", "receiver": "meshwright", "alerts": [\n'
    '  {"status": "firing", "fingerprint": "5ef1a7c2b3d40918", "startsAt": "2026-03-01T12:00:05Z",\n'
    '   "endsAt": "0001-01-01T00:00:00Z", "annotations": {"summary": "n3 does not answer"},\n'
    '   "labels": {"alertname": "KubeNodeNotReady", "node": "n3", "severity": "critical"}}]}',
)
