"""Diagnosis of an installation: what keeps it from planning or serving, each check with its remedy."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

import httpx2
from packaging.requirements import Requirement

from app.db.engine import make_engine
from app.db.migrate import MIGRATIONS_FOLDER, is_current, refuse_newer
from app.example_files import examples_folder
from app.settings import Settings
from app.startup import AddressRefused, CannotStart, connect, explained, listening_socket, unknown_settings
from cluster_models.errors import MeshwrightError
from cluster_models.units import GIB
from solver.compiled import step_seconds
from solver.ilp import IlpStatus, ModelBuilder, solve_integer
from solver.problem import Backend

LEAST_FREE_BYTES: Final = GIB
"""Databases and temporary files of some hundred plans."""
LEAST_MEMORY_BYTES: Final = 2 * GIB
"""A plan of some hundred nodes beside the service."""
_ANSWER_WITHIN_S: Final = 3.0


class Health(StrEnum):
    """How a part of the installation is."""

    GOOD = "good"
    DOUBTFUL = "doubtful"
    """It works, slower or less surely than it could."""
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """Outcome of one check: the part, its state, and the remedy where that is not good."""

    part: str
    health: Health
    detail: str
    remedy: str = ""


def diagnose(settings: Settings) -> Iterator[Finding]:
    """All checks, one after the other; a check that breaks is a finding of its own."""
    checks: tuple[tuple[str, Callable[[Settings], Finding]], ...] = (
        ("packages", _packages),
        ("solvers", _solvers),
        ("compiled loops", _compiled_loops),
        ("files", _files),
        ("machine", _machine),
        ("settings", _settings),
        ("data folder", _data_folder),
        ("database", _database),
        ("job engine", _job_engine),
        ("address", _address),
    )
    for part, check in checks:
        try:
            yield check(settings)
        except (MeshwrightError, OSError) as error:
            yield Finding(part, Health.BROKEN, str(error))


def _packages(_: Settings) -> Finding:
    """Whether what we depend on is installed, in versions that we work with."""
    wrong = []
    for line in requires("meshwright") or ():
        needed = Requirement(line)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        try:
            here = version(needed.name)
        except PackageNotFoundError:
            wrong.append(f"{needed.name} is missing")
            continue
        if not needed.specifier.contains(here, prereleases=True):
            wrong.append(f"{needed.name} is {here}, not {needed.specifier}")
    if wrong:
        return Finding(
            "packages", Health.BROKEN, "; ".join(wrong), "install meshwright again, with its dependencies"
        )
    python = ".".join(map(str, sys.version_info[:3]))
    return Finding("packages", Health.GOOD, f"Meshwright {version('meshwright')} on Python {python}")


def _solvers(_: Settings) -> Finding:
    """Whether both integer programming solvers solve: two columns of which one is to be taken."""
    builder = ModelBuilder()
    columns = builder.add_columns(2, cost=1.0, upper=1.0, integer=True)
    builder.add_row([(int(column), 1.0) for column in columns], lower=1.0)
    program = builder.build()
    for backend in Backend:
        found = solve_integer(program, backend=backend, time_limit_s=10.0, node_limit=100)
        if found.status is not IlpStatus.OPTIMAL or round(found.objective) != 1:
            detail = f"{backend} answers {found.status} to a program of two columns"
            return Finding("solvers", Health.BROKEN, detail, "install pulp and highspy for this machine again")
    return Finding("solvers", Health.GOOD, f"{' and '.join(Backend)} solve")


def _compiled_loops(_: Settings) -> Finding:
    """Whether compiled loops can be kept, so that only the first plan waits for the compiler."""
    folder = Path(step_seconds.stats.cache_path)  # type: ignore[attr-defined]  # a compiled function has it
    if os.access(_there(folder), os.W_OK):
        kept = len(list(folder.glob("*.nbi")))
        detail = f"{kept} are kept in {folder}" if kept else f"none yet; the first plan compiles them into {folder}"
        return Finding("compiled loops", Health.GOOD, detail)
    detail = f"{folder} cannot be written: every process compiles them anew, about a minute"
    return Finding("compiled loops", Health.DOUBTFUL, detail, "set NUMBA_CACHE_DIR to a folder that can be written")


def _files(_: Settings) -> Finding:
    """Whether migrations, pages and examples are installed with the code."""
    web = Path(__file__).parent / "web"
    parts = {
        "migrations": MIGRATIONS_FOLDER / "versions",
        "pages": web / "templates",
        "styles": web / "static",
        "examples": examples_folder() or Path("examples"),
    }
    missing = [name for name, folder in parts.items() if not folder.is_dir()]
    if missing:
        return Finding("files", Health.BROKEN, f"no {', '.join(missing)}", "install meshwright again")
    return Finding("files", Health.GOOD, f"{', '.join(parts)} are installed")


def _machine(settings: Settings) -> Finding:
    """Whether the solver has processors and memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    detail = f"{processors} processors, {memory / GIB:.1f} GiB of memory"
    wanted = (settings.solve_memory_gib or 0.0) * GIB * settings.solver_slots
    if memory < LEAST_MEMORY_BYTES:
        return Finding("machine", Health.DOUBTFUL, detail, "large clusters need 2 GiB and more")
    if wanted > memory:
        problem = f"{detail}; MESHWRIGHT_SOLVE_MEMORY_GIB times MESHWRIGHT_SOLVER_SLOTS is {wanted / GIB:g} GiB"
        return Finding("machine", Health.DOUBTFUL, problem, "lower one of the two")
    return Finding("machine", Health.GOOD, detail)


