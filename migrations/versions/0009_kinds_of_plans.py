"""Plans of serving beside those of training."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the change; plans that are there are of training."""
    op.add_column("plans", sa.Column("kind", sa.String(length=20), server_default="training", nullable=False))


def downgrade() -> None:
    """Take the change back; plans of serving, which nothing could read any more, are forgotten."""
    op.execute("DELETE FROM plans WHERE kind <> 'training'")
    op.drop_column("plans", "kind")
