"""Runs that were measured, beside what their plans had predicted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the change."""
    op.create_table(
        "measured_runs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.Column("cluster_id", sa.String(length=32), nullable=True),
        sa.Column("cluster_name", sa.String(length=200), nullable=False),
        sa.Column("plan_id", sa.String(length=32), nullable=True),
        sa.Column("running_plan_id", sa.String(length=32), nullable=True),
        sa.Column("framework", sa.String(length=200), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.Column("predicted", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_measured_runs_cluster_id_clusters"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["plan_id"], ["plans.id"], name=op.f("fk_measured_runs_plan_id_plans"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["running_plan_id"],
            ["running_plans.id"],
            name=op.f("fk_measured_runs_running_plan_id_running_plans"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measured_runs")),
    )
    op.create_index("ix_measured_runs_tenant_id_ended_at", "measured_runs", ["tenant_id", "ended_at", "id"])
    op.create_index("ix_measured_runs_cluster_id_ended_at", "measured_runs", ["cluster_id", "ended_at"])


def downgrade() -> None:
    """Take the change back; what was measured is forgotten."""
    op.drop_table("measured_runs")
