"""Rules for figures of DCGM (field names of dcgm_fields.h and of dcgm-exporter)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cluster_models.health.events import HealthState
from cluster_models.health.xids import state_of_xid, xid_in

XID_GAUGE: Final = "DCGM_FI_DEV_XID_ERRORS"
"""The Xid that came last; 0 since the driver was loaded without one."""
_XID_COUNT: Final = "DCGM_EXP_XID_ERRORS_COUNT"
_CLOCKS: Final = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
_EVENTS: Final = "DCGM_EXP_CLOCK_EVENTS_COUNT"
_HEALTH: Final = "DCGM_EXP_GPU_HEALTH_STATUS"
_LINK_ERRORS: Final = "DCGM_FI_DEV_GPU_NVLINK_ERRORS"
_SLOWED: Final = {0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
"""Bits of the reasons why clocks are low (nvml.h); a power cap (0x4) is the normal state of a busy GPU."""
_SLOWED_EVENTS: Final = {
    "hw_slowdown",
    "sw_thermal",
    "sw_thermal_slowdown",
    "hw_thermal",
    "hw_thermal_slowdown",
} | {
    "hw_power_brake",
    "hw_power_brake_slowdown",
}
_ABOVE_ZERO: Final[Mapping[str, tuple[HealthState, str]]] = {
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": (HealthState.FAILED, "rows of memory could not be remapped"),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": (HealthState.SUSPECTED, "rows are to be remapped at the next reset"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": (HealthState.FAILED, "double-bit errors since the driver was loaded"),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": (HealthState.SUSPECTED, "an NVLink had to recover"),
}
RULES: Final = frozenset({XID_GAUGE, _XID_COUNT, *_CLOCKS, _EVENTS, _HEALTH, _LINK_ERRORS, *_ABOVE_ZERO})
"""The figures that are looked at."""

Found = tuple[str, HealthState | None, str]
"""Code, state and text; without a state it is not a finding, and the GPU is not said to be well either."""


def finding_of(name: str, value: float, labels: Mapping[str, str]) -> Found | None:
    """Finding that follows from one figure; ``None``: by this figure the GPU is well."""
    if not value > 0 or value >= 1e15:
        return None
    if name in (XID_GAUGE, _XID_COUNT):
        xid = int(value) if name == XID_GAUGE else xid_in(labels.get("xid", "")) or 0
        # one that is the application's may have followed one that is not: not well either
        return f"Xid {xid}", state_of_xid(xid), f"Xid {xid}"
    if name in _CLOCKS:
        return _low_clocks(name, [word for bit, word in _SLOWED.items() if int(value) & bit])
    if name == _EVENTS:
        event = labels.get("clock_event", "")
        return _low_clocks(f"{name} {event}", [event] if event in _SLOWED_EVENTS else [])
    if name == _HEALTH:
        watch = labels.get("health_watch", "") or "all"
        state = HealthState.FAILED if value >= 20 else HealthState.SUSPECTED
        return f"{name} {watch}", state, f"health check {watch}: {labels.get('health_error_code', '')}"
    state, text = _ABOVE_ZERO.get(name, (HealthState.SUSPECTED, "errors of NVLink"))
    if name == _LINK_ERRORS and value >= 2:
        state = HealthState.FAILED
    return name, state, text


def _low_clocks(name: str, reasons: Sequence[str]) -> Found | None:
    return (name, HealthState.DEGRADED, f"clocks are low: {', '.join(reasons)}") if reasons else None
