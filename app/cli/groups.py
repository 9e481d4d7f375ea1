"""The groups of commands, by what they are about."""

from __future__ import annotations

import typer

from app.cli.clusters.cluster_commands import app as clusters
from app.cli.experts.expert_commands import app as experts
from app.cli.feedback.run_commands import app as runs
from app.cli.planning.framework_commands import app as frameworks
from app.cli.planning.plan_commands import app as plans
from app.cli.planning.plan_commands import fleet


def add_groups(program: typer.Typer) -> None:
    """Put the groups into the program."""
    groups = {"cluster": clusters, "experts": experts, "frameworks": frameworks, "plans": plans, "runs": runs}
    for name, group in groups.items():
        program.add_typer(group, name=name)
    program.command()(fleet)
