"""What an Xid, NVIDIA's number of a GPU error in the kernel log, says of the GPU."""

from __future__ import annotations

import re
from typing import Final

from cluster_models.health_events import HealthState
from cluster_models.readers.health_logs import APPLICATION_XIDS, FATAL_XIDS

_NUMBER: Final = re.compile(r"(?:xid[\s:_\-]{0,2})?(\d{1,4})(?:\.0{1,6})?", re.IGNORECASE)


def xid_in(text: str) -> int | None:
    """The number in "79", "79.0" or "Xid 79"; ``None`` for other texts."""
    found = _NUMBER.fullmatch(text.strip()[:30])
    return int(found[1]) if found else None


def state_of_xid(xid: int) -> HealthState | None:
    """What it makes of the GPU; ``None`` where the application is to blame and the GPU works on."""
    if xid == 0 or xid in APPLICATION_XIDS:
        return None
    return HealthState.FAILED if xid in FATAL_XIDS else HealthState.DEGRADED
