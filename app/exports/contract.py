"""What an export is: files made from a launch, and a second reader that finds the launch's figures in them again.

A renderer and its read-back are written apart: a mistake in one is found by the other before a file leaves.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from app.exports.launch_value import Launch, launch_of
from cluster_models.errors import InvalidConfiguration, InvalidInput
from cluster_models.expert_slots import ExpertSlots
from cluster_models.plan import Plan, RankOrder
from cluster_models.workload import Sharding

ZIP: Final = "application/zip"
SHELL: Final = "text/x-shellscript"
YAML: Final = "application/yaml"
JSON: Final = "application/json"
TOML: Final = "application/toml"
TEXT: Final = "text/plain"

_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class Family(StrEnum):
    """Whom an export is for."""

    TRAINING = "training"
    KUBERNETES = "kubernetes"
    INFERENCE = "inference"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class ExportFile:
    """One file; ``name`` is relative to the folder that the export makes, without ``..``."""

    name: str
    text: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """What a plan cannot know and a launcher asks for; everything has a default that is easy to find and replace.

    ``job`` names the job (a DNS label), ``image`` is the container image, ``command`` the Python script that every
    rank runs and its arguments, word by word, ``port`` the rendezvous port of the first host.  ``namespace``,
    ``queue``: of Kubernetes and Kueue; ``topology_label``: the node label whose one value must hold the whole job
    (empty = none is asked); ``gpu_resource``: what the device plug-in calls a GPU.  ``model_path``: the weights
    that an engine serves.
    """

    job: str = "meshwright"
    image: str = "train:1"
    command: tuple[str, ...] = ("pretrain_gpt.py",)
    port: int = 29500
    namespace: str = "default"
    queue: str = "train"
    topology_label: str = ""
    gpu_resource: str = "nvidia.com/gpu"
    model_path: str = "/models/model"

    def __post_init__(self) -> None:
        for name in ("job", "namespace", "queue"):
            if not _LABEL.fullmatch(getattr(self, name)):
                raise InvalidInput(
                    f"options.{name}",
                    getattr(self, name),
                    "is not a DNS label",
                    "use a-z, 0-9 and dashes, at most 63",
                )
        for name in ("image", "gpu_resource", "topology_label", "model_path"):
            value = getattr(self, name)
            if not _WORD.fullmatch(value.removeprefix("/")) and (value or name != "topology_label"):
                raise InvalidInput(
                    f"options.{name}", value, "is not one plain word", "use letters, digits and . _ / : @ -"
                )
        if not 1 <= self.port <= 65_535:
            raise InvalidInput("options.port", self.port, "must lie in 1..65535")
        if not self.command or any("\n" in word or "\0" in word for word in self.command):
            raise InvalidInput("options.command", self.command, "must be one line of at least one word")


DEFAULTS: Final = Options()


def options_of(given: Mapping[str, str]) -> Options:
    """Options from texts (``--set image=...``); raises ``InvalidInput`` naming the option."""
    known = [field.name for field in fields(Options)]
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name not in known:
            raise InvalidInput(f"options.{name}", text, "unknown option", f"use one of {', '.join(known)}")
        try:
            values[name] = int(text) if name == "port" else tuple(shlex.split(text)) if name == "command" else text
        except ValueError as error:
            raise InvalidInput(f"options.{name}", text, f"cannot be read: {error}") from error
    return Options(**values)


ExpertOrder = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Claims:
    """What files say of a launch; ``None`` where they do not say it.

    ``gpus[slot]`` are the GPU numbers of a host in rank order, ``layers`` decoder layers in all, ``experts`` those
    of one sparse layer, ``expert_order`` the layers whose experts leave their natural order and what lies in each
    position, ``expert_slots`` where all of them lie, ``first_host`` where ranks meet.
    """

    world: int | None = None
    hosts: tuple[str, ...] | None = None
    first_host: str | None = None
    gpus_per_host: int | None = None
    gpus: tuple[tuple[int, ...], ...] | None = None
    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None
    context: int | None = None
    expert: int | None = None
    expert_tensor: int | None = None
    virtual_pipeline: int | None = None
    rank_order: RankOrder | None = None
    layers: int | None = None
    stage_layers: tuple[tuple[int, ...], ...] | None = None
    micro_batch: int | None = None
    global_batch: int | None = None
    sequence_length: int | None = None
    sharding: Sharding | None = None
    experts: int | None = None
    expert_order: ExpertOrder | None = None
    expert_slots: ExpertSlots | None = None


def claims_of(launch: Launch) -> Claims:
    """Everything that files could say of the launch, and what they must say if they do."""
    plan, degrees = launch.plan, launch.degrees
    placement, model = plan.placement, plan.architecture
    return Claims(
        world=launch.world,
        hosts=placement.hosts,
        first_host=placement.hosts[0],
        gpus_per_host=launch.gpus_per_host,
        gpus=launch.gpus,
        tensor=degrees.tensor,
        pipeline=degrees.pipeline,
        data=degrees.data,
        context=degrees.context,
        expert=degrees.expert,
        expert_tensor=degrees.expert_tensor,
        virtual_pipeline=degrees.virtual_pipeline,
        rank_order=launch.configuration.rank_order,
        layers=launch.layers,
        stage_layers=launch.configuration.stage_layers,
        micro_batch=launch.configuration.micro_batch,
        global_batch=plan.workload.global_batch if plan.workload else None,
        sequence_length=plan.workload.sequence_length if plan.workload else None,
        sharding=launch.configuration.sharding,
        experts=model.experts.count if model and model.experts else None,
        expert_order=expert_order(plan) if model and model.experts else None,
        expert_slots=plan.expert_slots,
    )


def expert_order(plan: Plan) -> ExpertOrder:
    """The layers whose experts are not in their natural order, with what lies in each position, rank by rank."""
    if (slots := plan.expert_slots) is None:
        return ()
    natural = tuple(range(slots.count))
    rows = zip(slots.layers, slots.slots, strict=True)
    return tuple((layer, row) for layer, row in rows if row != natural)


Files = tuple[ExportFile, ...]


@dataclass(frozen=True, slots=True)
class Export:
    """One format of a launch.  ``media_type`` is ``ZIP`` where it makes several files, ``file_name`` then ends so.

    ``render`` raises ``InvalidConfiguration`` where the target cannot do what the plan asks, with the reason.
    ``read_back`` finds the figures in the files; ``says`` are the fields of ``Claims`` that it must find whatever
    the plan is (others may be found).  ``expected`` is what they must equal.
    """

    name: str
    file_name: str
    media_type: str
    description: str
    render: Callable[[Launch, Options], Files]
    read_back: Callable[[Files], Claims]
    says: frozenset[str]
    family: Family = Family.TRAINING
    expected: Callable[[Launch], Claims] = claims_of
    refuse: Callable[[Launch, Options], object] | None = None
    """Raises as ``render`` does, in less time; ``None`` where ``render`` is quick at any size."""

    @property
    def is_folder(self) -> bool:
        """Whether it makes several files."""
        return self.media_type == ZIP

    def files(self, plan: Plan, options: Options = DEFAULTS) -> Files:
        """The files of a plan, read back; raises ``InvalidConfiguration`` on broken sums."""
        return render_checked(self, launch_of(plan), options)


@dataclass(frozen=True, slots=True)
class View:
    """One format of a plan as data, for people and programs that launch nothing."""

    name: str
    file_name: str
    media_type: str
    description: str
    render: Callable[[Plan], str]
    family: Family = Family.DATA

    @property
    def is_folder(self) -> bool:
        """No: it is one file."""
        return False

    def files(self, plan: Plan, options: Options = DEFAULTS) -> Files:
        """The one file of a plan.

        Raises ``InvalidConfiguration`` on broken sums, and ``InvalidInput`` of an option: there is none.
        """
        for field in fields(options):
            if (value := getattr(options, field.name)) != getattr(DEFAULTS, field.name):
                problem = f"is no option of {self.name}, which takes none"
                raise InvalidInput(f"options.{field.name}", value, problem, "leave it out")
        return (ExportFile(self.file_name, self.render(plan)),)


def refusal(export: Export | View, plan: Plan) -> str | None:
    """Why a plan cannot be exported to this target, in a sentence; ``None`` where it can."""
    error = why_not(export, plan)
    return None if error is None else str(error)


def why_not(export: Export | View, plan: Plan) -> InvalidConfiguration | None:
    """The error that exporting a plan to this target would raise; ``None`` where it can be exported."""
    if isinstance(export, View):
        return None
    try:
        (export.refuse or export.render)(launch_of(plan), DEFAULTS)
    except InvalidConfiguration as error:
        return error
    return None


def render_checked(export: Export, launch: Launch, options: Options) -> Files:
    """The files of a launch, after its figures were found in them again; else ``InvalidConfiguration``."""
    files = export.render(launch, options)
    check_files(export, files, launch)
    return files


def check_files(export: Export, files: Files, launch: Launch) -> None:
    """Raise ``InvalidConfiguration`` where files say anything else than the launch, or leave out what they must."""
    expected = export.expected(launch)
    try:
        found = export.read_back(files)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise unreadable(
            f"exports.{export.name}", [file.name for file in files], f"not read back: {error}"
        ) from error
    for name in (field.name for field in fields(Claims)):
        said, meant = getattr(found, name), getattr(expected, name)
        if said is None and (name not in export.says or meant is None):
            continue
        if said != meant:
            raise InvalidConfiguration(
                f"exports.{export.name}.{name}",
                said,
                f"the files do not say what the plan does, {_short(meant)}",
                "report this: an export must never leave so",
            )


def unreadable(what: str, value: object, problem: str = "cannot be read back") -> InvalidConfiguration:
    """The error of a read-back that does not find what it looks for at ``what``."""
    return InvalidConfiguration(what, value, problem, "report this: an export must never leave so")


def unsupported(target: str, field: str, value: object, reason: str, remedy: str = "") -> InvalidConfiguration:
    """The error of a target that cannot do what the plan asks."""
    return InvalidConfiguration(f"configuration.{field}", value, f"{target} cannot take it: {reason}", remedy)


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 120 else shown[:117] + "..."
