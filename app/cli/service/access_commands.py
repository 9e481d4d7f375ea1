"""``meshwright keys`` and ``meshwright tenants``: their commands and options."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.common_options import DatabaseUrl, Json
from app.cli.endings import reported

keys_app = typer.Typer(help="Make and revoke the keys of the service.", no_args_is_help=True)
tenants_app = typer.Typer(help="Make tenants, who see nothing of each other.", no_args_is_help=True)

Tenant = Annotated[
    str | None, typer.Option("--tenant", metavar="NAME", help="Whose; default: MESHWRIGHT_TENANT, or default.")
]
QueuedPlans = Annotated[
    int | None, typer.Option("--queued-plans", min=0, metavar="N", help="Plans that may wait or run at once.")
]
SolverSeconds = Annotated[
    float | None, typer.Option("--solver-seconds", min=0, metavar="S", help="Seconds of solving in 24 hours.")
]
StoredSamples = Annotated[
    int | None, typer.Option("--stored-samples", min=0, metavar="N", help="Measurements that may be stored.")
]


@keys_app.command("create")
@reported
def create_key(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what uses it.")],
    role: Annotated[
        str | None, typer.Option("--role", metavar="ROLE", help="viewer, planner, operator or admin.")
    ] = None,
    scopes: Annotated[
        list[str] | None, typer.Option("--scope", metavar="SCOPE", help="read, plan, operate or admin; repeatable.")
    ] = None,
    days: Annotated[
        float | None, typer.Option("--days", min=0, metavar="DAYS", help="It ends after so many; default: never.")
    ] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option("--requests-per-minute", min=1, metavar="N", help="Its own limit.")
    ] = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a key and print it, this once: only a digest is kept."""
    from app.cli.service.access_stored import KeyOptions, run_create_key  # noqa: PLC0415 - the database takes a while to load

    options = KeyOptions(name, role, tuple(scopes or ()), days, requests_per_minute)
    run_create_key(options, tenant=tenant, as_json=as_json, database_url=database_url)


@keys_app.command("list")
@reported
def list_keys(tenant: Tenant = None, as_json: Json = False, database_url: DatabaseUrl = None) -> None:
    """List keys: what each opens, when it ends and when it was used."""
    from app.cli.service.access_stored import run_list_keys  # noqa: PLC0415 - the database takes a while to load

    run_list_keys(tenant=tenant, as_json=as_json, database_url=database_url)


@keys_app.command("revoke")
@reported
def revoke_key(
    key: Annotated[str, typer.Argument(metavar="ID", help="Its public part: what follows mw_.")],
    tenant: Tenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """End a key at once, and whoever is signed in by it."""
    from app.cli.service.access_stored import run_revoke_key  # noqa: PLC0415 - the database takes a while to load

    run_revoke_key(key, tenant=tenant, database_url=database_url)


@tenants_app.command("create")
@reported
def create_tenant(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and dashes.")],
    queued_plans: QueuedPlans = None,
    solver_seconds: SolverSeconds = None,
    stored_samples: StoredSamples = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a tenant; without quotas of its own it has those of the settings."""
    from app.cli.service.access_stored import run_create_tenant  # noqa: PLC0415 - the database takes a while to load

    run_create_tenant(name, (queued_plans, solver_seconds, stored_samples), database_url=database_url)


@tenants_app.command("quotas")
@reported
def change_quotas(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tenant.")],
    queued_plans: QueuedPlans = None,
    solver_seconds: SolverSeconds = None,
    stored_samples: StoredSamples = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Set the quotas of a tenant, all of them; one that is left out is that of the settings."""
    from app.cli.service.access_stored import run_change_quotas  # noqa: PLC0415 - the database takes a while to load

    run_change_quotas(name, (queued_plans, solver_seconds, stored_samples), database_url=database_url)


@tenants_app.command("list")
@reported
def list_tenants(as_json: Json = False, database_url: DatabaseUrl = None) -> None:
    """List tenants and their quotas."""
    from app.cli.service.access_stored import run_list_tenants  # noqa: PLC0415 - the database takes a while to load

    run_list_tenants(as_json=as_json, database_url=database_url)


def add_commands(program: typer.Typer) -> None:
    """Put the commands of access control into the program."""
    program.add_typer(keys_app, name="keys")
    program.add_typer(tenants_app, name="tenants")
