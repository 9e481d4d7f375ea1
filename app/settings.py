"""Settings for operators, each with a default that works on one machine.

Values come from the environment (prefix ``MESHWRIGHT_``) or from a ``.env`` file beside the process.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Final

from platformdirs import user_data_path
from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from cluster_models.units import MIB

DEFAULT_TENANT: Final = "default"
"""Owner of what was stored before there were tenants, and of all on a service without access control."""
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
REPLAN_COMMAND: Final = (sys.executable, "-m", "app.jobs.replan_child")
SOLVE_COMMAND: Final = (sys.executable, "-m", "app.jobs.solve_child")


class Role(StrEnum):
    """Part of the service that one process does."""

    ALL = "all"
    """Web pages, API and solves in one process, alone on its data folder."""
    WEB = "web"
    """API and pages only; workers elsewhere solve."""
    WORKER = "worker"
    """Solves only, one at a time."""


class Access(StrEnum):
    """Access to the service."""

    LOOPBACK = "loopback"
    """Whoever reaches it, and only this machine does: it refuses to listen elsewhere."""
    KEYS = "keys"
    """Whoever has a key, or is signed in."""
    OPEN = "open-to-everyone"
    """Whoever reaches it, from wherever."""


def _with_driver(url: str) -> str:
    """The database URL with psycopg named, as SQLAlchemy wants it for PostgreSQL."""
    for prefix in ("postgres://", "postgresql://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url.removeprefix(prefix)
    return url


DatabaseUrl = Annotated[str, AfterValidator(_with_driver)]


class Settings(BaseSettings):
    """One set of values for web and workers."""

    model_config = SettingsConfigDict(env_prefix="MESHWRIGHT_", env_file=".env", extra="ignore", frozen=True)

    data_dir: Path = Field(
        default_factory=lambda: user_data_path("meshwright"),
        description="Folder of the embedded databases and of temporary files of running solves.",
    )
    database_url: DatabaseUrl = Field(
        default="", description="Our tables; empty means an SQLite file in the data folder."
    )
    jobs_database_url: DatabaseUrl = Field(
        default="",
        description="Tables of the job engine; empty means beside ours (schema dbos, or a second file).",
    )
    role: Role = Role.ALL
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="Names under which the service is reached, without ports. None: where it listens on a loopback "
        "address only, that and localhost, else any.",
    )
    access: Access = Field(
        default=Access.LOOPBACK,
        description="Who may use the service: keys (and who signs in), loopback (anybody, from this machine only), "
        "or open-to-everyone.",
    )
    tenant: str = Field(default=DEFAULT_TENANT, description="Tenant whose things the command line works on.")
    sign_in_hours: float = Field(default=12.0, gt=0, description="How long a browser stays signed in.")
    requests_per_minute: int | None = Field(
        default=1200, ge=1, description="Requests of one key a minute, where it has no limit of its own."
    )
    max_queued_plans: int | None = Field(
        default=1000, ge=0, description="Plans of one tenant that wait or run, where it has no quota of its own."
    )
    max_solver_s_per_day: float | None = Field(
        default=None, ge=0, description="Seconds of solving of one tenant in 24 hours; none means any."
    )
    max_stored_samples: int | None = Field(
        default=None, ge=0, description="Measurements that one tenant may store; none means any."
    )
    oidc_issuer: str = Field(
        default="", description="Identity provider (OpenID Connect) that people sign in with; none: keys only."
    )
    oidc_client_id: str = ""
    oidc_client_secret: str = Field(default="", repr=False)
    oidc_scope: str = Field(default="openid profile email", description="Scopes that the provider is asked for.")
    oidc_claim: str = Field(
        default="groups", description="Claim of the identity token whose values oidc_roles speaks of."
    )
    oidc_roles: dict[str, str] = Field(
        default={},
        description="Role of each value of that claim, as role or role@tenant; who has none may not sign in.",
    )
    actor_header: str = Field(
        default="",
        description="Header in which a proxy that authenticates names who sends a request (X-Forwarded-User); the "
        "proxy must drop it from what comes in. None: who acts is what requests say of themselves.",
    )
    solver_slots: int = Field(
        default=1, ge=1, description="Solves at once in role all; a process in role worker runs one."
    )
    default_time_limit_s: float = Field(default=60.0, gt=0)
    max_time_limit_s: float = Field(default=3600.0, gt=0)
    overrun_s: float = Field(
        default=60.0,
        gt=0,
        description="Seconds past its time limit after which a solve is killed: integer solvers can overrun, and "
        "the links and candidates of a large cluster are read before the search first looks at the clock.",
    )
    solve_memory_gib: float | None = Field(
        default=None, gt=0, description="Address space that one solve may use; none means unlimited."
    )
    solve_command: tuple[str, ...] = Field(
        default=SOLVE_COMMAND,
        min_length=1,
        description="Program that solves: problem on its standard input, progress and result on its output.",
    )
    replan_command: tuple[str, ...] = Field(
        default=REPLAN_COMMAND,
        min_length=1,
        description="Program that decides on failures: speaks as the one that solves does.",
    )
    webhook_networks: tuple[IPv4Network | IPv6Network, ...] = Field(
        default=(),
        description="Networks that are not public and that webhooks may be sent to all the same.",
    )
    webhook_retention_days: float = Field(
        default=30.0, gt=0, description="How long messages that were delivered, or given up, are kept."
    )
    max_body_bytes: int = Field(default=32 * MIB, ge=1024)
    heartbeat_s: float = Field(default=3.0, gt=0, description="Pause between two signs of life of a worker.")
    worker_lost_after_s: float = Field(
        default=20.0, gt=0, description="Silence after which another worker takes over a worker's solves."
    )
    job_retention_days: float = Field(
        default=30.0, gt=0, description="How long finished rows of the job engine are kept; plans stay."
    )
    metrics_port: int | None = Field(
        default=None, ge=0, le=65535, description="Port of /metrics in role worker; none serves none."
    )
    log_json: bool = Field(default=False, description="One JSON object a line instead of text for people.")
    log_reads: bool = Field(
        default=False, description="Log requests that only read and succeed too; all others are logged anyhow."
    )

    @property
    def resolved_database_url(self) -> str:
        """Where our tables are."""
        return self.database_url or f"sqlite:///{self.data_dir / 'meshwright.sqlite'}"

    @property
    def resolved_jobs_database_url(self) -> str:
        """Where the job engine keeps its tables."""
        if self.jobs_database_url:
            return self.jobs_database_url
        if self.database_url and not self.database_url.startswith("sqlite"):
            return self.database_url
        return f"sqlite:///{self.data_dir / 'jobs.sqlite'}"

    @property
    def known_hosts(self) -> tuple[str, ...]:
        """Names that requests may give the service; none means any."""
        if self.allowed_hosts or self.host not in LOOPBACK:
            return self.allowed_hosts
        return ("localhost", *(f"[{name}]" if ":" in name else name for name in LOOPBACK if name != "localhost"))

    @property
    def is_open(self) -> bool:
        """Whether requests need no key; a service that listens elsewhere is open only where that is said."""
        return self.access is Access.OPEN or (self.access is Access.LOOPBACK and self.host in LOOPBACK)

    @property
    def uses_sqlite(self) -> bool:
        """Whether our tables live in the embedded database."""
        return self.resolved_database_url.startswith("sqlite")
