"""Names that the nodes of a cluster also go by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the change."""
    op.create_table(
        "node_aliases",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cluster_id", sa.String(length=32), nullable=False),
        sa.Column("alias", sa.String(length=253), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("node", sa.String(length=253), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster_id"],
            ["clusters.id"],
            name=op.f("fk_node_aliases_cluster_id_clusters"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node_aliases")),
        sa.UniqueConstraint("cluster_id", "alias", name=op.f("uq_node_aliases_cluster_id")),
    )


def downgrade() -> None:
    """Take the change back."""
    op.drop_table("node_aliases")
