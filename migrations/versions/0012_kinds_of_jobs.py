"""Serving deployments beside training jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the change; jobs that are there train."""
    op.add_column(
        "running_jobs", sa.Column("kind", sa.String(length=20), server_default="training", nullable=False)
    )


def downgrade() -> None:
    """Take the change back; deployments, which nothing could read any more, are forgotten."""
    op.execute("DELETE FROM running_jobs WHERE kind <> 'training'")
    op.drop_column("running_jobs", "kind")
