"""Clusters in the service's database: store one, read one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.access.tenants import get_tenant
from app.cli.endings import Failed
from app.cli.environment import read_settings
from app.cli.server import refuse_server
from app.cli.terminal import console
from app.db.engine import SessionFactory, make_engine, make_session_factory, transaction
from app.db.migrate import prepare, upgrade
from app.documents.calibration import CalibrationDocument
from app.imports.sources import SentFile
from app.presentation.figures import plural
from app.services.calibration.calibrations import create_calibration
from app.services.clusters.aliases import table_of
from app.services.clusters.clusters import check_new_name, get_cluster
from app.services.clusters.imports import ImportRequest, known_of, store
from app.services.clusters.snapshots import current_snapshot
from app.services.errors import NotFound
from app.services.planning.plans import get_finished_plan
from app.settings import Settings
from cluster_models.cluster.measurements import Sample
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidInput
from cluster_models.training.plan import Plan
from readers.proposal.aliases import AliasTable
from readers.proposal.values import Answers


def run_migrate(*, database_url: str | None) -> None:
    """Bring the schema up to date and say where."""
    with _engine(database_url) as (engine, settings):
        if settings.uses_sqlite:
            prepare(engine, settings)
        else:
            upgrade(engine)
    console().print(f"{engine.url.render_as_string(hide_password=True)}: at the newest schema")


def store_calibration(document: CalibrationDocument, *, database_url: str | None) -> None:
    """Store a calibration under its name, which must be free."""
    with database(database_url) as session:
        record = create_calibration(session, document=document)
    console().print(f"{record.name}: stored")


def stored_snapshot(name: str, *, database_url: str | None) -> ClusterSnapshot:
    """The stored cluster of that name as it is now; nothing is written."""
    with database(database_url) as session:
        try:
            stored = get_cluster(session, reference=name)
        except NotFound as error:
            problem, remedy = "is neither a file nor a stored cluster", "store one: meshwright cluster import FILE"
            raise InvalidInput("cluster", name, problem, remedy) from error
        return current_snapshot(session, stored=stored)


def stored_plan(plan_id: str, *, database_url: str | None) -> Plan:
    """The plan of that number, once its search has found one."""
    with database(database_url) as session:
        try:
            return get_finished_plan(session, plan_id=plan_id)
        except NotFound as error:
            problem, remedy = "is neither a file nor a stored plan", "write one: meshwright plan ... --output FILE"
            raise InvalidInput("--plan", plan_id, problem, remedy) from error


def stored_base(
    name: str, *, must_exist: bool, database_url: str | None
) -> tuple[str, Cluster | None, tuple[Sample, ...], AliasTable]:
    """Name, cluster, measurements and names of nodes of a stored cluster; nothing of one that is not there."""
    with database(database_url) as session:
        known = known_of(session, cluster=name)
    if known.stored is None:
        if must_exist:
            problem, remedy = "is neither a file nor a stored cluster", "to make a new one: --cluster NAME --store"
            raise InvalidInput("--into", name, problem, remedy)
        check_new_name(name)
        return name, None, (), AliasTable()
    return known.stored.name, known.stored.cluster, known.samples, table_of(known.aliases)


def store_import(
    files: Sequence[SentFile], cluster: str, answers: Answers, digest: str, *, database_url: str | None
) -> str:
    """Store what the report of that digest says; returns in a sentence what was stored."""
    with database(database_url) as session:
        done = store(session, ImportRequest(tuple(files), cluster, answers), digest=digest)
        version = f"version {done.cluster.version}"
        return f"{done.cluster.name} is stored as {version}, with {plural(done.added, 'new measurement')}."


@contextmanager
def database(url: str | None, *, tenant: str | None = None) -> Iterator[Session]:
    """One transaction on the database that ``url`` or the settings name, at the newest schema."""
    with databases(url, tenant=tenant) as sessions, transaction(sessions) as session:
        yield session


@contextmanager
def databases(url: str | None, *, tenant: str | None = None) -> Iterator[SessionFactory]:
    """Factory of transactions on that database for a tenant (none: that of the settings); raises ``NotFound``."""
    with _engine(url) as (engine, settings):
        prepare(engine, settings)
        sessions = make_session_factory(engine, tenant=tenant or settings.tenant)
        with sessions() as session:
            get_tenant(session, name=tenant or settings.tenant)
        yield sessions


@contextmanager
def _engine(url: str | None) -> Iterator[tuple[Engine, Settings]]:
    """An engine on the database that ``url`` or the settings name, and those settings."""
    refuse_server("this command")
    settings = read_settings() if url is None else read_settings(database_url=url)
    try:
        engine = make_engine(settings.resolved_database_url)
    except (SQLAlchemyError, ImportError) as error:
        raise InvalidInput("--database-url", url, f"names no database that can be used: {error}") from error
    try:
        yield engine, settings
    except SQLAlchemyError as error:
        raise Failed(f"the database cannot be used: {str(error).splitlines()[0]}") from error
    finally:
        engine.dispose()
