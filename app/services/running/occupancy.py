"""GPUs of a cluster with the jobs that hold them, and the nodes that are kept as spares.

The key of the table makes sure that no GPU is given twice.  GPUs change hands in two steps: a *claim* (of a replan
or a plan that was approved) takes them for the new owner and remembers the old one; it is *settled* once the plan
is applied, or *given back*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlalchemy import delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.db.running_tables import OccupiedGpuRow, RunningJobRow, RunningPlanRow, SpareNodeRow
from app.db.status import RunningPlanStatus
from app.documents.reading import FieldProblem, InvalidDocument, close_name
from app.services.clusters import clusters
from app.services.errors import GpusTaken
from app.services.health import health_events
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster
from cluster_models.health.degraded import degraded

Gpus = frozenset[tuple[str, int]]
"""GPUs as (node, number)."""


@dataclass(frozen=True, slots=True)
class HeldGpu:
    """A GPU and the job that holds it; ``claimed`` until the plan it changes hands for is applied."""

    node: str
    gpu: int
    job_id: str
    job_name: str
    claimed: bool
    releasing: bool


@dataclass(frozen=True, slots=True)
class SpareNode:
    """A node kept as a spare; ``free`` where it works, should not stay out, and no job holds one of its GPUs."""

    node: str
    free: bool


def list_held(session: Session, *, reference: str) -> tuple[HeldGpu, ...]:
    """Every GPU of a cluster that a job holds, by node and number; raises ``NotFound``."""
    cluster_id = clusters.find_cluster(session, reference=reference).id
    query = (
        select(OccupiedGpuRow, RunningJobRow.name)
        .join(RunningJobRow, RunningJobRow.id == OccupiedGpuRow.job_id)
        .where(OccupiedGpuRow.cluster_id == cluster_id)
        .order_by(OccupiedGpuRow.node, OccupiedGpuRow.gpu)
    )
    return tuple(
        HeldGpu(row.node, row.gpu, row.job_id, name, row.claim_id is not None, row.releasing)
        for row, name in session.execute(query)
    )


def held_gpus(session: Session, *, cluster_id: str, but_claim: str | None = None) -> dict[tuple[str, int], str]:
    """The job that holds each GPU; with ``but_claim``, as if that claim had been given back."""
    columns = (
        OccupiedGpuRow.node,
        OccupiedGpuRow.gpu,
        OccupiedGpuRow.job_id,
        OccupiedGpuRow.claim_id,
        OccupiedGpuRow.previous_job_id,
    )
    held = {}
    for node, gpu, job_id, claim_id, previous in session.execute(
        select(*columns).where(OccupiedGpuRow.cluster_id == cluster_id)
    ):
        owner = previous if but_claim is not None and claim_id == but_claim else job_id
        if owner is not None:
            held[node, gpu] = owner
    return held


def staying_gpus(session: Session, *, cluster_id: str) -> dict[str, Gpus]:
    """GPUs that each job holds and is not about to leave."""
    query = select(OccupiedGpuRow.job_id, OccupiedGpuRow.node, OccupiedGpuRow.gpu).where(
        OccupiedGpuRow.cluster_id == cluster_id, OccupiedGpuRow.releasing.is_(False)
    )
    by_job: dict[str, set[tuple[str, int]]] = {}
    for job_id, node, gpu in session.execute(query):
        by_job.setdefault(job_id, set()).add((node, gpu))
    return {job_id: frozenset(gpus) for job_id, gpus in by_job.items()}


def with_in_use(
    cluster: Cluster, held: Iterable[tuple[str, int]], *, free: Iterable[tuple[str, int]] = ()
) -> Cluster:
    """The cluster with the GPUs ``held`` in use, and those of ``free`` not."""
    taken: dict[str, set[int]] = {}
    given: dict[str, set[int]] = {}
    for name, gpu in held:
        taken.setdefault(name, set()).add(gpu)
    for name, gpu in free:
        given.setdefault(name, set()).add(gpu)
    if not taken and not given:
        return cluster
    nodes = []
    for node in cluster.nodes:
        own = (set(node.gpus_in_use) - given.get(node.name, set())) | taken.get(node.name, set())
        in_use = tuple(sorted(gpu for gpu in own if gpu < node.gpu_count))
        nodes.append(node if in_use == node.gpus_in_use else replace(node, gpus_in_use=in_use))
    return replace(cluster, nodes=tuple(nodes))


def free_nodes(cluster: Cluster, held: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """The usable nodes none of whose GPUs anybody uses, in the cluster's order."""
    taken = {node for node, _gpu in held}
    return tuple(
        node.name for node in cluster.nodes if node.usable and not node.gpus_in_use and node.name not in taken
    )


