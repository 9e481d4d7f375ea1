"""Files that engineers have, looked at and stored: as a cluster, its measurements and the names of its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from sqlalchemy.orm import Session

from app.documents.cluster import ClusterDocument
from app.documents.reading import FieldProblem, InvalidDocument, problems_of
from app.imports.dry_run import Report, answered_aliases, dry_run
from app.imports.obstacles import blocked_by, origins_of
from app.imports.sources import SentFile
from app.serialization import canonical, jsonable
from app.services.clusters import aliases, clusters, measurements, snapshots
from app.services.clusters.aliases import StoredAlias
from app.services.clusters.clusters import StoredCluster
from app.services.errors import ImportChanged, NameTaken, NotFound
from app.services.idempotency import fingerprint
from app.services.preconditions import ExpectedVersions
from cluster_models.cluster.measurements import Sample
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidInput
from readers.frame.facts import NameKind
from readers.proposal.values import Answers, Proposal

State = tuple[str, int, tuple[StoredAlias, ...]]
"""Id and version of a cluster, and its aliases."""

_NAMES_NO_NODE = frozenset({NameKind.POD})
"""Pods come and go; what a name of theirs meant today is wrong tomorrow."""


class ImportRefused(InvalidDocument):
    """Nothing of an upload can be stored; each problem says where in the files it stands, if it is known."""


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """Files for a cluster, stored or new, and what the sender decides."""

    files: tuple[SentFile, ...]
    cluster: str
    answers: Answers = field(default_factory=Answers)


@dataclass(frozen=True, slots=True)
class Known:
    """Stored facts about a cluster; all empty for a new one."""

    stored: StoredCluster | None = None
    samples: tuple[Sample, ...] = ()
    aliases: tuple[StoredAlias, ...] = ()

    @property
    def state(self) -> State | None:
        """Mark by which a change shows: nodes and samples do not change without the version."""
        return None if self.stored is None else (self.stored.id, self.stored.version, self.aliases)


@dataclass(frozen=True, slots=True)
class Looked:
    """A report, and what was stored when it was made."""

    known: Known
    report: Report


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """Outcome of storing: ``added`` measurements are new."""

    report: Report
    cluster: StoredCluster
    added: int


def asked_by(request: ImportRequest) -> Iterator[str]:
    """Short texts that tell one request from another."""
    yield canonical((request.cluster, request.answers))
    for file in request.files:
        yield canonical((file.name, file.host, fingerprint(file.data)))


def known_of(session: Session, *, cluster: str) -> Known:
    """Stored facts about the cluster of that name or id."""
    try:
        stored = clusters.get_cluster(session, reference=cluster)
    except NotFound:
        return Known()
    samples = measurements.read_all(session, cluster_id=stored.id)
    return Known(stored, samples, aliases.list_aliases(session, reference=stored.id))


def look_at(known: Known, request: ImportRequest) -> Looked:
    """The report of a request; needs no database, as files may take seconds to read."""
    stored = known.stored
    report = dry_run(
        request.files,
        name=request.cluster if stored is None else stored.name,
        known=None if stored is None else stored.cluster,
        known_samples=known.samples,
        aliases=aliases.table_of(known.aliases),
        answers=request.answers,
    )
    return Looked(known, report if stored is not None else _with_name_checked(report, request.cluster))


def _with_name_checked(report: Report, name: str) -> Report:
    """The report with what is wrong with the name of a new cluster."""
    try:
        clusters.check_new_name(name)
    except InvalidInput as error:
        return replace(report, cluster=None, problems=(*problems_of(error), *report.problems))
    return report


def store(
    session: Session,
    request: ImportRequest,
    *,
    digest: str | None,
    looked: Looked | None = None,
    expected_version: ExpectedVersions = None,
) -> ImportOutcome:
    """Store what the files say, all of it or nothing; again, it changes nothing.

    ``digest`` is that of the report that the sender saw, ``None`` stores whatever comes.  ``looked`` saves reading
    the files again if the cluster is still as it was then.  Raises ``ImportChanged`` where the digest is another,
    ``ImportRefused`` where something is missing or wrong, and ``VersionMismatch``.
    """
    now = _locked(session, request.cluster, expected_version)
    if looked is None or looked.known.state != now:
        looked = look_at(known_of(session, cluster=request.cluster), request)
    known, report = looked.known, looked.report
    if digest is not None and digest != report.digest:
        raise ImportChanged
    document = report.cluster
    if (problems := blocked_by(report)) or document is None:
        raise ImportRefused([_placed(problem, report.proposal) for problem in problems])
    if known.stored is None:
        stored, added = _create(session, report, document)
    else:
        stored, added = _change(session, report, document, known.stored)
    learned = _learned(report.proposal, request.answers)
    aliases.learn(session, cluster_id=stored.id, aliases=learned, cluster=stored.cluster)
    return ImportOutcome(report, stored, added)


def _locked(session: Session, cluster: str, expected_version: ExpectedVersions) -> State | None:
    """The state of the cluster, held against other changes until the transaction ends; ``None`` of a new one."""
    try:
        row = clusters.lock(session, reference=cluster, expected_version=expected_version)
    except NotFound:
        if expected_version is not None:
            raise
        return None
    return row.id, row.version, aliases.list_aliases(session, reference=row.id)


def _create(session: Session, report: Report, document: ClusterDocument) -> tuple[StoredCluster, int]:
    whole = document.model_copy(update={"samples": report.measurements.samples})
    try:
        stored = clusters.create_cluster(session, document=whole)
    except NameTaken as error:  # somebody else was faster
        raise ImportChanged from error
    return stored, stored.measurement_count


def _change(
    session: Session, report: Report, document: ClusterDocument, before: StoredCluster
) -> tuple[StoredCluster, int]:
    if not _same(document.to_cluster(), before.cluster):
        whole = document.model_copy(update={"samples": report.measurements.samples})
        stored = clusters.replace_cluster(session, reference=before.id, document=whole)
        return stored, stored.measurement_count - before.measurement_count
    if not report.proposal.samples:
        return before, 0
    added = snapshots.add_measurements(session, reference=before.id, document=report.measurements).added
    return clusters.get_cluster(session, reference=before.id), added


def _same(one: Cluster, other: Cluster) -> bool:
    """Whether two clusters have the same content; ``==`` leaves out labels."""
    equal: bool = jsonable(one) == jsonable(other)
    return equal


def _placed(problem: FieldProblem, proposal: Proposal) -> FieldProblem:
    origins = origins_of(problem.field, proposal)
    if not origins:
        return problem
    places = ", ".join(f"{origin.file}:{origin.first_line}" for origin in origins[:3])
    more = f" and {len(origins) - 3} more places" if len(origins) > 3 else ""
    return FieldProblem(problem.field, problem.value, f"{problem.problem}, said at {places}{more}", problem.remedy)


def _learned(proposal: Proposal, answers: Answers) -> Iterator[StoredAlias]:
    """Names that files or answers give to nodes."""
    for name, node in answered_aliases(answers).items():
        yield StoredAlias(name, NameKind.HOST.value, node)
    for proposed in proposal.nodes:
        for alias in proposed.aliases:
            if alias.kind not in _NAMES_NO_NODE:
                yield StoredAlias(alias.text, alias.kind.value, proposed.name)
