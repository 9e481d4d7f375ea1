"""Clusters: their versions and their nodes."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from sqlalchemy import Text, delete, func, select, type_coerce
from sqlalchemy.orm import Session

from app.db.insert import insert_if_absent
from app.db.running_tables import OccupiedGpuRow, RunningJobRow, SpareNodeRow
from app.db.tables import ClusterRow, ClusterVersionRow, MeasurementRow
from app.documents.cluster import ClusterDocument
from app.serialization import jsonable, load
from app.services.clusters import measurements
from app.services.errors import Conflict, NameTaken, NotFound
from app.services.pagination import Page, decode_cursor, page_of
from app.services.preconditions import ExpectedVersions, check_version
from cluster_models.cluster.topology import Cluster, Node, NodeState
from cluster_models.errors import InvalidCluster
from cluster_models.wording import named

_MEASUREMENTS: Final = (
    select(func.count()).where(MeasurementRow.cluster_id == ClusterRow.id).correlate(ClusterRow).scalar_subquery()
)
"""How many measurements a cluster has."""

_MOST_KEPT: Final = 4
"""Clusters that a process keeps ready, some megabytes each."""
_MOST_NAMED: Final = 5
_NAMES_OF_PAGES: Final = frozenset({"import", "new"})
"""Names of pages in the place that the name of a cluster has in an address."""


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """A stored cluster at its newest version, without its nodes."""

    id: str
    name: str
    version: int
    node_count: int
    gpu_count: int
    measurement_count: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class StoredCluster(ClusterRecord):
    """A stored cluster at its newest version."""

    cluster: Cluster


@dataclass(frozen=True, slots=True)
class NodeChange:
    """Change of a node; ``None`` leaves a value alone.  Labels replace all labels."""

    state: NodeState | None = None
    compute_slowdown: float | None = None
    labels: dict[str, str] | None = None
    gpus_in_use: tuple[int, ...] | None = None


def check_new_name(name: str) -> None:
    """Raise ``InvalidCluster`` of a name that no cluster can be stored under."""
    if name in _NAMES_OF_PAGES:
        problem = f"cannot be stored: the page at /clusters/{name} is another"
        raise InvalidCluster("name", name, problem, "choose another name")


def create_cluster(session: Session, *, document: ClusterDocument) -> StoredCluster:
    """Store a new cluster with its measurements, as version 1."""
    cluster = document.to_cluster()
    check_new_name(cluster.name)
    samples = document.to_samples(cluster)
    cluster_id, now = uuid.uuid4().hex, datetime.now(UTC)
    counts = {"node_count": len(cluster.nodes), "gpu_count": cluster.gpu_count}
    dates = {"created_at": now, "updated_at": now}
    if not insert_if_absent(session, ClusterRow, id=cluster_id, name=cluster.name, version=1, **counts, **dates):
        raise NameTaken("cluster", cluster.name, "use PUT to change it, or another name")
    _store_content(session, cluster_id, 1, cluster)
    measurements.store(session, cluster_id=cluster_id, version=1, samples=samples)
    return get_cluster(session, reference=cluster_id)


def replace_cluster(
    session: Session, *, reference: str, document: ClusterDocument, expected_version: ExpectedVersions = None
) -> StoredCluster:
    """Store new content of a cluster.

    Measurements are history and stay; those of the document that are new are added.  Raises ``InvalidCluster``
    where a GPU is missing that a running job holds.
    """
    cluster = document.to_cluster()
    samples = document.to_samples(cluster)
    row = lock(session, reference=reference, expected_version=expected_version)
    if cluster.name != row.name:
        raise InvalidCluster(
            "name", cluster.name, f"the cluster is called {row.name!r}", "store it under the new name with POST"
        )
    _check_held(session, row.id, cluster)
    raise_version(row)
    row.node_count, row.gpu_count = len(cluster.nodes), cluster.gpu_count
    _store_content(session, row.id, row.version, cluster)
    fresh = measurements.unknown(session, cluster_id=row.id, samples=samples)
    measurements.store(session, cluster_id=row.id, version=row.version, samples=fresh)
    return get_cluster(session, reference=row.id)


def change_node(
    session: Session, *, reference: str, node: str, change: NodeChange, expected_version: ExpectedVersions = None
) -> tuple[StoredCluster, Node]:
    """Store a new version of a cluster with one node changed."""
    row = lock(session, reference=reference, expected_version=expected_version)
    cluster = _content(session, row)
    old = find_node(cluster, node)
    new = replace(
        old,
        state=old.state if change.state is None else change.state,
        compute_slowdown=old.compute_slowdown if change.compute_slowdown is None else change.compute_slowdown,
        labels=old.labels if change.labels is None else change.labels,
        gpus_in_use=old.gpus_in_use if change.gpus_in_use is None else change.gpus_in_use,
    )
    if new != old or new.labels != old.labels:
        raise_version(row)
        nodes = tuple(new if node is old else node for node in cluster.nodes)
        _store_content(session, row.id, row.version, replace(cluster, nodes=nodes))
    return get_cluster(session, reference=row.id), new


def find_node(cluster: Cluster, name: str) -> Node:
    """The node of that name; raises ``NotFound``."""
    for node in cluster.nodes:
        if node.name == name:
            return node
    raise NotFound("node", name)


def get_cluster(session: Session, *, reference: str) -> StoredCluster:
    """The cluster of that name or id; raises ``NotFound``."""
    return with_content(session, find_cluster(session, reference=reference))


def find_cluster(session: Session, *, reference: str) -> ClusterRecord:
    """Record of the cluster of that name or id, without its content; raises ``NotFound``."""
    for column in (ClusterRow.name, ClusterRow.id):
        if found := session.execute(select(ClusterRow, _MEASUREMENTS).where(column == reference)).one_or_none():
            return _record(*found)
    raise NotFound("cluster", reference)


def with_content(session: Session, record: ClusterRecord) -> StoredCluster:
    """The cluster at the version of a record; raises ``NotFound`` where it was deleted since."""
    return StoredCluster(**asdict(record), cluster=_content(session, record))


def list_clusters(session: Session, *, limit: int, cursor: str | None = None) -> Page[ClusterRecord]:
    """Clusters by name."""
    query = select(ClusterRow, _MEASUREMENTS).order_by(ClusterRow.name).limit(limit + 1)
    if cursor is not None:
        (after,) = decode_cursor(cursor, str)
        query = query.where(ClusterRow.name > after)
    rows = session.execute(query).all()
    return page_of(rows, limit=limit, item=lambda row: _record(*row), keys=lambda row: (row[0].name,))


def delete_cluster(session: Session, *, reference: str, expected_version: ExpectedVersions = None) -> None:
    """Forget a cluster and its measurements; snapshots and plans made from it stay.

    Raises ``NotFound``, ``VersionMismatch``, and ``Conflict`` while jobs hold its GPUs.
    """
    row = lock(session, reference=reference, expected_version=expected_version)
    jobs = session.scalars(
        select(RunningJobRow.name).where(RunningJobRow.cluster_id == row.id).order_by(RunningJobRow.name)
    ).all()
    if jobs:
        names = named(jobs, _MOST_NAMED)
        raise Conflict(f"Jobs run on the cluster {row.name!r} ({names}): end them first, then delete it.")
    session.execute(delete(ClusterRow).where(ClusterRow.id == row.id))


def lock(session: Session, *, reference: str, expected_version: ExpectedVersions) -> ClusterRow:
    """The row, held against other changes until the transaction ends."""
    row = _row(session, reference)
    session.refresh(row, with_for_update=True)
    check_version("cluster", row.name, expected=expected_version, current=row.version)
    return row


def raise_version(row: ClusterRow) -> None:
    """Count up the version of a locked row."""
    row.version += 1
    row.updated_at = datetime.now(UTC)


def _row(session: Session, reference: str) -> ClusterRow:
    for column in (ClusterRow.name, ClusterRow.id):
        if (row := session.scalar(select(ClusterRow).where(column == reference))) is not None:
            return row
    raise NotFound("cluster", reference)


def _check_held(session: Session, cluster_id: str, cluster: Cluster) -> None:
    """Raise ``InvalidCluster`` where running jobs hold what the cluster is not to have any more."""
    counts = {node.name: node.gpu_count for node in cluster.nodes}
    highest = select(OccupiedGpuRow.node, func.max(OccupiedGpuRow.gpu), func.min(RunningJobRow.name)).join(
        RunningJobRow, RunningJobRow.id == OccupiedGpuRow.job_id
    )
    query = highest.where(OccupiedGpuRow.cluster_id == cluster_id).group_by(OccupiedGpuRow.node)
    for node, gpu, job in session.execute(query):
        if gpu >= counts.get(node, 0):
            problem = f"the running job {job!r} holds its GPU {gpu}, which would be gone"
            raise InvalidCluster(
                "nodes", node, problem, "keep the node, failed if need be, or delete the job first"
            )
    spares = select(SpareNodeRow.node).where(SpareNodeRow.cluster_id == cluster_id)
    gone = [name for name in session.scalars(spares) if name not in counts]
    session.execute(delete(SpareNodeRow).where(SpareNodeRow.cluster_id == cluster_id, SpareNodeRow.node.in_(gone)))


def _content(session: Session, of: ClusterRow | ClusterRecord) -> Cluster:
    """The content at a version, made by that or, where only measurements came since, by an earlier one."""
    text = session.scalars(
        select(type_coerce(ClusterVersionRow.document, Text))
        .where(ClusterVersionRow.cluster_id == of.id, ClusterVersionRow.version <= of.version)
        .order_by(ClusterVersionRow.version.desc())
        .limit(1)
    ).one_or_none()
    if text is None:
        raise NotFound("cluster", of.name)
    return _cluster_of(text)


@lru_cache(maxsize=_MOST_KEPT)
def _cluster_of(text: str) -> Cluster:
    """The cluster that a row keeps as ``text``: read several times in the course of one report."""
    return load(Cluster, json.loads(text))


def _record(row: ClusterRow, measurement_count: int) -> ClusterRecord:
    return ClusterRecord(
        id=row.id,
        name=row.name,
        version=row.version,
        node_count=row.node_count,
        gpu_count=row.gpu_count,
        measurement_count=measurement_count,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _store_content(session: Session, cluster_id: str, version: int, cluster: Cluster) -> None:
    session.add(
        ClusterVersionRow(
            cluster_id=cluster_id, version=version, document=jsonable(cluster), created_at=datetime.now(UTC)
        )
    )
    session.flush()
