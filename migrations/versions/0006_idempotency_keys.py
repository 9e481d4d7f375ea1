"""Idempotency keys of all that is made, not of plans alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the change; keys of plans are kept."""
    rows = [
        {"id": hashlib.sha256(f"plan {key}".encode()).hexdigest()[:32], "resource": plan_id} | kept
        for key, plan_id, kept in _keys_of_plans()
    ]
    op.drop_table("idempotency_keys")
    table = op.create_table(
        "idempotency_keys",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("resource", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_idempotency_keys")),
    )
    op.bulk_insert(table, rows)


def downgrade() -> None:
    """Take the change back; the keys are forgotten, for nothing says any more what they were."""
    op.drop_table("idempotency_keys")
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("plan_id", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["plan_id"], ["plans.id"], name=op.f("fk_idempotency_keys_plan_id_plans"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_idempotency_keys")),
    )


def _keys_of_plans() -> Iterator[tuple[str, str, dict[str, object]]]:
    former = sa.table(
        "idempotency_keys",
        sa.column("key", sa.String()),
        sa.column("plan_id", sa.String()),
        sa.column("request_hash", sa.String()),
        sa.column("created_at", sa.DateTime(timezone=True)),
    )
    for key, plan_id, request_hash, created_at in op.get_bind().execute(sa.select(former)).all():
        yield key, plan_id, {"request_hash": request_hash, "created_at": created_at}
