"""Options that the commands of ``meshwright experts`` share, and errors that name them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.cli.files import read_architecture, read_snapshot
from app.cli.planning.exporting import write_folder
from app.documents.reading import FieldProblem, InvalidDocument, close_name, problems_of, read_document
from app.experts.exporting import FORMATS, check_groups, files_of, model_layers_of
from app.experts.links import Given
from app.experts.request import LinkFields, RouterDocument
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.training.expert_slots import ExpertSlots
from solver.experts.dispatch import RouterRule

_OPTIONS: Final = {
    "between_nodes_gbit_per_s_per_gpu": "--link-speed",
    "inside_node_gbit_per_s_per_gpu": "--inside-speed",
    "redundant_experts": "--redundant",
    "gpu_kind": "--gpu",
    "tokens_per_gpu": "--tokens",
    "target_balancedness": "--target",
    "steps_until_next": "--steps",
    "balanced_layer_ms": "--layer-ms",
    "physical_to_logical_map": "--running",
    "layers": "--running",
}


@dataclass(frozen=True, slots=True)
class KnownLinks:
    """Model, router and cluster as the options name them."""

    model: str | None = None
    router: str | None = None
    cluster: str | None = None

    def read_model(self) -> tuple[Architecture | None, int | None]:
        """The model, and how many experts its layers have."""
        if self.model is None:
            return None, None
        if self.router is not None:
            raise InvalidInput("--router", self.router, "conflicts with --model, which has one", "give one of them")
        model = read_architecture(self.model)
        if model.experts is None:
            raise InvalidInput("--model", self.model, "has no experts", "name the model that was recorded")
        return model, model.experts.count

    def given(self, fields: LinkFields, model: Architecture | None) -> Given:
        """The facts that decide what crossing nodes costs."""
        return Given(
            model=model,
            rule=self.rule(),
            cluster=None if self.cluster is None else read_snapshot(self.cluster),
            between_gbit_per_s=fields.between_nodes_gbit_per_s_per_gpu,
            inside_gbit_per_s=fields.inside_node_gbit_per_s_per_gpu,
            gpu=fields.gpu_kind,
            tokens=fields.tokens_per_gpu,
        )

    def rule(self) -> RouterRule | None:
        """The router given in place of a model."""
        return None if self.router is None else _router(self.router).to_rule()

    def words(self) -> list[str]:
        """The options again, for a command to type."""
        given = (("--model", self.model), ("--router", self.router), ("--cluster", self.cluster))
        return [word for option, value in given if value is not None for word in (option, value)]


@dataclass(frozen=True, slots=True)
class MapFiles:
    """The files of a map that are wanted: of which engine, and where."""

    form: str | None = None
    output: Path | None = None

    def check(self) -> None:
        """Raise ``InvalidInput`` before any work where format and folder do not go together."""
        if self.form is not None and self.form not in FORMATS:
            raise InvalidInput("--format", self.form, "unknown format", close_name(self.form, list(FORMATS)))
        if self.form is None and self.output is not None:
            remedy = f"add --format {'|'.join(FORMATS)}"
            raise InvalidInput("--output", str(self.output), "belongs to a format", remedy)
        if self.form is not None and self.output is None:
            raise InvalidInput("--format", self.form, "makes several files", "name a folder with --output DIR")

    def write(self, slots: ExpertSlots, model: Architecture | None, rule: RouterRule | None) -> None:
        """Write the files of a map, if any are wanted."""
        if self.form is not None:
            with as_options():
                check_groups(self.form, slots, model, rule)
            write_folder(self.output, self.form, files_of(self.form, slots, model_layers_of(slots, model, None)))

    def words(self) -> str:
        """Where the files are, in a sentence; nothing where none are wanted."""
        return "" if self.form is None else f"the files for {self.form} are in {self.output}"


@contextmanager
def as_options() -> Iterator[None]:
    """Errors raised inside name options instead of the fields of a document."""
    try:
        yield
    except InvalidInput as error:
        problems = [
            FieldProblem(_option(problem.field), problem.value, problem.problem, problem.remedy)
            for problem in problems_of(error)
        ]
        raise InvalidDocument(problems) from error


def flags_of(*fields: str) -> dict[str, str]:
    """The options that stand for fields of a request."""
    return {field: _OPTIONS.get(field, f"--{field.replace('_', '-')}") for field in fields}


def _option(field: str) -> str:
    """The option that stands for a field; names of files stay."""
    name = re.split(r"[.\[]", field, maxsplit=1)[0]
    if field.startswith("--") or not name.replace("_", "").isalpha():
        return field
    return flags_of(name)[name] + field[len(name) :]


def _router(text: str) -> RouterDocument:
    """The router of "8" (experts of a token) or "8,8,4" (also groups, and groups of a token)."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in {1, 3}:
        remedy = "write --router 8, or --router 8,8,4 for 8 experts in 4 of 8 groups"
        raise InvalidInput("--router", text, "must be one whole number, or three", remedy)
    names = ("active", "groups", "active_groups")
    return read_document(RouterDocument, dict(zip(names, numbers, strict=False)), what="--router")
