"""Sweeps of supposed failures."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the change."""
    op.create_table(
        "what_if_sweeps",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster_id", sa.String(length=32), nullable=False),
        sa.Column("each", sa.String(length=200), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cancelled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster_id"],
            ["clusters.id"],
            name=op.f("fk_what_if_sweeps_cluster_id_clusters"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_what_if_sweeps")),
    )
    op.create_index("ix_what_if_sweeps_tenant_id_created_at", "what_if_sweeps", ["tenant_id", "created_at", "id"])
    op.create_table(
        "swept_failures",
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=500), nullable=False),
        sa.Column("losses", sa.Text(), nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("state", sa.String(length=64), nullable=True),
        sa.Column("lost_tokens_per_s", sa.Double(), nullable=True),
        sa.Column("lost_requests_per_s", sa.Double(), nullable=True),
        sa.Column("lost_gpu_hours", sa.Double(), nullable=True),
        sa.Column("summary", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["sweep_id"],
            ["what_if_sweeps.id"],
            name=op.f("fk_swept_failures_sweep_id_what_if_sweeps"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("sweep_id", "number", name=op.f("pk_swept_failures")),
    )


def downgrade() -> None:
    """Take the change back; sweeps are forgotten."""
    op.drop_table("swept_failures")
    op.drop_table("what_if_sweeps")
