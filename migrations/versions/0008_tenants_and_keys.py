"""Tenants, keys and the audit log; everything stored before belongs to the tenant ``default``."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_DEFAULT = "default"
_OWNED = (
    "event_sources",
    "health_events",
    "running_jobs",
    "running_plans",
    "webhook_deliveries",
    "webhook_endpoints",
)
_NAMED = ("calibrations", "clusters", "models", "routing")
"""Names are unique within a tenant from now on."""
_KEYED = ("snapshots", "idempotency_keys")
"""Ids follow from content or from what a client sends: they are unique within a tenant from now on."""


def upgrade() -> None:
    """Apply the change; SQLite copies the tables whose keys change, with references not enforced meanwhile."""
    _create_tables()
    for table in _OWNED:
        op.add_column(table, _tenant())
        _forget_default(table)
    for table in _NAMED:
        with op.batch_alter_table(table) as batch:
            batch.add_column(_tenant())
            batch.drop_constraint(f"uq_{table}_name", type_="unique")
            batch.create_unique_constraint(f"uq_{table}_tenant_id", ["tenant_id", "name"])
        _forget_default(table)
    with op.batch_alter_table("replans") as batch:
        batch.add_column(_tenant())
        batch.drop_constraint("uq_replans_idempotency_key", type_="unique")
        batch.create_unique_constraint("uq_replans_tenant_id", ["tenant_id", "idempotency_key"])
    _forget_default("replans")
    op.drop_index("ix_plans_created_at_id", "plans")
    with op.batch_alter_table("plans") as batch:
        batch.add_column(_tenant())
        batch.drop_constraint("fk_plans_snapshot_id_snapshots", type_="foreignkey")
    _forget_default("plans")
    op.create_index("ix_plans_tenant_id_created_at", "plans", ["tenant_id", "created_at", "id"])
    for table in _KEYED:
        with op.batch_alter_table(table) as batch:
            batch.add_column(_tenant())
            batch.drop_constraint(f"pk_{table}", type_="primary")
            batch.create_primary_key(f"pk_{table}", ["tenant_id", "id"])
        _forget_default(table)
    with op.batch_alter_table("plans") as batch:
        batch.create_foreign_key(
            "fk_plans_tenant_id_snapshots", "snapshots", ["tenant_id", "snapshot_id"], ["tenant_id", "id"]
        )


def downgrade() -> None:
    """Take the change back; refused where another tenant than ``default`` has anything, for it would be lost."""
    for table in (*_OWNED, *_NAMED, *_KEYED, "replans", "plans"):
        rows = sa.table(table, sa.column("tenant_id"))
        others = sa.select(sa.func.count()).select_from(rows).where(rows.c.tenant_id != _DEFAULT)
        if count := op.get_bind().execute(others).scalar_one():
            raise RuntimeError(f"{count} rows of {table} belong to tenants, whom the older schema does not know")
    with op.batch_alter_table("plans") as batch:
        batch.drop_constraint("fk_plans_tenant_id_snapshots", type_="foreignkey")
    for table in _KEYED:
        with op.batch_alter_table(table) as batch:
            batch.drop_constraint(f"pk_{table}", type_="primary")
            batch.create_primary_key(f"pk_{table}", ["id"])
            batch.drop_column("tenant_id")
    op.drop_index("ix_plans_tenant_id_created_at", "plans")
    with op.batch_alter_table("plans") as batch:
        batch.create_foreign_key("fk_plans_snapshot_id_snapshots", "snapshots", ["snapshot_id"], ["id"])
        batch.drop_column("tenant_id")
    op.create_index("ix_plans_created_at_id", "plans", ["created_at", "id"])
    with op.batch_alter_table("replans") as batch:
        batch.drop_constraint("uq_replans_tenant_id", type_="unique")
        batch.create_unique_constraint("uq_replans_idempotency_key", ["idempotency_key"])
        batch.drop_column("tenant_id")
    for table in _NAMED:
        with op.batch_alter_table(table) as batch:
            batch.drop_constraint(f"uq_{table}_tenant_id", type_="unique")
            batch.create_unique_constraint(f"uq_{table}_name", ["name"])
            batch.drop_column("tenant_id")
    for table in _OWNED:
        op.drop_column(table, "tenant_id")
    for table in ("audit_log", "sign_ins", "api_keys", "tenants"):
        op.drop_table(table)


def _tenant() -> sa.Column[str]:
    return sa.Column("tenant_id", sa.String(length=32), nullable=False, server_default=_DEFAULT)


def _forget_default(table: str) -> None:
    """No row is the default tenant's by chance; SQLite cannot forget it without another copy of the table."""
    if op.get_bind().dialect.name != "sqlite":
        op.alter_column(table, "tenant_id", server_default=None)


def _create_tables() -> None:
    tenants = op.create_table(
        "tenants",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("max_queued_plans", sa.Integer(), nullable=True),
        sa.Column("max_solver_s_per_day", sa.Double(), nullable=True),
        sa.Column("max_stored_samples", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tenants")),
    )
    op.bulk_insert(tenants, [{"id": _DEFAULT, "created_at": datetime.now(UTC)}])
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("requests_per_minute", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
    )
    op.create_table(
        "sign_ins",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("key_id", sa.String(length=32), nullable=True),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_keys.id"], name=op.f("fk_sign_ins_key_id_api_keys"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_sign_ins")),
    )
    op.create_index("ix_sign_ins_expires_at", "sign_ins", ["expires_at"])
    op.create_table(
        "audit_log",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("key_id", sa.String(length=32), nullable=True),
        sa.Column("action", sa.String(length=100), nullable=False),
        sa.Column("subject", sa.String(length=2000), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("tenant_id", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
    )
    op.create_index("ix_audit_log_tenant_id_id", "audit_log", ["tenant_id", "id"])
