"""What ``meshwright export`` does: a plan in the words of another program."""

from __future__ import annotations

import sys
from pathlib import Path

from app.cli.files import naming, read_plan, write_text
from app.documents.reading import close_name
from app.exports.contract import Files
from app.exports.registry import EXPORTS
from cluster_models.errors import InvalidInput


def run_export(*, plan_json: str, target: str, output: Path | None) -> None:
    """Write the plan in format ``target`` to a file or, where it makes several, a folder; or print it."""
    if target not in EXPORTS:
        raise InvalidInput("--format", target, "unknown format", close_name(target, list(EXPORTS)))
    plan = read_plan(plan_json)
    with naming(plan_json):
        files = EXPORTS[target].files(plan)
    if EXPORTS[target].is_folder:
        _write_folder(output, target, files)
    elif output is not None:
        write_text(output, files[0].text)
    else:
        sys.stdout.write(files[0].text)
        sys.stdout.flush()


def _write_folder(folder: Path | None, target: str, files: Files) -> None:
    """Write several files into a folder, which is made where it is missing."""
    if folder is None:
        raise InvalidInput("--output", None, f"{target} makes {len(files)} files", "name a folder")
    for file in files:
        path = folder / file.name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput("--output", str(folder), f"no folder: {error.strerror or error}") from error
        write_text(path, file.text)
        if file.executable:
            path.chmod(0o755)