def list_spares(session: Session, *, reference: str) -> tuple[SpareNode, ...]:
    """The nodes kept as spares, by name; raises ``NotFound``."""
    cluster_id = clusters.find_cluster(session, reference=reference).id
    taken = {node for node, _gpu in held_gpus(session, cluster_id=cluster_id)}
    now = datetime.now(UTC)
    conditions = health_events.conditions_now(session, reference=cluster_id, now=now)
    out = {each.node for each in health_events.quarantine_now(session, reference=cluster_id, now=now)}
    cluster = clusters.get_cluster(session, reference=cluster_id).cluster
    usable = {
        node.name for node in degraded(ClusterSnapshot("", cluster, ()), conditions).cluster.nodes if node.usable
    }
    free = usable - taken - out
    return tuple(SpareNode(node, node in free) for node in spare_names(session, cluster_id=cluster_id))


def spare_names(session: Session, *, cluster_id: str) -> tuple[str, ...]:
    """The names of the nodes kept as spares, free or not."""
    query = select(SpareNodeRow.node).where(SpareNodeRow.cluster_id == cluster_id).order_by(SpareNodeRow.node)
    return tuple(session.scalars(query))


def replace_spares(session: Session, *, reference: str, nodes: Sequence[str]) -> tuple[SpareNode, ...]:
    """Keep these nodes as spares in place of all; raises ``InvalidInput`` of those that the cluster has not."""
    row = clusters.lock(session, reference=reference, expected_version=None)
    known = [node.name for node in clusters.get_cluster(session, reference=row.id).cluster.nodes]
    unknown = [
        FieldProblem(f"nodes[{index}]", name, "is not a node of the cluster", close_name(name, known))
        for index, name in enumerate(nodes)
        if name not in known
    ]
    if unknown:
        raise InvalidDocument(unknown)
    session.execute(delete(SpareNodeRow).where(SpareNodeRow.cluster_id == row.id))
    add_spares(session, cluster_id=row.id, nodes=nodes)
    outdate_preparations(session, cluster_id=row.id)
    return list_spares(session, reference=row.id)


def add_spares(session: Session, *, cluster_id: str, nodes: Iterable[str]) -> None:
    """Keep these nodes as spares as well."""
    fresh = sorted(set(nodes) - set(spare_names(session, cluster_id=cluster_id)))
    if fresh:
        session.execute(insert(SpareNodeRow), [{"cluster_id": cluster_id, "node": node} for node in fresh])


def outdate_preparations(session: Session, *, cluster_id: str) -> None:
    """Have the answers to the loss of a node prepared anew: what is free, or who runs, has changed."""
    jobs = select(RunningJobRow.id).where(RunningJobRow.cluster_id == cluster_id)
    session.execute(
        update(RunningPlanRow)
        .where(RunningPlanRow.job_id.in_(jobs), RunningPlanRow.status == RunningPlanStatus.APPLIED)
        .values(preparations=RunningPlanRow.preparations + 1)
        .execution_options(synchronize_session=False)
    )
    session.expire_all()


def claim(session: Session, *, cluster_id: str, claim_id: str, holdings: Mapping[str, Gpus]) -> None:
    """Take for each job the GPUs that it is to hold; those of these jobs that none is to hold are on their way out.

    The cluster's row must be locked.  Raises ``GpusTaken`` where another job holds one, or an open claim has to do
    with these jobs.
    """
    wanted = {gpu: job for job, gpus in holdings.items() for gpu in gpus}
    assert len(wanted) == sum(map(len, holdings.values())), "a GPU is meant for two jobs"
    held = {(row.node, row.gpu): row for row in _concerned(session, cluster_id, holdings, wanted)}
    changing = [
        gpu for gpu, row in held.items() if row.claim_id is not None and _concerns(row, gpu, holdings, wanted)
    ]
    if changing:
        raise GpusTaken(sorted(changing), "a plan that was approved waits to be applied: apply or cancel it first")
    foreign = [gpu for gpu in wanted if gpu in held and held[gpu].job_id not in holdings]
    if foreign:
        raise GpusTaken(sorted(foreign), "look at the cluster's GPUs again, or ask for a new decision")
    for gpu, row in held.items():
        if row.job_id not in holdings:
            continue
        owner = wanted.get(gpu)
        if owner != row.job_id:
            row.claim_id, row.previous_job_id = claim_id, row.job_id
            row.job_id, row.releasing = (row.job_id, True) if owner is None else (owner, False)
    session.flush()
    _insert(session, cluster_id, claim_id, {gpu: job for gpu, job in wanted.items() if gpu not in held})


def settle(session: Session, *, claim_id: str) -> None:
    """End a claim: its GPUs are their new owners' for good, and those on their way out are free."""
    mine = OccupiedGpuRow.claim_id == claim_id
    session.execute(delete(OccupiedGpuRow).where(mine, OccupiedGpuRow.releasing.is_(True)))
    session.execute(update(OccupiedGpuRow).where(mine).values(claim_id=None, previous_job_id=None))
    session.expire_all()


