"""Running jobs, the GPUs they hold, reports of failures, the decisions on them, and webhooks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the change."""
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("url", sa.String(length=2000), nullable=False),
        sa.Column("secret", sa.String(length=200), nullable=False),
        sa.Column("event_types", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_because", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_endpoints")),
    )
    op.create_table(
        "event_sources",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("adapter", sa.String(length=40), nullable=False),
        sa.Column("secret", sa.String(length=200), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_event_sources_cluster_id_clusters"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event_sources")),
        sa.UniqueConstraint("cluster_id", "name", name=op.f("uq_event_sources_cluster_id")),
    )
    op.create_table(
        "replan_settings",
        sa.Column("cluster_id", sa.String(length=32), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_replan_settings_cluster_id_clusters"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_replan_settings")),
    )
    op.create_table(
        "replans",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster_id", sa.String(length=32), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("window_ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("safe_revision", sa.Integer(), nullable=False),
        sa.Column("snapshot_id", sa.String(length=80), nullable=True),
        sa.Column("request", sa.Text(), nullable=True),
        sa.Column("summary", sa.Text(), nullable=True),
        sa.Column("progress", sa.Text(), nullable=True),
        sa.Column("safe", sa.Text(), nullable=True),
        sa.Column("has_decision", sa.Boolean(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("chosen", sa.String(length=20), nullable=True),
        sa.Column("superseded_by", sa.String(length=32), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255), nullable=True),
        sa.Column("request_hash", sa.String(length=64), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("rescues", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("solving_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("proposed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("approved_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('collecting', 'solving', 'proposed', 'approved', 'applying', 'applied', 'cancelled', "
            "'failed', 'superseded')",
            name=op.f("ck_replans_status_known"),
        ),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_replans_cluster_id_clusters"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_replans")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_replans_idempotency_key")),
    )
    op.create_index("ix_replans_cluster_id_created_at", "replans", ["cluster_id", "created_at"])
    op.create_index("ix_replans_status", "replans", ["status"])
    op.create_index(
        "uq_replans_open",
        "replans",
        ["cluster_id"],
        unique=True,
        sqlite_where=sa.text("status IN ('collecting', 'solving', 'proposed', 'approved', 'applying')"),
        postgresql_where=sa.text("status IN ('collecting', 'solving', 'proposed', 'approved', 'applying')"),
    )

    op.create_table(
        "running_jobs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("recovery", sa.Text(), nullable=False),
        sa.Column("standing", sa.String(length=20), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "standing IN ('idle', 'running', 'waiting', 'paused')", name=op.f("ck_running_jobs_standing_known")
        ),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_running_jobs_cluster_id_clusters"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_running_jobs")),
        sa.UniqueConstraint("cluster_id", "name", name=op.f("uq_running_jobs_cluster_id")),
    )
    op.create_table(
        "spare_nodes",
        sa.Column("cluster_id", sa.String(length=32), nullable=False),
        sa.Column("node", sa.String(length=253), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_spare_nodes_cluster_id_clusters"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("cluster_id", "node", name=op.f("pk_spare_nodes")),
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("endpoint_id", sa.String(length=32), nullable=False),
        sa.Column("event_type", sa.String(length=60), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("last_status", sa.Integer(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'delivered', 'failed')", name=op.f("ck_webhook_deliveries_status_known")
        ),
        sa.ForeignKeyConstraint(
            ["endpoint_id"],
            ["webhook_endpoints.id"],
            name=op.f("fk_webhook_deliveries_endpoint_id_webhook_endpoints"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    op.create_index(
        "ix_webhook_deliveries_endpoint_id_created_at", "webhook_deliveries", ["endpoint_id", "created_at"]
    )
    op.create_index(
        "ix_webhook_deliveries_status_next_attempt_at", "webhook_deliveries", ["status", "next_attempt_at"]
    )

    op.create_table(
        "health_events",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster_id", sa.String(length=32), nullable=False),
        sa.Column("source", sa.String(length=100), nullable=False),
        sa.Column("source_id", sa.String(length=300), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("node", sa.String(length=253), nullable=False),
        sa.Column("part", sa.String(length=300), nullable=False),
        sa.Column("told_name", sa.String(length=300), nullable=False),
        sa.Column("known", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("code", sa.String(length=200), nullable=False),
        sa.Column("compute_slowdown", sa.Double(), nullable=False),
        sa.Column("bandwidth_share", sa.Double(), nullable=False),
        sa.Column("repeats", sa.Integer(), nullable=False),
        sa.Column("replan_id", sa.String(length=32), nullable=True),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_health_events_cluster_id_clusters"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["replan_id"], ["replans.id"], name=op.f("fk_health_events_replan_id_replans"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_health_events")),
        sa.UniqueConstraint("cluster_id", "source", "source_id", "state", name=op.f("uq_health_events_cluster_id")),
    )
    op.create_index("ix_health_events_cluster_id_occurred_at", "health_events", ["cluster_id", "occurred_at"])
    op.create_index("ix_health_events_cluster_id_received_at", "health_events", ["cluster_id", "received_at", "id"])
    op.create_index("ix_health_events_replan_id", "health_events", ["replan_id"])

    op.create_table(
        "occupied_gpus",
        sa.Column("cluster_id", sa.String(length=32), nullable=False),
        sa.Column("node", sa.String(length=253), nullable=False),
        sa.Column("gpu", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("claim_id", sa.String(length=32), nullable=True),
        sa.Column("previous_job_id", sa.String(length=32), nullable=True),
        sa.Column("releasing", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_occupied_gpus_cluster_id_clusters"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["running_jobs.id"], name=op.f("fk_occupied_gpus_job_id_running_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("cluster_id", "node", "gpu", name=op.f("pk_occupied_gpus")),
    )
    op.create_index("ix_occupied_gpus_claim_id", "occupied_gpus", ["claim_id"])
    op.create_index("ix_occupied_gpus_job_id", "occupied_gpus", ["job_id"])

    op.create_table(
        "running_plans",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("plan_id", sa.String(length=32), nullable=True),
        sa.Column("replan_id", sa.String(length=32), nullable=True),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("fitted", sa.Text(), nullable=True),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("preparations", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("approved_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('proposed', 'approved', 'applied', 'superseded', 'cancelled')",
            name=op.f("ck_running_plans_status_known"),
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["running_jobs.id"], name=op.f("fk_running_plans_job_id_running_jobs"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["plan_id"], ["plans.id"], name=op.f("fk_running_plans_plan_id_plans"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["replan_id"], ["replans.id"], name=op.f("fk_running_plans_replan_id_replans"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_running_plans")),
    )
    op.create_index("ix_running_plans_job_id_created_at", "running_plans", ["job_id", "created_at"])
    op.create_index(
        "uq_running_plans_applied",
        "running_plans",
        ["job_id"],
        unique=True,
        sqlite_where=sa.text("status = 'applied'"),
        postgresql_where=sa.text("status = 'applied'"),
    )

    op.create_table(
        "prepared_jobs",
        sa.Column("running_plan_id", sa.String(length=32), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("snapshot_id", sa.String(length=80), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["running_plan_id"],
            ["running_plans.id"],
            name=op.f("fk_prepared_jobs_running_plan_id_running_plans"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("running_plan_id", name=op.f("pk_prepared_jobs")),
    )


def downgrade() -> None:
    """Take the change back."""
    op.drop_table("prepared_jobs")
    op.drop_index("uq_running_plans_applied", "running_plans")
    op.drop_index("ix_running_plans_job_id_created_at", "running_plans")

    op.drop_table("running_plans")
    op.drop_index("ix_occupied_gpus_job_id", "occupied_gpus")
    op.drop_index("ix_occupied_gpus_claim_id", "occupied_gpus")

    op.drop_table("occupied_gpus")
    op.drop_index("ix_health_events_replan_id", "health_events")
    op.drop_index("ix_health_events_cluster_id_received_at", "health_events")
    op.drop_index("ix_health_events_cluster_id_occurred_at", "health_events")

    op.drop_table("health_events")
    op.drop_index("ix_webhook_deliveries_status_next_attempt_at", "webhook_deliveries")
    op.drop_index("ix_webhook_deliveries_endpoint_id_created_at", "webhook_deliveries")

    op.drop_table("webhook_deliveries")
    op.drop_table("spare_nodes")
    op.drop_table("running_jobs")
    op.drop_index("uq_replans_open", "replans")
    op.drop_index("ix_replans_status", "replans")
    op.drop_index("ix_replans_cluster_id_created_at", "replans")

    op.drop_table("replans")
    op.drop_table("replan_settings")
    op.drop_table("event_sources")
    op.drop_table("webhook_endpoints")
