"""A decision as files: the new plan of each job, and what starts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from app.cli.endings import complain
from app.cli.files import write_text
from app.cli.planning.exporting import options_given, write_folder
from app.documents.plan import PlanDocument
from app.documents.reading import close_name
from app.documents.serving_plan import ServingPlanDocument
from app.exports.contract import ExportFile
from app.exports.options import Options
from app.exports.registry import EXPORTS
from app.exports.serving.registry import SERVING_EXPORTS
from app.presentation.replans import starts_anew
from cluster_models.errors import InvalidInput
from cluster_models.jobs.recovery import BatchDecision
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import Plan

DEFAULT_FORMATS: Final = ("slurm",)
PLAN_FILE: Final = "plan.json"


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Files written for one job: its plan, and those that start it."""

    plan: Path
    launch: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class DecisionFiles:
    """Where files go and in which formats, as typed; nothing is written without ``folder``."""

    folder: Path | None = None
    formats: Sequence[str] = ()
    given: Sequence[str] = ()

    def check(self) -> None:
        """Raise ``InvalidInput`` where this cannot be written, before any work goes into it."""
        for name in self.formats:
            if name not in EXPORTS:
                raise InvalidInput("--format", name, "unknown format", close_name(name, list(EXPORTS)))
        options_given(self.given)
        if self.folder is None:
            if self.formats or self.given:
                raise InvalidInput("--output", None, "is missing", "name the folder for the files")
            return
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidInput("--output", str(self.folder), "is a file", "name a folder")

    def write(self, decision: BatchDecision, document: Callable[[], str]) -> dict[str, JobFiles]:
        """Write the decision as ``document`` makes it, and plan and launch files of every job that starts anew.

        The new plan of every deployment decided on, and scripts for its engines.

        Returns what was written, by job id.  A format that cannot carry the plan is named on standard error: the
        decision holds all the same.
        """
        if self.folder is None:
            return {}
        written = {}
        for made in decision.jobs:
            if made.plan is not None and starts_anew(made):
                written[made.job_id] = self._write_job(self.folder / made.job_name, made.plan, made.job_name)
        for served in decision.serving:
            if served.plan is not None:
                folder = self.folder / served.job_name
                written[served.job_id] = self._write_deployment(folder, served.plan, served.job_name)
        write_folder(self.folder, "replan", (ExportFile("decision.json", document()),))
        return written

    def _write_deployment(self, folder: Path, plan: ServingPlan, job: str) -> JobFiles:
        text = ServingPlanDocument.from_plan(plan).model_dump_json(indent=2) + "\n"
        write_folder(folder, "replan", (ExportFile(PLAN_FILE, text),))
        launch: list[Path] = []
        for name in dict.fromkeys(served.workload.engine.family for served in plan.models):
            export = SERVING_EXPORTS.get(name)
            if export is None:
                complain(f"meshwright: {job}: no files for {name}: no export starts this engine")
                continue
            try:
                files = export.files(plan, options_given(self.given))
            except InvalidInput as refused:
                complain(f"meshwright: {job}: no files for {name}: {refused}")
                continue
            write_folder(folder, name, files)
            launch += [folder / file.name for file in files]
        return JobFiles(folder / PLAN_FILE, tuple(launch))

    def _write_job(self, folder: Path, plan: Plan, job: str) -> JobFiles:
        text = PlanDocument.from_plan(plan, timeline=False).model_dump_json(indent=2) + "\n"
        write_folder(folder, "replan", (ExportFile(PLAN_FILE, text),))
        launch: list[Path] = []
        for name in self.formats or DEFAULT_FORMATS:
            export = EXPORTS[name]
            try:
                files = export.files(plan, self._options(job))
            except InvalidInput as refused:
                complain(f"meshwright: {job}: no files for {name}: {refused}")
                continue
            if export.is_folder:
                write_folder(folder / name, name, files)
                launch += [folder / name / file.name for file in files]
            else:
                (file,) = files
                write_text(folder / export.file_name, file.text)
                launch.append(folder / export.file_name)
        return JobFiles(folder / PLAN_FILE, tuple(launch))

    def _options(self, job: str) -> Options:
        """Options as typed; the job is called what it is called, where it can be."""
        options = options_given(self.given)
        if any(text.startswith("job=") for text in self.given):
            return options
        try:
            return replace(options, job=job)
        except InvalidInput:
            return options


def launch_command(files: JobFiles | None) -> str:
    """Command to type, or the files to use where that depends on the site."""
    if files is None:
        return ""
    if len(files.launch) == 1 and files.launch[0].name == "slurm.sh":
        return f"CHECKPOINT_PATH=FOLDER sbatch {_quoted(files.launch[0])}"
    return "\n".join(_quoted(path) for path in files.launch or (files.plan,))


def _quoted(path: Path) -> str:
    text = str(path)
    return f"'{text}'" if any(letter.isspace() for letter in text) else text