def _settings(_: Settings) -> Finding:
    """Whether variables with our prefix are settings."""
    unknown = unknown_settings()
    if unknown:
        detail = f"{', '.join(unknown)} set nothing"
        return Finding("settings", Health.DOUBTFUL, detail, "correct the names: docs/settings.md lists them")
    return Finding("settings", Health.GOOD, "every variable that begins with MESHWRIGHT_ is one")


def _data_folder(settings: Settings) -> Finding:
    """Whether the folder can be written and has room."""
    there = _there(settings.data_dir)
    remedy = "set MESHWRIGHT_DATA_DIR to a folder that can be written"
    if not os.access(there, os.W_OK | os.X_OK):
        return Finding("data folder", Health.BROKEN, f"{there} cannot be written", remedy)
    free = shutil.disk_usage(there).free
    detail = f"{settings.data_dir}, {free / GIB:.1f} GiB free"
    if free < LEAST_FREE_BYTES:
        return Finding("data folder", Health.DOUBTFUL, detail, f"make room, or {remedy}")
    return Finding("data folder", Health.GOOD, detail)


def _database(settings: Settings) -> Finding:
    """Whether our database answers and has the newest schema; an embedded one that is missing is not made."""
    if (
        settings.uses_sqlite
        and not (settings.data_dir / "meshwright.sqlite").exists()
        and not settings.database_url
    ):
        return Finding("database", Health.GOOD, "none yet; the first start makes it")
    with explained(settings):
        engine = make_engine(settings.resolved_database_url)
        try:
            refuse_newer(engine)
            current = is_current(engine)
        finally:
            engine.dispose()
    where = engine.url.render_as_string(hide_password=True)
    if current:
        return Finding("database", Health.GOOD, f"{where}, at the newest schema")
    if settings.uses_sqlite:
        return Finding(
            "database", Health.DOUBTFUL, f"{where}, not at the newest schema", "the next start migrates it"
        )
    return Finding("database", Health.BROKEN, f"{where}, not at the newest schema", "run: meshwright migrate")


def _job_engine(settings: Settings) -> Finding:
    """Whether the job engine's database answers; an embedded one that is missing is not made."""
    url = settings.resolved_jobs_database_url
    if url.startswith("sqlite") and not (settings.data_dir / "jobs.sqlite").exists():
        return Finding("job engine", Health.GOOD, "no database yet; the first start makes it")
    with explained(settings, database="the job engine's database", variable="MESHWRIGHT_JOBS_DATABASE_URL"):
        connect(url)
    return Finding("job engine", Health.GOOD, "its database answers")


def _address(settings: Settings) -> Finding:
    """Whether the service could listen, or does."""
    try:
        listening_socket(settings).close()
    except CannotStart as refused:
        return Finding("address", Health.BROKEN, str(refused))
    except AddressRefused as refused:
        if (answer := _answer_there(settings)) is None:
            return Finding("address", Health.BROKEN, str(refused))
        return answer
    return Finding("address", Health.GOOD, f"{settings.host}:{settings.port} is free")


def _answer_there(settings: Settings) -> Finding | None:
    """Answer of a service of ours on our address about itself; nothing where none answers."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        found = httpx2.get(f"http://{host}:{settings.port}/readyz", timeout=_ANSWER_WITHIN_S)
        body = found.json()
    except (httpx2.HTTPError, ValueError):
        return None
    where = f"a service answers on {settings.host}:{settings.port}"
    if found.is_success and body == {"status": "ok"}:
        return Finding("address", Health.GOOD, f"{where} and is ready")
    if str(body.get("type", "")).endswith("not-ready"):
        return Finding("address", Health.BROKEN, f"{where}: {body.get('detail')}", "look at its log")
    return None


def _there(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    return next(each for each in (folder, *folder.absolute().parents) if each.exists())
