"""Kinds of workloads on the command line: training, serving, reinforcement learning."""

from __future__ import annotations

from collections.abc import Mapping

from app.cli.files import read_text
from app.documents.reading import parse_text
from cluster_models.errors import InvalidInput


def kind_of(workload: str) -> str:
    """The kind that the workload file says, empty for none; standard input is read once, as training."""
    if workload == "-":
        return ""
    try:
        data = parse_text(read_text(workload), what="workload")
    except InvalidInput:
        return ""  # whoever reads it says what is wrong
    return str(data.get("kind", "")) if isinstance(data, Mapping) else ""


def refuse_training_options(training: Mapping[str, object], kind: str = "serving") -> None:
    """Raise ``InvalidInput`` for an option given that only training has."""
    for name, value in training.items():
        if value:
            raise InvalidInput(name, value, f"belongs to training, the workload is of {kind}", "leave it out")
