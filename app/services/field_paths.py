"""Where a wrong value stands in the request, when what found it saw only a part of the request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from app.documents.reading import InvalidDocument, problems_of
from cluster_models.errors import InvalidInput


@contextmanager
def errors_under(prefix: str) -> Iterator[None]:
    """Give the fields of errors raised inside the place they have in the request."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidDocument([replace(p, field=_under(prefix, p.field)) for p in problems_of(error)]) from error


def _under(prefix: str, field: str) -> str:
    part = prefix.rpartition(".")[2]
    return prefix + field.removeprefix(part) if f"{field}.".startswith(f"{part}.") else f"{prefix}.{field}"
