"""Table of portfolios: plans that were asked for as one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base
from app.db.tenancy import Owned


class PortfolioRow(Owned, Base):
    """A portfolio; its plans are plans like others, and may be forgotten before it."""

    __tablename__ = "portfolios"
    __table_args__ = (Index("ix_portfolios_tenant_id_created_at", "tenant_id", "created_at", "id"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    members: Mapped[dict[str, Any]]
    """``{"members": [{"name", "plan"}]}``: names in the portfolio and ids of plans."""
    created_at: Mapped[datetime]
