"""Answers about what never changes again, kept as bytes: a large cluster takes a tenth of a second to write."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from fastapi import Response
from pydantic import BaseModel

from cluster_models.units import MIB

MOST_BYTES: Final = 64 * MIB


class KeptAnswers:
    """The answers that were read last, ``most_bytes`` of them, by keys that say all that they depend on.

    A request reads its key from the database first, in a session of the sender's tenant: a change makes another
    key, and what a tenant does not see has none.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bodies: OrderedDict[Hashable, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def body(self, key: Hashable, make: Callable[[], BaseModel]) -> bytes:
        """The answer under ``key`` as JSON, which ``make`` makes where it is not kept."""
        with self._lock:
            if key in self._bodies:
                self._bodies.move_to_end(key)
                return self._bodies[key]
        body = make().model_dump_json(by_alias=True).encode()
        with self._lock:
            if key not in self._bodies:
                self._bodies[key] = body
                self._bytes += len(body)
            while self._bytes > self._most_bytes:
                _, oldest = self._bodies.popitem(last=False)
                self._bytes -= len(oldest)
        return body


KEPT: Final = KeptAnswers()
"""Those of this process."""


def kept_response(key: Hashable, make: Callable[[], BaseModel], *, tag: str) -> Response:
    """The response with the answer under ``key``, and ``tag`` as its ETag."""
    return Response(KEPT.body(key, make), media_type="application/json", headers={"ETag": tag})
