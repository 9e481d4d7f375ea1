"""Portfolios of plans."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the change."""
    op.create_table(
        "portfolios",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("members", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_portfolios")),
    )
    op.create_index("ix_portfolios_tenant_id_created_at", "portfolios", ["tenant_id", "created_at", "id"])


def downgrade() -> None:
    """Take the change back; portfolios are forgotten, their plans stay."""
    op.drop_table("portfolios")
