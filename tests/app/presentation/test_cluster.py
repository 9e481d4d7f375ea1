"""One report of a cluster for page, terminal and answer."""

from __future__ import annotations

import io
from html import unescape
from pathlib import Path

from rich.console import Console

from app.cli.clusters.cluster_view import cluster_view
from app.documents.remarks import RemarkDocument
from app.presentation.cluster import cluster_figures, cluster_report, node_row
from app.settings import Role
from cluster_models.cluster.snapshot import ClusterSnapshot
from tests.app.api_client import API, cluster_body, running
from tests.plans import small_cluster, small_samples


def test_page_terminal_and_answer_report_the_same_of_a_cluster(tmp_path: Path) -> None:
    """Facts, nodes, classes of links, what was not measured, and doubts."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        name = client.post(f"{API}/clusters", json=cluster_body()).json()["name"]
        snapshot = client.post(f"{API}/clusters/{name}/snapshots").json()["id"]
        answer = client.get(f"{API}/snapshots/{snapshot}").json()
        page = unescape(client.get(f"/clusters/{name}").text)
    figures = cluster_figures(ClusterSnapshot(snapshot, small_cluster(), small_samples()))
    report, shown = cluster_report(figures), io.StringIO()
    Console(file=shown, width=900).print(cluster_view(figures.snapshot))
    words = [
        *(value for _, value in report.facts),
        *(cell for row in report.classes for cell in row),
        *(row.gpus for row in map(node_row, small_cluster().nodes)),
        *report.suspicions,
        report.load,
        report.unmeasured,
        report.slow_sentence,
    ]
    assert [text for text in words if text not in page] == []
    assert [text for text in words if text not in shown.getvalue()] == []
    assert [each["text"] for each in answer["suspicions"]] == [
        RemarkDocument.from_value(doubt).text for doubt in figures.doubts
    ]
    assert [each["link_class"] for each in answer["link_classes"]] == [row[0] for row in report.classes]
