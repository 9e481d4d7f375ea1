"""Table of pages that answered a form."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base
from app.db.tenancy import Owned


class KeptPageRow(Owned, Base):
    """A page that answered a form, so that it has an address; the newest ones of a tenant are kept."""

    __tablename__ = "kept_pages"
    __table_args__ = (Index("ix_kept_pages_tenant_id_created_at", "tenant_id", "created_at"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    content: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)
    """Title in a line, then the HTML between head and foot of the page; compressed by zlib."""
    size: Mapped[int]
    """Bytes of the content."""
    created_at: Mapped[datetime]
