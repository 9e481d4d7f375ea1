"""``meshwright cluster``: files here, and clusters of a service, elsewhere or in this process."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from app.answers.clusters import ClusterSummary
from app.cli.clusters.cluster_view import cluster_view
from app.cli.connection import service
from app.cli.files import is_path, naming, read_cluster_document, read_snapshot
from app.cli.terminal import console, print_text
from app.client import Refusal, every
from app.presentation.figures import count, plural


def run_show(*, file_or_name: str, database_url: str | None) -> None:
    """Show a cluster file, or a stored cluster where there is no such file."""
    if is_path(file_or_name):
        snapshot = read_snapshot(file_or_name)
    else:
        from app.cli.clusters.stored import stored_snapshot  # noqa: PLC0415 - a file needs no database

        snapshot = stored_snapshot(file_or_name, database_url=database_url)
    console().print(cluster_view(snapshot))


def run_import(*, file: str, database_url: str | None) -> None:
    """Store a cluster file, or bring the stored cluster of that name up to date."""
    document = read_cluster_document(file)
    with naming(file):
        document.to_samples(document.to_cluster())
    with service(database_url) as asked:
        try:
            record, done = asked.create_cluster(document), "stored"
        except Refusal as refusal:
            if refusal.kind != "conflict":
                raise
            record, done = asked.replace_cluster(document.name, document), "brought up to date"
    console().print(
        f"{record.name}: {done} as version {record.version}, {plural(record.node_count, 'node')}, "
        f"{plural(record.gpu_count, 'GPU')}, {plural(record.measurement_count, 'measurement')}"
    )


def run_list_clusters(*, as_json: bool, database_url: str | None) -> None:
    """Print the clusters by name."""
    with service(database_url) as asked:
        found = list(every(asked.list_clusters))
    if as_json:
        print_text(json.dumps([each.model_dump(mode="json") for each in found], indent=2))
    elif not found:
        console().print("No clusters; store one: meshwright cluster import FILE")
    else:
        console().print(_clusters(found))


def _clusters(found: Sequence[ClusterSummary]) -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("cluster", "version", "nodes", "GPUs", "measurements"):
        table.add_column(name, justify="left" if name == "cluster" else "right")
    for each in found:
        figures = (each.version, each.node_count, each.gpu_count, each.measurement_count)
        table.add_row(Text(each.name), *map(count, figures))
    return table
