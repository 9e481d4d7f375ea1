"""Pages that answered a form, kept under an address until newer ones take their room."""

from __future__ import annotations

import uuid
import zlib
from datetime import UTC, datetime
from itertools import accumulate
from typing import Final

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from app.db.page_tables import KeptPageRow
from app.services.rows import row_by_id
from cluster_models.units import MIB

MOST_PAGES: Final = 200
"""Pages of a tenant that are kept."""
MOST_BYTES: Final = 256 * MIB
"""Bytes of them together, but that the newest is always kept: the report of an import carries its files."""


def keep(session: Session, text: str) -> str:
    """Keep a page in place of the oldest; returns its id."""
    content = zlib.compress(text.encode())
    row = KeptPageRow(id=uuid.uuid4().hex, content=content, size=len(content), created_at=datetime.now(UTC))
    session.add(row)
    session.flush()
    newest = select(KeptPageRow.id, KeptPageRow.size).order_by(KeptPageRow.created_at.desc(), KeptPageRow.id)
    rows = session.execute(newest).all()
    together = accumulate(each.size for each in rows)
    old = [
        each.id
        for place, (each, size) in enumerate(zip(rows, together, strict=True))
        if place and (place >= MOST_PAGES or size > MOST_BYTES)
    ]
    session.execute(delete(KeptPageRow).where(KeptPageRow.id.in_(old)))
    return row.id


def kept_page(session: Session, *, page_id: str) -> tuple[str, datetime]:
    """A kept page and when it was made; raises ``NotFound``."""
    row = row_by_id(session, KeptPageRow, page_id, "page")
    return zlib.decompress(row.content).decode(), row.created_at
