"""Who took which step with a replan, what speaks against approving one, and until when parts that drain work."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the change."""
    op.create_table(
        "replan_steps",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("replan_id", sa.String(length=32), nullable=False),
        sa.Column("step", sa.String(length=20), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=True),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("verified", sa.Boolean(), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["replan_id"], ["replans.id"], name=op.f("fk_replan_steps_replan_id_replans"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_replan_steps")),
    )
    op.create_index("ix_replan_steps_replan_id_taken_at", "replan_steps", ["replan_id", "taken_at"])
    op.add_column("health_events", sa.Column("leave_by", sa.DateTime(timezone=True), nullable=True))
    op.create_index("ix_health_events_leave_by", "health_events", ["leave_by"])
    op.add_column("replans", sa.Column("objections", sa.Text(), nullable=True))


def downgrade() -> None:
    """Take the change back."""
    op.drop_column("replans", "objections")
    op.drop_index("ix_health_events_leave_by", "health_events")
    op.drop_column("health_events", "leave_by")
    op.drop_index("ix_replan_steps_replan_id_taken_at", "replan_steps")
    op.drop_table("replan_steps")
