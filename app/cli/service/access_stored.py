"""Keys and tenants in the service's database, for whoever runs it; what is done is in the audit log."""

from __future__ import annotations

import getpass
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rich import box
from rich.table import Table
from sqlalchemy.orm import Session

from app.access import audit, keys, tenants
from app.access.audit import Act
from app.access.keys import ApiKey
from app.access.principals import scopes_of
from app.access.tenants import Quotas, Tenant
from app.cli.clusters.stored import database
from app.cli.terminal import console, error_console, print_text
from app.presentation.keys import KEY_COLUMNS, key_cells, minute
from app.services.pagination import MAX_LIMIT

Given = tuple[int | None, float | None, int | None]
"""Queued plans, seconds of solving in 24 hours, stored measurements."""
_COMMAND_LINE: Final = 0


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """The options of ``keys create`` as typed."""

    name: str
    role: str | None
    scopes: tuple[str, ...]
    days: float | None
    requests_per_minute: int | None


def run_create_key(options: KeyOptions, *, tenant: str | None, as_json: bool, database_url: str | None) -> None:
    """Make a key and print it."""
    expires_at = None if options.days is None else datetime.now(UTC) + timedelta(days=options.days)
    with database(database_url, tenant=tenant) as session:
        made = keys.create_key(
            session,
            name=options.name,
            scopes=scopes_of(options.role, options.scopes),
            expires_at=expires_at,
            requests_per_minute=options.requests_per_minute,
        )
        _record(session, "keys.create_key", f"/api/v1/keys/{made.key.id}")
    if as_json:
        print_text(json.dumps(_document(made.key) | {"key": made.text}, indent=2))
        return
    print_text(made.text)
    error_console().print(
        f"The key of {made.key.name!r}, tenant {made.key.tenant_id}, opens {', '.join(made.key.scopes)}. Keep it: "
        "it is not shown again. Send it as Authorization: Bearer, or sign in with it on the pages."
    )


def run_list_keys(*, tenant: str | None, as_json: bool, database_url: str | None) -> None:
    """List the keys of a tenant."""
    with database(database_url, tenant=tenant) as session:
        found = list(_all_keys(session))
    if as_json:
        print_text(json.dumps([_document(key) for key in found], indent=2))
        return
    table = _table(*KEY_COLUMNS)
    now = datetime.now(UTC)
    for key in found:
        table.add_row(*key_cells(key, now))
    console().print(table if found else "No keys yet; make one: meshwright keys create NAME --role operator")


def run_revoke_key(key: str, *, tenant: str | None, database_url: str | None) -> None:
    """Revoke a key."""
    with database(database_url, tenant=tenant) as session:
        revoked = keys.revoke_key(session, key_id=key)
        _record(session, "keys.revoke_key", f"/api/v1/keys/{key}")
    console().print(f"{revoked.id}, {revoked.name}: revoked")


def run_create_tenant(name: str, given: Given, *, database_url: str | None) -> None:
    """Make a tenant."""
    with database(database_url) as session:
        made = tenants.create_tenant(session, name=name, quotas=Quotas(*given))
        _record(session, "tenants.create_tenant", f"tenants/{made.id}")
    console().print(f"{made.id}: made; its first key: meshwright keys create NAME --role admin --tenant {made.id}")


def run_change_quotas(name: str, given: Given, *, database_url: str | None) -> None:
    """Set all quotas of a tenant."""
    with database(database_url) as session:
        changed = tenants.change_quotas(session, name=name, quotas=Quotas(*given))
        _record(session, "tenants.change_quotas", f"tenants/{changed.id}")
    console().print(f"{changed.id}: {_quotas(changed)}")


def run_list_tenants(*, as_json: bool, database_url: str | None) -> None:
    """List tenants with their quotas."""
    with database(database_url) as session:
        found = tenants.list_tenants(session)
    if as_json:
        print_text(json.dumps([{"name": each.id, "quotas": asdict(each.quotas)} for each in found], indent=2))
        return
    table = _table("tenant", "quotas", "since")
    for each in found:
        table.add_row(each.id, _quotas(each), minute(each.created_at))
    console().print(table)


def _all_keys(session: Session) -> Sequence[ApiKey]:
    found: list[ApiKey] = []
    cursor: str | None = None
    while True:
        page = keys.list_keys(session, limit=MAX_LIMIT, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def _record(session: Session, action: str, subject: str) -> None:
    """Write a command into the audit log, under the name of the operating system's user."""
    audit.record(session, Act(f"{getpass.getuser()} at the command line", None, action, subject, _COMMAND_LINE))


def _document(key: ApiKey) -> dict[str, Any]:
    moments = {
        name: None if (moment := getattr(key, name)) is None else moment.isoformat()
        for name in ("created_at", "expires_at", "revoked_at", "last_used_at")
    }
    plain = {name: getattr(key, name) for name in ("id", "name", "requests_per_minute")}
    return plain | {"tenant": key.tenant_id, "scopes": list(key.scopes)} | moments


def _quotas(tenant: Tenant) -> str:
    found = tenant.quotas
    parts = (
        (found.queued_plans, "queued plans"),
        (found.solver_s_per_day, "s of solving a day"),
        (found.stored_samples, "measurements"),
    )
    return ", ".join(f"{value:g} {words}" for value, words in parts if value is not None) or "as in the settings"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
