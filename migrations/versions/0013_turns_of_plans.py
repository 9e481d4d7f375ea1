"""Turns of plans, by which tenants share the solvers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the change; plans that wait keep their order, before all that come."""
    op.add_column("plans", sa.Column("turn", sa.Integer(), server_default="0", nullable=False))


def downgrade() -> None:
    """Take the change back."""
    op.drop_column("plans", "turn")
