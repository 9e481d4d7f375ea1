"""Requests of each key a minute, counted in this process."""

from __future__ import annotations

import math
import time

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from app.access.principals import Principal


class RequestLimits:
    """Counts requests by key, and by person who is signed in; several web processes count each its own."""

    def __init__(self, per_minute: int | None) -> None:
        self._per_minute = per_minute
        self._limiter = MovingWindowRateLimiter(MemoryStorage())

    def wait_s(self, principal: Principal) -> int:
        """Seconds until the next request may come; 0 where this one may, which is counted then."""
        most = principal.requests_per_minute or self._per_minute
        if not principal.limited_as or most is None:
            return 0
        item = RateLimitItemPerMinute(most)
        if self._limiter.hit(item, principal.limited_as):
            return 0
        reset = self._limiter.get_window_stats(item, principal.limited_as).reset_time
        return max(1, math.ceil(reset - time.time()))
