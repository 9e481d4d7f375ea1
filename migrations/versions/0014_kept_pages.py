"""Pages that answered a form, kept under an address."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the change."""
    op.create_table(
        "kept_pages",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_kept_pages")),
    )
    op.create_index("ix_kept_pages_tenant_id_created_at", "kept_pages", ["tenant_id", "created_at"])


def downgrade() -> None:
    """Take the change back; the addresses are forgotten."""
    op.drop_table("kept_pages")
