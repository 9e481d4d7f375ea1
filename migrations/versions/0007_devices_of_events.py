"""Serial numbers and UUIDs of the hardware that reports are about."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_INDEX = "ix_health_events_cluster_id_device"


def upgrade() -> None:
    """Apply the change; nobody told the hardware of the reports that are there."""
    op.add_column("health_events", sa.Column("device", sa.String(length=200), server_default="", nullable=False))
    op.create_index(_INDEX, "health_events", ["cluster_id", "device"])


def downgrade() -> None:
    """Take the change back."""
    op.drop_index(_INDEX, "health_events")
    with op.batch_alter_table("health_events") as table:
        table.drop_column("device")
