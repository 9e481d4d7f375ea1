"""A configuration in words: its degrees, and the settings that are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from app.presentation.figures import count, plural, spans
from app.presentation.frameworks import framework_words
from cluster_models.training.framework_choices import ContextExchange, Optimizer
from cluster_models.training.placement_rules import PlacementRules
from cluster_models.training.plan import Configuration, Degrees
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import TrainingWorkload
from cluster_models.units import GIB

_DEGREES: Final = (
    ("tensor", "TP", "tensor parallel"),
    ("pipeline", "PP", "pipeline stages"),
    ("data", "DP", "data parallel replicas"),
    ("context", "CP", "context parallel"),
    ("expert", "EP", "expert parallel"),
    ("expert_tensor", "ETP", "expert tensor parallel"),
    ("virtual_pipeline", "VPP", "virtual stages per rank"),
)
_SCHEDULES: Final[Mapping[PipelineSchedule, tuple[str, str]]] = {
    PipelineSchedule.ONE_F_ONE_B: ("1F1B", "interleaved 1F1B"),
    PipelineSchedule.GPIPE: ("GPipe", "looped breadth-first"),
    PipelineSchedule.ZERO_BUBBLE: ("zero-bubble ZB-H1", "interleaved zero-bubble"),
    PipelineSchedule.ZB_V: ("ZB-V", "ZB-V"),
    PipelineSchedule.DUALPIPE_V: ("DualPipeV", "DualPipeV"),
}
"""Names without virtual stages, and with several."""
_EXCHANGES: Final[Mapping[ContextExchange, str]] = {
    ContextExchange.RING: "ring of keys and values",
    ContextExchange.GATHER: "gather of keys and values",
    ContextExchange.ALL_TO_ALL: "all-to-all of heads (Ulysses)",
    ContextExchange.HIERARCHICAL: "all-to-all of heads among {heads}, ring over {rings}",
}


@dataclass(frozen=True, slots=True)
class Degree:
    """One degree with its abbreviation and its meaning."""

    short: str
    meaning: str
    value: int


def degrees(values: Degrees) -> tuple[Degree, ...]:
    """The three degrees everybody knows, and the others where they are in use."""
    return tuple(
        Degree(short, meaning, getattr(values, field))
        for field, short, meaning in _DEGREES
        if field in ("tensor", "pipeline", "data") or getattr(values, field) > 1
    )


def settings(
    configuration: Configuration,
    workload: TrainingWorkload | None,
    gpu_kinds: Sequence[str] = (),
    *,
    host_bytes: float = 0.0,
) -> tuple[tuple[str, str], ...]:
    """The settings of the framework that are not degrees; ``gpu_kinds``: of each stage, where they differ.

    ``host_bytes``: the most that a GPU offloads.
    """
    virtual = configuration.degrees.virtual_pipeline
    schedule, offloaded = schedule_words(configuration), configuration.optimizer_offload
    waiting = configuration.offloaded_layers
    place = "on nodes' disks" if configuration.offload_to_disks else "in nodes' memory"
    kept = "optimizer states and parameters" if configuration.offload_parameters else "optimizer states"
    return (
        *(_framework(workload) if workload else ()),
        ("micro-batch", plural(configuration.micro_batch, "sequence")),
        *(_micro_batches(configuration, workload) if workload else ()),
        ("recomputation", configuration.recomputation),
        ("sharding over data ranks", configuration.sharding_words),
        *(((f"{kept} {place}", f"{offloaded} %, {host_bytes / GIB:.1f} GiB a GPU"),) if offloaded else ()),
        *(
            (("activations in nodes' memory", f"{plural(waiting, 'layer')}, {host_bytes / GIB:.1f} GiB a GPU"),)
            * (waiting > 0)
        ),
        *((("context ranks", exchange_words(configuration)),) if configuration.degrees.context > 1 else ()),
        *((("chosen for this run", chosen_words(configuration)),) if configuration.settings.chosen else ()),
        ("rank order", str(configuration.rank_order)),
        ("layers of each stage", _layers(configuration)),
        *((("pipeline schedule", schedule),) if configuration.degrees.pipeline > 1 else ()),
        *((("virtual stages", f"{virtual} model chunks on each pipeline rank"),) if virtual > 1 else ()),
        *(("GPUs", f"{kind} under {stages}") for kind, stages in _stages_by_kind(gpu_kinds)),
        *((("placement rules", _rules(workload.placement)),) if workload and workload.placement else ()),
    )


def _framework(workload: TrainingWorkload) -> tuple[tuple[str, str], ...]:
    states = workload.optimizer_states
    return (
        ("framework", framework_words(workload.framework)),
        ("precision", workload.precision.upper()),
        *((("optimizer", str(workload.optimizer)),) if workload.optimizer is not Optimizer.ADAM else ()),
        *((("optimizer states", states.words),) if states.is_narrow else ()),
        *((("adapters", workload.adapters.words),) if workload.adapters else ()),
    )


def _micro_batches(configuration: Configuration, workload: TrainingWorkload) -> tuple[tuple[str, str], ...]:
    return (("micro-batches per replica and step", count(configuration.micro_batches(workload.global_batch))),)


def _stages_by_kind(gpu_kinds: Sequence[str]) -> Iterator[tuple[str, str]]:
    for kind, members in groupby(enumerate(gpu_kinds), key=itemgetter(1)):
        numbers = [stage for stage, _ in members]
        yield kind, f"stage{'s' if len(numbers) > 1 else ''} {spans(numbers)}"


def _rules(rules: PlacementRules) -> str:
    required = [f"with {', '.join(rules.require_nodes)}"] if rules.require_nodes else []
    return "; ".join([*map(str, rules.neighbours), *map(str, rules.spares), *required])


def schedule_words(configuration: Configuration) -> str:
    """The pipeline schedule, by the names of the field."""
    several = configuration.degrees.virtual_pipeline > 1
    return _SCHEDULES[configuration.schedule][several]


def exchange_words(configuration: Configuration) -> str:
    """How context ranks exchange, by the names of the field."""
    rings = configuration.degrees.context // (configuration.head_ranks or configuration.degrees.context)
    return _EXCHANGES[configuration.context_exchange].format(heads=configuration.head_ranks, rings=rings)


def chosen_words(configuration: Configuration) -> str:
    """The settings of the framework that the planner chose, by their names."""
    words = {True: "on", False: "off"}
    chosen = configuration.settings.chosen.items()
    return ", ".join(f"{name.replace('_', ' ')} {words.get(value, str(value))}" for name, value in chosen)


def offload_words(configuration: Configuration) -> str:
    """Share of the optimizer states that is offloaded, whether to disks, and with parameters."""
    beside = " with parameters" * configuration.offload_parameters
    return f"{configuration.optimizer_offload} %{beside}{' on disks' * configuration.offload_to_disks}"


def settings_line(configuration: Configuration) -> str:
    """The settings by which configurations of the same degrees differ, in one line."""
    return (
        f"micro-batch {configuration.micro_batch}, recomputation {configuration.recomputation}, "
        f"sharding {configuration.sharding_words}, "
        + f"{configuration.optimizer_offload} % of optimizer states offloaded"
        f"{' with parameters' * configuration.offload_parameters}{' to disks' * configuration.offload_to_disks}, "
        * (configuration.optimizer_offload > 0)
        + f"activations of {plural(configuration.offloaded_layers, 'layer')} offloaded, "
        * (configuration.offloaded_layers > 0)
        + f"{exchange_words(configuration)}, " * (configuration.context_exchange is not ContextExchange.RING)
        + f"{chosen_words(configuration)}, " * bool(configuration.settings.chosen)
        + f"order {configuration.rank_order}"
        + f", schedule {schedule_words(configuration)}" * (configuration.degrees.pipeline > 1)
    )


def _layers(configuration: Configuration) -> str:
    widths = [str(width) for virtual_stage in configuration.stage_layers for width in virtual_stage]
    if len(set(widths)) == 1:
        noun = "virtual stage" if len(configuration.stage_layers) > 1 else "stage"
        return f"{widths[0]} in each of {plural(len(widths), noun)}"
    return " + ".join(widths)
