"""Plans and configurations beside one plan, each priced for its run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.comparing.launch_arguments import OwnLaunch, has_launch_arguments, read_launch
from app.comparing.shorthand import is_shorthand, read_shorthand
from app.documents.configuration import ConfigurationDocument, RunSettingsDocument
from app.exports.readback.megatron import GROUP
from app.services.planning.predictions import Prediction, predict_configuration
from cluster_models.errors import InvalidConfiguration, InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.training.comparison import Comparison
from cluster_models.training.free_settings import that_matter
from cluster_models.training.interleaving import micro_batch_group
from cluster_models.training.plan import Plan
from cluster_models.training.workload import TrainingWorkload
from solver.answer.comparing import compare
from solver.problem import PlanningProblem

MOST_CONTENDERS: Final = 8


@dataclass(frozen=True, slots=True)
class Contender:
    """Plan to compare with another, under the name that its owner calls it by."""

    name: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class Standing:
    """A contender and how it stands to the plan; ``cautions``: what the two do not have in common."""

    contender: Contender
    comparison: Comparison
    cautions: tuple[str, ...]


def standings(plan: Plan, contenders: Sequence[Contender]) -> tuple[Standing, ...]:
    """How each contender stands to ``plan``; raises ``InvalidInput`` of one that is another run."""
    found = []
    for contender in contenders:
        _check_same_run(plan, contender)
        found.append(Standing(contender, compare(plan, contender.plan), _cautions(plan, contender.plan)))
    return tuple(found)


def configuration_in(text: str, plan: Plan, *, gpus: int | None = None) -> ConfigurationDocument:
    """The configuration that launch arguments or a shorthand name, of the run that ``plan`` is for.

    On ``gpus`` GPUs, or as many as the plan has, where the text does not say how many.  Raises
    ``InvalidConfiguration``.
    """
    many = gpus or plan.configuration.degrees.gpus
    if is_shorthand(text):
        return read_shorthand(text, plan, gpus=many)
    if not has_launch_arguments(text):
        raise InvalidConfiguration(
            "configuration",
            text[:80],
            "holds no launch arguments of Megatron-LM or NeMo and no degrees",
            "give flags as --tensor-model-parallel-size 8, or degrees as 'tp8 pp4 dp2 mb1'",
        )
    workload = _workload(plan)
    layers = sum(map(sum, plan.configuration.stage_layers))
    launch = read_launch(text, layers=layers, gpus=many, free=workload.free_settings)
    for flag, said, meant in (
        ("--seq-length", launch.sequence_length, workload.sequence_length),
        ("--global-batch-size", launch.global_batch, workload.global_batch),
    ):
        if said not in (None, meant):
            raise InvalidConfiguration(
                flag, said, f"the plan is for {meant}", "compare with a plan of the same run"
            )
    _check_group(launch, workload)
    return _as_left_free(launch, plan.architecture)


def _as_left_free(launch: OwnLaunch, architecture: Architecture | None) -> ConfigurationDocument:
    """The configuration of a launch, with what it says of settings that the workload leaves to the planner."""
    found = launch.configuration
    if launch.settings.chosen and architecture is not None:
        told = found.model_copy(update={"settings": RunSettingsDocument.from_value(launch.settings)})
        kept = that_matter(told.to_configuration(architecture))
        found = found.model_copy(update={"settings": RunSettingsDocument.from_value(kept)})
    return found


def _check_group(launch: OwnLaunch, workload: TrainingWorkload) -> None:
    """Refuse groups of micro-batches on virtual stages that are not those of the schedule that is priced."""
    degrees, micro_batch = launch.configuration.degrees, launch.configuration.micro_batch_sequences
    micro_batches = workload.global_batch // (micro_batch * degrees.data)
    group = micro_batch_group(workload.framework, degrees.pipeline, micro_batches)
    if degrees.virtual_pipeline > 1 and group is not None and launch.micro_batch_group != group:
        raise InvalidConfiguration(
            GROUP,
            launch.micro_batch_group,
            f"{micro_batches} micro-batches on {degrees.pipeline} pipeline ranks are priced in groups of {group}",
            f"compare with {GROUP} {group}",
        )


def priced(
    problem: PlanningProblem,
    document: ConfigurationDocument,
    plan: Plan,
    *,
    predicted: Callable[..., Prediction] = predict_configuration,
) -> Plan:
    """The configuration as a plan, by ``predict_configuration`` or what does the same elsewhere.

    One that does not fit the memory is priced, too.  That of ``plan`` itself is where the plan has placed it,
    unless it names its hosts.
    """
    if document.hosts is None and document.to_configuration(problem.architecture) == plan.configuration:
        return plan
    return predicted(problem, document=document).plan


def priced_again(problem: PlanningProblem, plan: Plan) -> Plan:
    """A plan from elsewhere on its own hosts, priced for ``problem``."""
    return predict_configuration(problem, document=ConfigurationDocument.from_plan(plan)).plan


def _workload(plan: Plan) -> TrainingWorkload:
    if plan.workload is None:
        raise InvalidInput("plan.workload", None, "is missing", "give a plan that says what it was made for")
    return plan.workload


def _check_same_run(plan: Plan, contender: Contender) -> None:
    """Raise ``InvalidInput`` where step times of the two say nothing about each other."""
    own, other = _workload(plan), _workload(contender.plan)
    remedy = "compare plans of one model and one batch"
    if plan.model != contender.plan.model:
        raise InvalidInput(contender.name, contender.plan.model, f"the plan is for the model {plan.model}", remedy)
    for name in ("sequence_length", "global_batch", "objective"):
        if getattr(own, name) != getattr(other, name):
            raise InvalidInput(
                f"{contender.name}: workload.{name}",
                getattr(other, name),
                f"the plan is for {getattr(own, name)}",
                remedy,
            )


def _cautions(plan: Plan, other: Plan) -> tuple[str, ...]:
    """In what the two predictions were not made alike; the interval of their ratio does not know of it."""
    own, its = _workload(plan), _workload(other)
    differences = {
        "snapshot of the cluster": (plan.provenance.snapshot_id, other.provenance.snapshot_id),
        "cost model": (plan.provenance.cost_model_version, other.provenance.cost_model_version),
        "calibration": (plan.provenance.calibration, other.provenance.calibration),
        "link bandwidth": (plan.provenance.link_bandwidth, other.provenance.link_bandwidth),
        "framework": (own.framework, its.framework),
        "precision": (own.precision, its.precision),
        "memory to keep free": (own.memory_headroom, its.memory_headroom),
    }
    return tuple(name for name, (one, two) in differences.items() if one != two)
