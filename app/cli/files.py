"""Files named on the command line: read into domain values, and written."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from app.documents.calibration import CalibrationDocument
from app.documents.cluster import ClusterDocument
from app.documents.configuration import ConfigurationDocument
from app.documents.framework import FrameworkDescription
from app.documents.hardware_profile import HardwareProfileDocument
from app.documents.model import ModelDocument, model_document
from app.documents.plan import plan_from_text
from app.documents.reading import (
    Document,
    FieldProblem,
    InvalidDocument,
    decode,
    parse_text,
    problems_of,
    read_document,
)
from app.documents.reinforcement import ReinforcementWorkloadDocument
from app.documents.serving import ServingConfigurationDocument, ServingWorkloadDocument
from app.documents.text import MAX_TEXT_BYTES
from app.documents.workload import WorkloadDocument
from app.serialization import make_snapshot
from app.services.planning.requests import FleetDocument
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.training.frameworks import Framework
from cluster_models.training.plan import Plan
from cluster_models.training.workload import TrainingWorkload

D = TypeVar("D", bound=Document)


def read_cluster_document(path: str) -> ClusterDocument:
    """The cluster file at ``path``, not yet checked as a whole."""
    return _read(ClusterDocument, path, "cluster")


def read_snapshot(path: str) -> ClusterSnapshot:
    """The cluster file at ``path`` as the snapshot that a plan is made from."""
    document = read_cluster_document(path)
    with naming(path):
        cluster = document.to_cluster()
        return make_snapshot(cluster, document.to_samples(cluster))


def read_architecture(file_or_name: str) -> Architecture:
    """A model file, or a model of the catalogue where there is no such file."""
    if not is_path(file_or_name):
        return ModelDocument(catalogue=file_or_name).to_architecture()
    text = read_text(file_or_name)
    with naming(file_or_name):
        data = parse_text(text, what="model")
        return model_document(data, name=_model_name(Path(file_or_name))).to_architecture()


def read_workload(
    path: str, *, framework_file: str | None = None, fitted: FittedParameters | None = None
) -> TrainingWorkload:
    """The workload file at ``path``, of the framework in a file, shipped, or described by a calibration."""
    document = _read(WorkloadDocument, path, "workload")
    described = {} if fitted is None else dict(fitted.described)
    if framework_file is not None:
        own = read_described([framework_file])
        (name,) = own
        if "framework" in document.model_fields_set and document.framework != name:
            remedy = f"name {name} in {path}, or leave the option out"
            raise InvalidInput("--framework-file", framework_file, f"is of {name}, the workload of another", remedy)
        document = document.model_copy(update={"framework": name})
        described |= own
    with naming(path):
        return document.to_value(described)


def read_described(paths: Sequence[str]) -> dict[str, Framework]:
    """The frameworks that files describe, by name; raises ``InvalidInput`` where two have one name."""
    found: dict[str, Framework] = {}
    for path in paths:
        document = _read(FrameworkDescription, path, "framework")
        with naming(path):
            framework = document.to_framework()
            if framework.name in found:
                raise InvalidInput("framework.name", framework.name, "is described twice", "leave one file out")
        found[framework.name] = framework
    return found


def read_fleet(path: str) -> FleetDocument:
    """The fleet file at ``path``."""
    return _read(FleetDocument, path, "fleet")


def read_configuration(path: str) -> ConfigurationDocument:
    """The configuration file at ``path``."""
    return _read(ConfigurationDocument, path, "configuration")


def read_serving_workload(path: str) -> ServingWorkloadDocument:
    """The workload of serving in the file at ``path``."""
    return _read(ServingWorkloadDocument, path, "workload")


def read_reinforcement_workload(path: str) -> ReinforcementWorkloadDocument:
    """The workload of reinforcement learning in the file at ``path``."""
    return _read(ReinforcementWorkloadDocument, path, "workload")


def read_serving_configuration(path: str) -> ServingConfigurationDocument:
    """The workers of serving in the file at ``path``."""
    return _read(ServingConfigurationDocument, path, "configuration")


def read_hardware_profile(path: str) -> HardwareProfileDocument:
    """The profile that the profiler script wrote at ``path``."""
    return _read(HardwareProfileDocument, path, "profile")


def read_calibration(path: str) -> FittedParameters:
    """The parameters of the calibration file at ``path``."""
    document = _read(CalibrationDocument, path, "calibration")
    with naming(path):
        return document.to_fitted()


def read_plan(path: str) -> Plan:
    """The plan document at ``path``."""
    text = read_text(path)
    with naming(path):
        return plan_from_text(text)


def read_text(path: str) -> str:
    """The text of a file, or of standard input for ``-``."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise InvalidInput("file", path, f"cannot be read: {error.strerror or error}") from error
    return decode(data, what="standard input" if path == "-" else path)


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Put the file's name in front of every problem found inside."""
    try:
        yield
    except InvalidInput as error:
        name = "standard input" if path == "-" else path
        raise InvalidDocument(
            [
                FieldProblem(f"{name}: {problem.field}", problem.value, problem.problem, problem.remedy)
                for problem in problems_of(error)
            ]
        ) from error


def _read(kind: type[D], path: str, what: str) -> D:
    text = read_text(path)
    with naming(path):
        return read_document(kind, parse_text(text, what=what), what=what)


def is_path(file_or_name: str) -> bool:
    """Whether the text names a file rather than something of that name in the catalogue or database."""
    looks_like_one = file_or_name == "-" or "/" in file_or_name or "\\" in file_or_name
    return looks_like_one or Path(file_or_name).suffix in {".json", ".yaml", ".yml"} or Path(file_or_name).exists()


def check_writable(path: Path | None) -> None:
    """Raise ``InvalidInput`` where a file to write later cannot be written, before any work goes into it."""
    if path is None:
        return
    problem = None
    if path.is_dir():
        problem = "is a folder"
    elif not path.parent.is_dir():
        problem = f"cannot be written: there is no folder {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        problem = "cannot be written: permission denied"
    if problem:
        raise InvalidInput("--output", str(path), problem, "name a file in a folder that exists")


def write_text(path: Path, text: str) -> None:
    """Write a file, all of it or nothing; raises ``InvalidInput`` where it cannot be written."""
    try:
        _replace(path.resolve(), text)
    except OSError as error:
        raise InvalidInput("--output", str(path), f"cannot be written: {error.strerror or error}") from error


def _replace(path: Path, text: str) -> None:
    """Write beside the file and put it in place; a pipe, or a file in a folder that is not ours, is written to."""
    if (path.exists() and not path.is_file()) or not os.access(path.parent, os.W_OK):
        path.write_text(text, encoding="utf-8")
        return
    beside = path.with_name(f".{path.name[:200]}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        if path.exists():
            shutil.copymode(path, beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _model_name(path: Path) -> str:
    """Name for the model of a bare ``config.json``: its file, or its folder where the file says nothing."""
    folder = path.resolve().parent.name
    return folder if path.stem in {"config", "", "-"} and folder else path.stem
