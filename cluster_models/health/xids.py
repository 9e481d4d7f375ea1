"""Xids, the numbers of GPU errors in the kernel log.

Source: the column "immediate action" of NVIDIA's Xid catalogue (A100 and newer,
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html).  A reset of the GPU or more is a failure; a
restart of the application, or nothing, says nothing against the hardware.
"""

from __future__ import annotations

import re
from typing import Final

from cluster_models.health.events import HealthState

_NUMBER: Final = re.compile(r"(?:xid[\s:_\-]{0,2})?(\d{1,4})(?:\.0{1,6})?", re.IGNORECASE)

_RESET: Final = frozenset({46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158})
"""Immediate action RESET_GPU."""
_WORKFLOW: Final = frozenset({48, 54, 61, 74, 79, 151})
"""Double-bit error, power plug, halted controller, NVLink, off the bus, key rotation: what has to be done ends in a
reset, a reboot or a look at the machine."""
_NVLINK5: Final = frozenset(range(144, 151))
"""NVLink errors of Blackwell: their text says whether they were fatal."""
_APPLICATION: Final = frozenset(
    {8, 11, 13, 25, 31, 32, 37, 38, 39, 40, 41, 43, 44, 45, 60, 66, 67, 68, 69, 70, 71, 72, 75, 76, 77, 80}
    | {*range(82, 87), 88, 89, 93, *range(96, 108), 121, *range(126, 136), 137, 139, 141, 152, 153}
)
"""Immediate action RESTART_APP or IGNORE, and 45, the cleanup that follows other Xids."""
_ACTION_CHANGED: Final = 154
_NONFATAL: Final = re.compile(r"non-?fatal", re.IGNORECASE)
_NEW_ACTION: Final = re.compile(r"\bto\s+(?:0x[0-9a-f]{1,4}\s+)?\(([^)]{1,60})\)", re.IGNORECASE)


def xid_in(text: str) -> int | None:
    """The number in "79", "79.0" or "Xid 79"; ``None`` for other texts."""
    found = _NUMBER.fullmatch(text.strip()[:30])
    return int(found[1]) if found else None


def state_of_xid(xid: int, text: str = "") -> HealthState | None:
    """State of the GPU after an Xid; ``text`` is the rest of its line.

    ``None``: the application's fault, or the consequence of another Xid.  Numbers outside the tables leave the GPU
    suspected: it works on after contained errors (94), many corrected ones (92), rows to be remapped (63).
    """
    if xid == 0 or xid in _APPLICATION:
        return None
    if xid == _ACTION_CHANGED:
        return _after_action(text)
    if xid in _NVLINK5:
        return HealthState.SUSPECTED if _NONFATAL.search(text) is not None else HealthState.FAILED
    return HealthState.FAILED if xid in _RESET or xid in _WORKFLOW else HealthState.SUSPECTED


def _after_action(text: str) -> HealthState:
    """State after the recovery action that Xid 154 announces; suspected without one."""
    found = _NEW_ACTION.search(text)
    action = found[1].strip().casefold() if found else ""
    if action == "none":
        return HealthState.RECOVERED
    if "drain" in action:
        return HealthState.DRAINING
    return HealthState.FAILED if "reset" in action or "reboot" in action else HealthState.SUSPECTED
