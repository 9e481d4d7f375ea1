"""The head of a plan's page: what was chosen, and what to expect of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.presentation.decision import decision_figures
from app.presentation.figures import (
    NOT_KNOWN,
    count,
    gib,
    interval,
    interval_name,
    percent,
    plural,
    seconds,
    tflops,
)
from app.presentation.frameworks import framework_words
from cluster_models.placement_rules import PlacementRules
from cluster_models.plan import Alternative, Configuration, Degrees, Plan
from cluster_models.workload import LinkBandwidth, TrainingWorkload

_DEGREES: Final = (
    ("tensor", "TP", "tensor parallel"),
    ("pipeline", "PP", "pipeline stages"),
    ("data", "DP", "data parallel replicas"),
    ("context", "CP", "context parallel"),
    ("expert", "EP", "expert parallel"),
    ("expert_tensor", "ETP", "expert tensor parallel"),
    ("virtual_pipeline", "VPP", "virtual stages per rank"),
)


@dataclass(frozen=True, slots=True)
class Degree:
    """One degree with its abbreviation and its meaning."""

    short: str
    meaning: str
    value: int


@dataclass(frozen=True, slots=True)
class OtherPlan:
    """One line of the table of alternatives."""

    configuration: str
    details: str
    step: str
    slower: str
    peak_memory: str
    reason: str


def degrees(values: Degrees) -> tuple[Degree, ...]:
    """The three degrees everybody knows, and the others where they are in use."""
    return tuple(
        Degree(short, meaning, getattr(values, field))
        for field, short, meaning in _DEGREES
        if field in ("tensor", "pipeline", "data") or getattr(values, field) > 1
    )


def headline(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The figures a reader came for, each with its name."""
    sure, careful = plan.confidence, plan.provenance.link_bandwidth is LinkBandwidth.PESSIMISTIC
    return (
        ("throughput", f"{count(plan.tokens_per_s)} tokens/s"),
        ("per GPU", f"{count(plan.tokens_per_s_per_gpu)} tokens/s"),
        ("step time", seconds(plan.time.step_s)),
        *(() if sure is None else ((f"step time, {interval_name(sure)}", interval(sure)),)),
        ("MFU", percent(plan.mfu)),
        ("model arithmetic per GPU", tflops(plan.model_flops_per_s_per_gpu)),
        ("GPUs used", count(plan.configuration.degrees.gpus)),
        *decision_figures(plan),
        *((("link bandwidth", "pessimistic (p10)"),) if careful else ()),
    )


def settings(configuration: Configuration, workload: TrainingWorkload) -> tuple[tuple[str, str], ...]:
    """The settings of the framework that are no degrees."""
    return (
        ("framework", framework_words(workload.framework)),
        ("precision", workload.precision.upper()),
        ("micro-batch", plural(configuration.micro_batch, "sequence")),
        ("micro-batches per replica and step", count(configuration.micro_batches(workload.global_batch))),
        ("recomputation", str(configuration.recompute)),
        ("sharding over data ranks", str(configuration.sharding)),
        ("rank order", str(configuration.rank_order)),
        ("layers of each stage", _layers(configuration)),
        *([("placement rules", _asked(workload.placement))] if workload.placement else []),
    )


def _asked(rules: PlacementRules) -> str:
    required = [f"with {', '.join(rules.require_nodes)}"] if rules.require_nodes else []
    return "; ".join([*map(str, rules.neighbours), *map(str, rules.spares), *required])


def one_line(configuration: Configuration) -> str:
    """What tells a configuration from others with the same degrees."""
    return (
        f"micro-batch {configuration.micro_batch}, recomputation {configuration.recompute}, "
        f"sharding {configuration.sharding}, order {configuration.rank_order}"
    )


def other_plans(alternatives: Sequence[Alternative]) -> tuple[OtherPlan, ...]:
    """The alternatives with why each lost; one that would be faster lost because it does not fit."""
    return tuple(
        OtherPlan(
            configuration=str(other.configuration.degrees),
            details=one_line(other.configuration),
            step=seconds(other.step_s),
            slower=percent(other.slower_by) if other.slower_by >= 0 else NOT_KNOWN,
            peak_memory=gib(other.peak_memory_bytes),
            reason=other.reason,
        )
        for other in alternatives
    )


def _layers(configuration: Configuration) -> str:
    widths = [str(width) for virtual_stage in configuration.stage_layers for width in virtual_stage]
    if len(set(widths)) == 1:
        return f"{widths[0]} in each of {plural(len(widths), 'stage')}"
    return " + ".join(widths)
