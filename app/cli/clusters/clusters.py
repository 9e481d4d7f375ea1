"""``meshwright cluster show``."""

from __future__ import annotations

from app.cli.clusters.cluster_view import cluster_view
from app.cli.files import is_path, read_snapshot
from app.cli.terminal import console


def run_show(*, file_or_name: str, database_url: str | None) -> None:
    """Show a cluster file, or a stored cluster where there is no such file."""
    if is_path(file_or_name):
        snapshot = read_snapshot(file_or_name)
    else:
        from app.cli.clusters.stored import stored_snapshot  # noqa: PLC0415 - a file needs no database

        snapshot = stored_snapshot(file_or_name, database_url=database_url)
    console().print(cluster_view(snapshot))
