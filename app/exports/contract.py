"""An export: files made from a launch, and a second reader that finds the launch's figures in them again.

A renderer and its read-back are written apart: a mistake in one is found by the other before a file leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from app.exports.claims import Claims, claims_of, exchange_of_shards
from app.exports.launch_value import Launch, launch_of
from app.exports.options import DEFAULTS, Options
from cluster_models.errors import InvalidConfiguration, InvalidInput
from cluster_models.training.framework_choices import ShardedExchange
from cluster_models.training.methods import TrainingMethod
from cluster_models.training.plan import Plan
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import Sharding

ZIP: Final = "application/zip"
SHELL: Final = "text/x-shellscript"
YAML: Final = "application/yaml"
JSON: Final = "application/json"
TEXT: Final = "text/plain"


class Family(StrEnum):
    """Users of an export."""

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
                problem = f"is not an option of {self.name}, which takes none"
                raise InvalidInput(f"options.{field.name}", value, problem, "leave it out")
        return (ExportFile(self.file_name, self.render(plan)),)


def refusals(exports: Iterable[Export | View], plan: Plan) -> list[InvalidConfiguration | None]:
    """For each target the error that exporting a plan to it would raise; ``None`` where it can be exported."""
    try:
        launch = launch_of(plan)  # once: it checks every rank
    except InvalidConfiguration as error:
        return [None if isinstance(export, View) else error for export in exports]
    return [_refusal(export, launch) for export in exports]


def why_not(export: Export | View, plan: Plan) -> InvalidConfiguration | None:
    """The error that exporting a plan to this target would raise; ``None`` where it can be exported."""
    return refusals((export,), plan)[0]


def _refusal(export: Export | View, launch: Launch) -> InvalidConfiguration | None:
    if isinstance(export, View):
        return None
    try:
        (export.refuse or export.render)(launch, DEFAULTS)
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


def refuse_schedule(target: str, launch: Launch) -> None:
    """Raise ``InvalidConfiguration`` where a plan asks a target that knows 1F1B alone for another schedule."""
    schedule = launch.configuration.schedule
    if schedule is not PipelineSchedule.ONE_F_ONE_B:
        raise unsupported(target, "schedule", str(schedule), "it knows 1F1B alone", "plan with schedule: [1f1b]")


def refuse_method(target: str, launch: Launch) -> None:
    """Raise ``InvalidConfiguration`` where a plan asks a target of next tokens for another method."""
    method = launch.workload.method
    if method is not TrainingMethod.LIKELIHOOD:
        remedy = "plan the step with kind: reinforcement, export verl" if method.is_policy else "export deepspeed"
        raise unsupported(target, "method", str(method), "it trains on next tokens alone", remedy)


def refuse_adapters(target: str, launch: Launch) -> None:
    """Raise ``InvalidConfiguration`` where a plan asks a target that trains all weights for adapters."""
    if (adapters := launch.workload.adapters) is not None:
        remedy = "export nemo or deepspeed"
        raise unsupported(target, "adapters", adapters.words, "it has no setting for them", remedy)


def refuse_groups(target: str, launch: Launch, *, of_states: bool = False) -> None:
    """Raise ``InvalidConfiguration`` where a plan shards in groups and a target over all data ranks.

    ``of_states``: it shares optimizer states out in groups.
    """
    size, sharding = launch.configuration.sharding_ranks, launch.configuration.sharding
    if size and not (of_states and sharding is Sharding.OPTIMIZER):
        other = "megatron" if sharding is Sharding.OPTIMIZER else "torchtitan"
        remedy = f"pin sharding_ranks to 0, or export {other}"
        raise unsupported(target, "sharding_ranks", size, f"it shards {sharding} over all data ranks", remedy)


def refuse_gradients(target: str, launch: Launch) -> None:
    """Raise ``InvalidConfiguration`` where gradients are sharded beside whole weights, or shards travel quantised.

    DeepSpeed alone does either; layers run by chunks of a sequence under Transformers alone.
    """
    if chunk := launch.workload.framework.stream_tokens:
        problem = "it runs no layers by chunks of a sequence"
        raise unsupported(target, "framework_settings.stream_tokens", chunk, problem, "export deepspeed")
    sharding, exchange = launch.configuration.sharding, exchange_of_shards(launch)
    if exchange is not ShardedExchange.PLAIN:
        problem = "it does not quantise what shards exchange"
        raise unsupported(target, "framework_settings.sharded_exchange", str(exchange), problem, "export deepspeed")
    if sharding is Sharding.GRADIENTS:
        problem = "it shards the optimizer's states, or parameters as well"
        raise unsupported(target, "sharding", str(sharding), problem, "export deepspeed")


def unsupported(target: str, field: str, value: object, reason: str, remedy: str = "") -> InvalidConfiguration:
    """The error of a target that cannot do what the plan asks."""
    return InvalidConfiguration(f"configuration.{field}", value, f"{target} cannot take it: {reason}", remedy)


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 120 else shown[:117] + "..."
