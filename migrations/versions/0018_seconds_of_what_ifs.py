"""Seconds that failures of sweeps took to answer."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the change; nobody counted before."""
    op.add_column("swept_failures", sa.Column("spent_s", sa.Double(), nullable=True))


def downgrade() -> None:
    """Take the change back."""
    op.drop_column("swept_failures", "spent_s")
