"""The groups of commands, by what they are about."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from app.cli.clusters.cluster_commands import app as clusters
from app.cli.feedback.run_commands import app as runs
from app.cli.planning.framework_commands import app as frameworks
from app.cli.planning.plan_commands import app as plans
from app.cli.planning.plan_commands import fleet


class ExpertGroup(TyperGroup):
    """Commands whose options are those of requests, which are loaded when one of the group is looked for."""

    @functools.cached_property
    def _loaded(self) -> TyperGroup:
        return typer.main.get_group(import_module("app.cli.experts.expert_commands").app)

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        return self._loaded.list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of them."""
        return self._loaded.get_command(ctx, cmd_name)


experts = typer.Typer(
    cls=ExpertGroup, help="Place the experts of a model by how its router used them.", no_args_is_help=True
)


def add_groups(program: typer.Typer) -> None:
    """Put the groups into the program."""
    groups = {"cluster": clusters, "experts": experts, "frameworks": frameworks, "plans": plans, "runs": runs}
    for name, group in groups.items():
        program.add_typer(group, name=name)
    program.command()(fleet)