def settle_job(session: Session, *, claim_id: str, job_id: str) -> tuple[str, ...]:
    """End what a claim has to do with one job: it has left its old GPUs, and the new ones are its own for good.

    Returns the other jobs some of whose GPUs it runs on now: they hold none of their old ones any more, and what
    the claim keeps for them is theirs only once they are settled.
    """
    row = OccupiedGpuRow
    mine = row.claim_id == claim_id
    _leave(session, claim_id, job_id)
    taken = mine, row.job_id == job_id, row.previous_job_id.is_not(None), row.previous_job_id != job_id
    stopped = sorted({other for other in session.scalars(select(row.previous_job_id).where(*taken)) if other})
    session.execute(update(row).where(mine, row.job_id == job_id).values(claim_id=None, previous_job_id=None))
    for other in stopped:
        kept = row.job_id == other, row.claim_id.is_(None)
        session.execute(update(row).where(*kept).values(claim_id=claim_id, previous_job_id=None))
        _leave(session, claim_id, other)
    session.expire_all()
    return tuple(stopped)


def _leave(session: Session, claim_id: str, job_id: str) -> None:
    """A job has left the GPUs that a claim takes from it: free, or those that get them need not give them back."""
    row = OccupiedGpuRow
    mine = row.claim_id == claim_id, row.previous_job_id == job_id
    session.execute(delete(row).where(*mine, row.releasing.is_(True)))
    session.execute(update(row).where(*mine).values(previous_job_id=None))


def give_back(session: Session, *, claim_id: str) -> None:
    """Undo a claim: every GPU goes back to its holder."""
    mine = OccupiedGpuRow.claim_id == claim_id
    session.execute(delete(OccupiedGpuRow).where(mine, OccupiedGpuRow.previous_job_id.is_(None)))
    session.execute(
        update(OccupiedGpuRow)
        .where(mine)
        .values(job_id=OccupiedGpuRow.previous_job_id, previous_job_id=None, claim_id=None, releasing=False)
    )
    session.expire_all()


def hand_over(session: Session, *, old_claim: str, new_claim: str) -> None:
    """Let another claim answer for all that one took."""
    session.execute(update(OccupiedGpuRow).where(OccupiedGpuRow.claim_id == old_claim).values(claim_id=new_claim))
    session.expire_all()


def release(session: Session, *, job_id: str) -> None:
    """Free every GPU of a job; it must not be part of a claim of others."""
    session.execute(delete(OccupiedGpuRow).where(OccupiedGpuRow.job_id == job_id))
    session.expire_all()


def claims_on(session: Session, *, job_id: str) -> tuple[str, ...]:
    """The open claims that a job's GPUs are part of, as new owner or as old."""
    mine = or_(OccupiedGpuRow.job_id == job_id, OccupiedGpuRow.previous_job_id == job_id)
    query = select(OccupiedGpuRow.claim_id).where(mine, OccupiedGpuRow.claim_id.is_not(None)).distinct()
    return tuple(sorted(claim_id for claim_id in session.scalars(query) if claim_id is not None))


def _concerned(
    session: Session, cluster_id: str, holdings: Mapping[str, Gpus], wanted: Iterable[tuple[str, int]]
) -> Sequence[OccupiedGpuRow]:
    """The GPUs of these jobs, and of the nodes that they want some of."""
    row, jobs = OccupiedGpuRow, list(holdings)
    nodes = {node for node, _gpu in wanted}
    among = or_(row.job_id.in_(jobs), row.previous_job_id.in_(jobs), row.node.in_(nodes))
    return session.scalars(select(row).where(row.cluster_id == cluster_id, among)).all()


def _concerns(
    row: OccupiedGpuRow, gpu: tuple[str, int], holdings: Mapping[str, Gpus], wanted: Mapping[tuple[str, int], str]
) -> bool:
    return gpu in wanted or row.job_id in holdings or row.previous_job_id in holdings


def _insert(session: Session, cluster_id: str, claim_id: str, wanted: Mapping[tuple[str, int], str]) -> None:
    rows = [
        {
            "cluster_id": cluster_id,
            "node": node,
            "gpu": gpu,
            "job_id": job,
            "claim_id": claim_id,
            "releasing": False,
        }
        for (node, gpu), job in sorted(wanted.items())
    ]
    if not rows:
        return
    try:
        session.execute(insert(OccupiedGpuRow), rows)
    except IntegrityError as taken:
        # Whoever came first did not hold the cluster's lock; the key keeps the promise all the same.
        raise GpusTaken(sorted(wanted), "another plan was approved at the same moment; try again") from taken
