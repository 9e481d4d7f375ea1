"""How failures on one cluster are handled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy.orm import Session

from app.db.replan_tables import ReplanSettingsRow
from app.serialization import jsonable, load
from app.services.clusters import clusters
from cluster_models.errors import InvalidInput
from cluster_models.health.conditions import (
    DRAIN_LEAD_S,
    HYSTERESIS_S,
    REPEATED_FAILURES,
    Condition,
    conditions_of,
    quarantine_of,
)
from cluster_models.health.events import EntityKind, HealthEvent
from cluster_models.jobs.recovery import Quarantine, RecoveryAction
from solver.replanning.problem import HORIZON_S, SPARE_WORTH_SHARE, ReplanOptions

BACK_AFTER: Final = tuple(f"{kind}_back_after_s" for kind in ("node", "gpu", "nic", "switch"))
"""Settings that may be left to ``back_after_s``."""
LEAST_WINDOW_S: Final = 30.0
MOST_WINDOW_S: Final = 120.0
MOST_TIME_LIMIT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class ReplanSettings:
    """One cluster's settings; seconds.

    ``window_s``: reports within it are decided on together (58 to 77 % of spot removals come with another in the
    same minute).  ``horizon_s`` weighs work against moves, ``back_after_s`` is when lost parts are expected back
    of whose kind nothing else is said (``node_back_after_s`` and so on).
    ``hysteresis_s``: how long a recovery must last to be believed; ``drain_lead_s``: how long before a part has to
    be left it is decided on; after ``quarantine_after`` failures a node is to be kept out.

    ``auto_approve``: a decision takes its GPUs without being asked for, where it keeps within ``auto_actions``
    (none named: any), ``auto_most_jobs`` that act, ``auto_most_nodes`` that change hands and ``auto_most_gap``
    (``None``: no limit), and no source reported trouble on ``storm_share`` of the nodes within ``storm_within_s``.

    ``signed_only``: reports without a signature are refused.  ``gpu_budget`` limits the
    GPUs of all jobs together.  A spare GPU that is taken must be worth ``spare_worth_share`` of what a GPU of its
    job does.
    ``all_free_nodes``: every free node serves as a spare, not only those listed.
    """

    window_s: float = 60.0
    horizon_s: float = HORIZON_S
    back_after_s: float = HORIZON_S
    node_back_after_s: float | None = None
    gpu_back_after_s: float | None = None
    nic_back_after_s: float | None = None
    switch_back_after_s: float | None = None
    hysteresis_s: float = HYSTERESIS_S
    drain_lead_s: float = DRAIN_LEAD_S
    quarantine_after: int = REPEATED_FAILURES
    auto_approve: bool = False
    auto_actions: tuple[RecoveryAction, ...] = ()
    auto_most_jobs: int | None = None
    auto_most_nodes: int | None = None
    auto_most_gap: float | None = None
    storm_share: float = 0.25
    storm_within_s: float = 300.0
    signed_only: bool = False
    gpu_budget: int | None = None
    all_free_nodes: bool = False
    spare_worth_share: float = SPARE_WORTH_SHARE
    time_limit_s: float = ReplanOptions().time_limit_s
    effort: int = ReplanOptions().effort

    def __post_init__(self) -> None:
        if not LEAST_WINDOW_S <= self.window_s <= MOST_WINDOW_S:
            problem = f"must lie between {LEAST_WINDOW_S:g} and {MOST_WINDOW_S:g}"
            raise InvalidInput("window_s", self.window_s, problem)
        for name in ("horizon_s", "back_after_s", "storm_within_s", *BACK_AFTER):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InvalidInput(name, value, "must be positive")
        for name in ("hysteresis_s", "drain_lead_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InvalidInput(name, getattr(self, name), "must not be negative")
        for name in ("spare_worth_share", "storm_share", "auto_most_gap"):
            if not 0 <= (getattr(self, name) or 0.0) <= 1:
                raise InvalidInput(name, getattr(self, name), "must lie between 0 and 1")
        self._check_counts()
        if not 0 < self.time_limit_s <= MOST_TIME_LIMIT_S:
            raise InvalidInput(
                "time_limit_s", self.time_limit_s, f"must be positive, at most {MOST_TIME_LIMIT_S:g}"
            )

    def _check_counts(self) -> None:
        for name in ("quarantine_after", "effort"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, getattr(self, name), "must be at least 1")
        for name in ("gpu_budget", "auto_most_jobs", "auto_most_nodes"):
            if (most := getattr(self, name)) is not None and most < 1:
                raise InvalidInput(name, most, "must be at least 1", "leave it out for no limit")

    def conditions(self, events: Iterable[HealthEvent], *, now: datetime) -> tuple[Condition, ...]:
        """The parts that are not well by these reports."""
        return conditions_of(events, now=now, hysteresis_s=self.hysteresis_s, drain_lead_s=self.drain_lead_s)

    def keep_out(self, events: Iterable[HealthEvent], *, now: datetime) -> tuple[Quarantine, ...]:
        """Nodes that failed too often by these reports."""
        return quarantine_of(events, now=now, failures=self.quarantine_after, hysteresis_s=self.hysteresis_s)

    def back_s(self, kind: EntityKind) -> float:
        """Time until a lost part of that kind is expected back."""
        own: float | None = getattr(self, f"{kind}_back_after_s", None)
        return self.back_after_s if own is None else own

    @property
    def options(self) -> ReplanOptions:
        """The budget of one decision."""
        return ReplanOptions(time_limit_s=self.time_limit_s, effort=self.effort)


def get_settings(session: Session, *, reference: str) -> ReplanSettings:
    """The settings of a cluster, those never changed at their defaults; raises ``NotFound``."""
    return settings_of(session, cluster_id=clusters.find_cluster(session, reference=reference).id)


def settings_of(session: Session, *, cluster_id: str) -> ReplanSettings:
    """The settings of the cluster of that id."""
    row = session.get(ReplanSettingsRow, cluster_id)
    return ReplanSettings() if row is None else load(ReplanSettings, row.document)


def replace_settings(session: Session, *, reference: str, settings: ReplanSettings) -> ReplanSettings:
    """Store these settings; windows that are open keep their end."""
    cluster = clusters.lock(session, reference=reference, expected_version=None)
    row = session.get(ReplanSettingsRow, cluster.id)
    if row is None:
        row = ReplanSettingsRow(cluster_id=cluster.id)
        session.add(row)
    row.document, row.updated_at = jsonable(settings), datetime.now(UTC)
    session.flush()
    return settings
