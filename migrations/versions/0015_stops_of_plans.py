"""Searches that were asked to stop with the best plan so far."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the change; nobody asked before."""
    op.add_column("plans", sa.Column("stop_asked", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    """Take the change back."""
    op.drop_column("plans", "stop_asked")
