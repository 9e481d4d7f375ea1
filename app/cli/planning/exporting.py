"""``meshwright export``: a plan in the words of another program."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from app.cli.files import naming, read_text, write_text
from app.documents.reading import close_name
from app.documents.reinforcement_plan import exported_plan_from_text
from app.exports.contract import Export, Files, View
from app.exports.options import Options, options_of
from app.exports.registry import EXPORTS
from app.exports.reinforcement import JOINT_FORMATS, JointFormat
from app.exports.serving.contract import ServingExport
from app.exports.serving.registry import SERVING_EXPORTS
from cluster_models.errors import InvalidInput
from cluster_models.reinforcement.plan import ReinforcementPlan
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import Plan


def run_export(*, plan_json: str, target: str, given: Sequence[str] = (), output: Path | None) -> None:
    """Write the plan in format ``target`` to a file or, where it makes several, a folder; or print it.

    ``given``: options of the format, each "name=value".
    """
    known = list(dict.fromkeys((*EXPORTS, *SERVING_EXPORTS, *JOINT_FORMATS)))
    if target not in known:
        raise InvalidInput("--format", target, "unknown format", close_name(target, known))
    options = options_given(given)
    text = read_text(plan_json)
    with naming(plan_json):
        plan = exported_plan_from_text(text)
        export, files = _exported(plan, target, options)
    if export.is_folder:
        write_folder(output, target, files)
    elif output is not None:
        _make_folder(output.parent, output)
        write_text(output, files[0].text)
    else:
        sys.stdout.write(files[0].text)
        sys.stdout.flush()


def _exported(
    plan: Plan | ServingPlan | ReinforcementPlan, target: str, options: Options
) -> tuple[Export | View | ServingExport | JointFormat, Files]:
    """The format for this kind of plan, with its files; raises ``InvalidInput`` where there is none."""
    if isinstance(plan, ReinforcementPlan):
        if target not in JOINT_FORMATS:
            known = ", ".join(JOINT_FORMATS)
            raise InvalidInput(
                "--format", target, "is not for plans of reinforcement learning", f"use one of {known}"
            )
        return JOINT_FORMATS[target], JOINT_FORMATS[target].files(plan, options)
    if isinstance(plan, ServingPlan):
        if target not in SERVING_EXPORTS:
            known = ", ".join(SERVING_EXPORTS)
            raise InvalidInput("--format", target, "is for plans of training", f"for serving use one of {known}")
        return SERVING_EXPORTS[target], SERVING_EXPORTS[target].files(plan, options)
    if target not in EXPORTS:
        raise InvalidInput("--format", target, "is for plans of another kind", close_name(target, list(EXPORTS)))
    return EXPORTS[target], EXPORTS[target].files(plan, options)


def options_given(given: Sequence[str]) -> Options:
    """The options of ``--set name=value``; raises ``InvalidInput`` naming the option."""
    values: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInput("--set", text, "is not NAME=VALUE", "write it as --set image=train:2")
        if name in values:
            raise InvalidInput("--set", text, f"gives {name} twice", "give each option once")
        values[name] = value
    try:
        return options_of(values)
    except InvalidInput as error:
        field = error.field.replace("options.", "--set ", 1)
        raise InvalidInput(field, error.value, error.problem, error.remedy) from error


def write_folder(folder: Path | None, target: str, files: Files) -> None:
    """Write several files into a folder, which is made where it is missing."""
    if folder is None:
        raise InvalidInput("--output", None, f"{target} makes {len(files)} files", "name a folder")
    for file in files:
        path = folder / file.name
        _make_folder(path.parent, folder)
        write_text(path, file.text)
        if file.executable:
            path.chmod(0o755)


def _make_folder(folder: Path, given: Path) -> None:
    """Make a folder where it is missing; raises ``InvalidInput`` naming what was ``given``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput("--output", str(given), f"no folder: {error.strerror or error}") from error
