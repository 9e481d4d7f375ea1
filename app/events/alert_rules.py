"""Meaning of alerts: a default table by alert name, overruled by labels of our own on the alert."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cluster_models.health.events import EntityKind, HealthState

OWN_LABELS: Final = "meshwright_"
"""Alerts say what they mean by ``meshwright_state``, ``_kind``, ``_node``, ``_part``, ``_slowdown``, ``_share``."""

_LONGEST_NAME: Final = 200
"""Characters of a name that are looked at: the patterns take time with the square of it."""


@dataclass(frozen=True, slots=True)
class AlertRule:
    """Alerts whose name the pattern finds something in are about such a part in such a state.

    Without a label that says which card or GPU, they are about the node; without ``state`` no hardware failed.
    """

    pattern: re.Pattern[str]
    state: HealthState | None
    kind: EntityKind = EntityKind.NODE


def _rule(pattern: str, state: HealthState | None, kind: EntityKind = EntityKind.NODE) -> AlertRule:
    return AlertRule(re.compile(pattern, re.IGNORECASE), state, kind)


ALERT_RULES: Final = (
    _rule(r"^(watchdog|infoinhibitor|deadmanssnitch|alwaysfiring)$", None),
    _rule(
        r"^kubenode(notready|unreachable)$|^(node|host)_?(is)?_?(down|not_?ready|unreachable)$", HealthState.FAILED
    ),
    _rule(r"^kubenodereadinessflapping$|^kubeletdown$|^(target|instance)_?down$", HealthState.SUSPECTED),
    _rule(r"^kubenode(eviction|pressure)$", HealthState.SUSPECTED),
    _rule(r"spot.*(interrupt|preempt)|preempt|maintenance|retire|drain", HealthState.DRAINING),
    _rule(r"cordon|unschedulable", HealthState.SUSPECTED),
    _rule(r"(switch|leaf|spine).*(down|unreachable)", HealthState.FAILED, EntityKind.SWITCH),
    _rule(
        r"fall(en|s)?_?off|gpu_?(lost|missing|down|fail)|double_?bit|dbe|uncorrectable|row_?remap_?fail",
        HealthState.FAILED,
        EntityKind.GPU,
    ),
    _rule(r"xid", HealthState.DEGRADED, EntityKind.GPU),
    _rule(r"nv_?link|nv_?switch", HealthState.DEGRADED, EntityKind.GPU),
    _rule(r"gpu.*(thermal|throttl|slow|hot|temp|power|ecc|remap)", HealthState.DEGRADED, EntityKind.GPU),
    _rule(
        r"(infiniband|^ib|rdma|roce|nic|mlx|efa|interface|port|link).*(down|lost|fail)",
        HealthState.FAILED,
        EntityKind.NIC,
    ),
    _rule(
        r"(infiniband|^ib|rdma|roce|nic|mlx|efa|interface|link).*(flap|slow|degrad|err|speed|discard)",
        HealthState.DEGRADED,
        EntityKind.NIC,
    ),
)
"""The first that fits counts: names of kubernetes-mixin and node-mixin, words of alerts on GPUs and cards."""


def rule_of(alert: str) -> AlertRule | None:
    """The rule for an alert of that name; ``None`` where none speaks of it."""
    return next((rule for rule in ALERT_RULES if rule.pattern.search(alert[:_LONGEST_NAME])), None)
