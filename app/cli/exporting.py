"""What ``meshwright export`` does: a plan in the words of another program."""

from __future__ import annotations

import sys
from pathlib import Path

from app.cli.files import naming, read_plan, write_text
from app.documents.reading import close_name
from app.exports.registry import EXPORTS
from cluster_models.errors import InvalidInput


def run_export(*, plan_json: str, target: str, output: Path | None) -> None:
    """Write the plan in format ``target`` to a file, or print it."""
    if target not in EXPORTS:
        raise InvalidInput("--format", target, "unknown format", close_name(target, list(EXPORTS)))
    plan = read_plan(plan_json)
    with naming(plan_json):
        text = EXPORTS[target].render(plan)
    if output is not None:
        write_text(output, text)
        return
    sys.stdout.write(text)
    sys.stdout.flush()
