"""Answers about what never changes again, kept as bytes: a large cluster takes a tenth of a second to write."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from fastapi import Response
from pydantic import BaseModel

from app.kept import Kept
from cluster_models.units import MIB

MOST_BYTES: Final = 64 * MIB


class KeptAnswers:
    """The answers that were read last, ``most_bytes`` of them, by keys that say all that they depend on.

    A request reads its key from the database first, in a session of the sender's tenant: a change makes another
    key, and what a tenant does not see has none.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._bodies = Kept[Hashable, bytes](most_bytes, len)

    def body(self, key: Hashable, make: Callable[[], BaseModel]) -> bytes:
        """The answer under ``key`` as JSON, which ``make`` makes where it is not kept."""
        return self._bodies.get(key, lambda: make().model_dump_json(by_alias=True).encode())


KEPT: Final = KeptAnswers()
"""Answers kept by this process."""


def kept_response(key: Hashable, make: Callable[[], BaseModel], *, tag: str) -> Response:
    """The response with the answer under ``key``, and ``tag`` as its ETag."""
    return Response(KEPT.body(key, make), media_type="application/json", headers={"ETag": tag})
