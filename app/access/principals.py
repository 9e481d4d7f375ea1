"""Scopes, the roles that bundle them, and who sends a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from app.settings import DEFAULT_TENANT
from cluster_models.errors import InvalidInput


class Scope(StrEnum):
    """A kind of thing that a caller may do; none includes another."""

    READ = "read"
    PLAN = "plan"
    """Ask for plans and predictions, and store models, calibrations and routing statistics for them."""
    OPERATE = "operate"
    """Change clusters and jobs, report failures, approve and carry out decisions."""
    ADMIN = "admin"
    """Delete clusters, manage keys, webhooks and sources of reports, read the audit log."""


ROLES: Final[Mapping[str, frozenset[Scope]]] = {
    "viewer": frozenset({Scope.READ}),
    "planner": frozenset({Scope.READ, Scope.PLAN}),
    "operator": frozenset({Scope.READ, Scope.PLAN, Scope.OPERATE}),
    "admin": frozenset(Scope),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """Sender of a request: a tenant's key, somebody signed in, anybody, or nobody that is known.

    ``key_id`` is the public part of the key.  ``limited_as`` names what requests are counted under; empty where
    they are not.  The credentials end at ``expires_at``.
    """

    tenant_id: str
    name: str
    scopes: frozenset[Scope]
    key_id: str | None = None
    limited_as: str = ""
    requests_per_minute: int | None = None
    by_cookie: bool = False
    expires_at: datetime | None = None

    def is_over(self, now: datetime) -> bool:
        """Whether the credentials have ended."""
        return self.expires_at is not None and self.expires_at <= now


NOBODY: Final = Principal("", "", frozenset())
"""Sees nothing and may do nothing."""
ANYBODY: Final = Principal(DEFAULT_TENANT, "", frozenset(Scope))
"""Whoever reaches a service without access control."""


def scopes_of(role: str | None, scopes: Iterable[str]) -> frozenset[Scope]:
    """The scopes of a role and those named besides; raises ``InvalidInput`` where one is unknown, or none named."""
    if role is not None and role not in ROLES:
        raise InvalidInput("role", role, "is not a role", f"use one of {', '.join(ROLES)}")
    named = set(ROLES[role] if role else ())
    for scope in scopes:
        if scope not in set(Scope):
            raise InvalidInput("scopes", scope, "is not a scope", f"use some of {', '.join(Scope)}")
        named.add(Scope(scope))
    if not named:
        raise InvalidInput("scopes", [], "are missing", f"name a role ({', '.join(ROLES)}), or scopes")
    return frozenset(named)
