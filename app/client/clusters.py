"""Operations of the API; made by ``app.api.client_source``, changed only there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.client.connection import Connection, part

if TYPE_CHECKING:
    from app.answers.clusters import (
        ClusterAnswer,
        ClusterSummary,
        MeasurementsAdded,
        SnapshotAnswer,
        SnapshotSummary,
    )
    from app.answers.measuring import MeasuringAnswer
    from app.answers.topology import TopologyAnswer
    from app.api.v1.aliases import AliasesAnswer, AliasesDocument
    from app.api.v1.answers import PageAnswer
    from app.api.v1.clusters import NodePatch
    from app.api.v1.imports import FormatAnswer, ImportReply
    from app.api.v1.measuring import MeasuringRequest
    from app.documents.cluster import ClusterDocument
    from app.documents.measurements import MeasurementDocument, MeasurementsDocument
    from app.documents.nodes import NodeDocument
    from cluster_models.cluster.measurements import SampleStatus


class ClustersOperations(Connection):
    """Operations of the service."""

    def list_aliases(self, cluster: str) -> AliasesAnswer:
        """Host names."""
        told: AliasesAnswer = self._ask("GET", f"/api/v1/clusters/{part(cluster)}/aliases", "AliasesAnswer")
        return told

    def replace_aliases(
        self, cluster: str, body: AliasesDocument | Mapping[str, Any], *, if_match: str | None = None
    ) -> AliasesAnswer:
        """Store these names in place of all; they are not part of the cluster, whose version stays."""
        told: AliasesAnswer = self._ask(
            "PUT",
            f"/api/v1/clusters/{part(cluster)}/aliases",
            "AliasesAnswer",
            headers={"If-Match": if_match},
            body=body,
        )
        return told

    def list_clusters(self, *, limit: int | None = None, cursor: str | None = None) -> PageAnswer[ClusterSummary]:
        """Every stored cluster, by name."""
        told: PageAnswer[ClusterSummary] = self._ask(
            "GET", "/api/v1/clusters", "PageAnswer[ClusterSummary]", query={"limit": limit, "cursor": cursor}
        )
        return told

    def create_cluster(
        self, body: ClusterDocument | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> ClusterAnswer:
        """Store a new cluster with its measurements; all of it or nothing."""
        told: ClusterAnswer = self._ask(
            "POST", "/api/v1/clusters", "ClusterAnswer", headers={"Idempotency-Key": idempotency_key}, body=body
        )
        return told

    def get_cluster(self, cluster: str) -> ClusterAnswer:
        """A cluster at its newest version; the ETag names that version."""
        told: ClusterAnswer = self._ask("GET", f"/api/v1/clusters/{part(cluster)}", "ClusterAnswer")
        return told

    def replace_cluster(
        self, cluster: str, body: ClusterDocument | Mapping[str, Any], *, if_match: str | None = None
    ) -> ClusterAnswer:
        """Store new nodes and GPU kinds."""
        told: ClusterAnswer = self._ask(
            "PUT", f"/api/v1/clusters/{part(cluster)}", "ClusterAnswer", headers={"If-Match": if_match}, body=body
        )
        return told

    def delete_cluster(self, cluster: str, *, if_match: str | None = None) -> None:
        """Forget a cluster and its measurements; snapshots and plans stay."""
        self._ask("DELETE", f"/api/v1/clusters/{part(cluster)}", "None", headers={"If-Match": if_match})

    def get_topology(self, cluster: str) -> TopologyAnswer:
        """How GPUs, nodes, scale-up domains and switches are joined, with nominal bandwidth."""
        told: TopologyAnswer = self._ask("GET", f"/api/v1/clusters/{part(cluster)}/topology", "TopologyAnswer")
        return told

    def list_nodes(self, cluster: str) -> list[NodeDocument]:
        """The nodes of a cluster, in its order."""
        told: list[NodeDocument] = self._ask("GET", f"/api/v1/clusters/{part(cluster)}/nodes", "list[NodeDocument]")
        return told

    def get_node(self, cluster: str, node: str) -> NodeDocument:
        """One node."""
        told: NodeDocument = self._ask(
            "GET", f"/api/v1/clusters/{part(cluster)}/nodes/{part(node)}", "NodeDocument"
        )
        return told

    def change_node(
        self, cluster: str, node: str, body: NodePatch | Mapping[str, Any], *, if_match: str | None = None
    ) -> NodeDocument:
        """Change a node's state, slowdown, labels or GPUs in use; makes a new version of the cluster."""
        told: NodeDocument = self._ask(
            "PATCH",
            f"/api/v1/clusters/{part(cluster)}/nodes/{part(node)}",
            "NodeDocument",
            headers={"If-Match": if_match},
            body=body,
        )
        return told

    def import_files(
        self,
        body: Mapping[str, Any],
        *,
        documents: bool | None = None,
        idempotency_key: str | None = None,
        if_match: str | None = None,
    ) -> ImportReply:
        """Report."""
        told: ImportReply = self._ask(
            "POST",
            "/api/v1/imports",
            "ImportReply",
            query={"documents": documents},
            headers={"Idempotency-Key": idempotency_key, "If-Match": if_match},
            body=body,
        )
        return told

    def list_import_formats(self) -> list[FormatAnswer]:
        """The kinds of file that an import recognises."""
        told: list[FormatAnswer] = self._ask("GET", "/api/v1/import-formats", "list[FormatAnswer]")
        return told

    def add_measurements(
        self,
        cluster: str,
        body: MeasurementsDocument | Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        if_match: str | None = None,
    ) -> MeasurementsAdded:
        """Add measurements, one by one or as tables; all of them or none."""
        told: MeasurementsAdded = self._ask(
            "POST",
            f"/api/v1/clusters/{part(cluster)}/measurements",
            "MeasurementsAdded",
            headers={"Idempotency-Key": idempotency_key, "If-Match": if_match},
            body=body,
        )
        return told

    def list_measurements(
        self,
        cluster: str,
        *,
        node: str | None = None,
        status: SampleStatus | None = None,
        since_version: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> PageAnswer[MeasurementDocument]:
        """The samples of a cluster in the order they came."""
        told: PageAnswer[MeasurementDocument] = self._ask(
            "GET",
            f"/api/v1/clusters/{part(cluster)}/measurements",
            "PageAnswer[MeasurementDocument]",
            query={
                "node": node,
                "status": status,
                "since_version": since_version,
                "limit": limit,
                "cursor": cursor,
            },
        )
        return told

    def list_snapshots(
        self, cluster: str, *, limit: int | None = None, cursor: str | None = None
    ) -> PageAnswer[SnapshotSummary]:
        """Snapshots of a cluster, newest first; every plan makes one, unless nothing changed."""
        told: PageAnswer[SnapshotSummary] = self._ask(
            "GET",
            f"/api/v1/clusters/{part(cluster)}/snapshots",
            "PageAnswer[SnapshotSummary]",
            query={"limit": limit, "cursor": cursor},
        )
        return told

    def take_snapshot(self, cluster: str) -> SnapshotSummary:
        """Freeze a cluster as it is now; an equal snapshot is the same one."""
        told: SnapshotSummary = self._ask("POST", f"/api/v1/clusters/{part(cluster)}/snapshots", "SnapshotSummary")
        return told

    def get_snapshot(self, snapshot: str) -> SnapshotAnswer:
        """A snapshot with all its measurements, and what looks wrong about them."""
        told: SnapshotAnswer = self._ask("GET", f"/api/v1/snapshots/{part(snapshot)}", "SnapshotAnswer")
        return told

    def plan_measurements(self, cluster: str, body: MeasuringRequest | Mapping[str, Any]) -> MeasuringAnswer:
        """The pairs of nodes whose measurement would make plans surer."""
        told: MeasuringAnswer = self._ask(
            "POST", f"/api/v1/clusters/{part(cluster)}/measuring-plan", "MeasuringAnswer", body=body
        )
        return told
