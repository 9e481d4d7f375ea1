"""Node states of Slurm (sections NODE STATE CODES of scontrol(1) and sinfo(1)), and kinds of strigger(1) events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cluster_models.health.events import HealthState
from cluster_models.health.states import worst

_FAILED, _DRAINING = HealthState.FAILED, HealthState.DRAINING
_SUSPECTED, _WELL = HealthState.SUSPECTED, HealthState.RECOVERED
_STATES: Final[Mapping[str, HealthState]] = {
    **dict.fromkeys(("DOWN", "NOT_RESPONDING", "NO_RESPOND", "ERROR"), _FAILED),
    **dict.fromkeys(("DRAIN", "DRAINED", "DRAINING", "DRNG"), _DRAINING),
    # "expected to fail soon": the node still works
    **dict.fromkeys(("FAIL", "FAILING", "FAILG"), _DRAINING),
    **dict.fromkeys(("MAINT", "MAINTENANCE", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED", "BOOT"), _DRAINING),
    # power saving takes idle nodes away: no failure to be counted
    **dict.fromkeys(("POWER_DOWN", "POWERED_DOWN", "POWERING_DOWN", "POWER_DRAIN", "POW_DN"), _DRAINING),
    # registered with less than configured; slurmctld drains the node
    **dict.fromkeys(("INVAL", "INVALID_REG", "INVALID"), _DRAINING),
    # the controller has just started; not in service yet
    **dict.fromkeys(("UNKNOWN", "UNK", "FUTURE", "FUTR"), _SUSPECTED),
    **dict.fromkeys(("IDLE", "ALLOCATED", "ALLOC", "MIXED", "MIX", "COMPLETING", "COMP"), _WELL),
    **dict.fromkeys(("RESERVED", "RESV", "PLANNED", "PLND", "BLOCKED", "PERFCTRS", "NPC"), _WELL),
    **dict.fromkeys(
        ("CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "RES", "POWERED_UP", "POWERING_UP", "POWER_UP"), _WELL
    ),
}
_MARKS: Final[Mapping[str, HealthState]] = {
    "*": _FAILED,
    "$": _DRAINING,
    "@": _DRAINING,
    "^": _DRAINING,
    "~": _DRAINING,
    "!": _DRAINING,
    "%": _DRAINING,
    "#": _WELL,
    "-": _WELL,
}
"""Characters behind a state: not responding, maintenance, reboot, power saving, powering up, planned."""

TRIGGERS: Final[Mapping[str, HealthState]] = {
    "down": _FAILED,
    "drained": _DRAINING,
    "draining": _DRAINING,
    "drain": _DRAINING,
    "fail": _DRAINING,
    "resume": _WELL,
    "up": _WELL,
}
"""Kinds of strigger events about nodes, as options without dashes."""


def state_of(states: str) -> HealthState | None:
    """The worst of states joined by ``+``, with their marks; ``None`` where the table has none of them."""
    matches: list[HealthState] = []
    for state in states.upper().split("+"):
        word = state.strip()
        plain = word.rstrip("".join(_MARKS))
        matches.extend(_MARKS[mark] for mark in word[len(plain) :])
        if plain in _STATES:
            matches.append(_STATES[plain])
    return worst(*matches) if matches else None
