"""Gains of other hardware and settings in words and figures, the same on the terminal and in a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from app.presentation.decision import dollars_per_day, fullest_stage
from app.presentation.figures import count, gib, percent, plural, seconds
from cluster_models.training.framework_choices import Overlap
from cluster_models.training.plan import Plan
from cluster_models.training.sensitivity import Effect, Lever, Obstacle, Sensitivity
from cluster_models.units import HOUR

FRONT_COLUMNS: Final = (
    "GPUs",
    "shape",
    "step",
    "tokens/s",
    "GPU-hours per billion tokens",
    "USD a day",
    "fullest GPU",
)
EFFECT_COLUMNS: Final = ("change", "same plan", "planned anew", "faster by", "at most by", "shape then")
CHANGES: Final[Mapping[Lever | Overlap, str]] = {
    Lever.NODE: "one more node",
    Lever.LINKS: "links between nodes twice as fast",
    Lever.MEMORY: "10 GiB more on each GPU",
    Overlap.GRADIENTS: "gradients reduced beside the backward pass",
    Overlap.PARAMETERS: "parameters gathered beside the forward pass",
    Overlap.TENSOR: "tensor parallel collectives beside compute",
    Overlap.EXPERTS: "expert exchange beside compute",
}
_OBSTACLES: Final[Mapping[Obstacle, str]] = {
    Obstacle.NODES: "the cluster has as many nodes as one may have",
    Obstacle.NO_SWITCH: "{framework} has no switch for it",
    Obstacle.PRECISION: "{framework} does not have it for {precision}",
    Obstacle.SEQUENCE_PARALLEL: "it takes sequence parallelism, which is off",
}
WORTH_SAYING: Final = 0.002
"""Gains below that are none: the step of a plan is not found more exactly."""


def front_cells(plan: Plan) -> tuple[str, ...]:
    """A plan as a line of a table with ``FRONT_COLUMNS``."""
    gpus, dollars, fullest = plan.configuration.degrees.gpus, dollars_per_day(plan), fullest_stage(plan)
    return (
        count(gpus),
        str(plan.configuration.degrees),
        seconds(plan.time.step_s),
        count(plan.tokens_per_s),
        count(1e9 / plan.tokens_per_s_per_gpu / HOUR),
        "" if dollars is None else count(dollars),
        f"{gib(fullest.total_bytes)} of {gib(fullest.limit_bytes)}",
    )


def effect_cells(effect: Effect, fastest: Plan) -> tuple[str, ...]:
    """An effect on the ``fastest`` plan as a line of a table with ``EFFECT_COLUMNS``; one not refused."""
    plan, before = effect.plan, fastest.time.step_s
    return (
        CHANGES[effect.change],
        seconds(effect.kept_step_s),
        "" if plan is None else seconds(plan.time.step_s),
        "" if effect.step_s is None else percent(gain(effect.step_s, before)),
        "" if effect.bound_step_s is None else percent(gain(effect.bound_step_s, before)),
        "" if plan is None else str(plan.configuration.degrees),
    )


def gain(step_s: float, before_s: float) -> float:
    """Share of a step that is saved."""
    return (before_s - step_s) / before_s


def sensitivity_headline(found: Sensitivity) -> str:
    """The fastest plan, and what would make it faster by most."""
    fastest = found.fastest
    gpus = fastest.configuration.degrees.gpus
    told = f"{fastest.model} takes {seconds(fastest.time.step_s)} a step on {plural(gpus, 'GPU')}"
    gains = {effect.change: gain(effect.step_s, fastest.time.step_s) for effect in found.effects if effect.step_s}
    best = max(gains, key=lambda change: gains[change], default=None)
    if best is None or gains[best] < WORTH_SAYING:
        return f"{told}; none of the changes would make it faster."
    return f"{told}; {CHANGES[best]} would save {percent(gains[best])} of it, the most of all."


def sensitivity_notes(found: Sensitivity) -> Iterator[str]:
    """Changes that are impossible, settings and how they are written, and where nothing fits."""
    fastest, workload = found.fastest.time.step_s, found.fastest.workload
    assert workload is not None, "plans of ours say their workload"
    if found.too_few_gpus is not None:
        gpus = plural(found.too_few_gpus, "GPU")
        yield f"There is no plan on {gpus}: memory, or what the workload pins and requires, takes more."
    for effect in found.effects:
        name = CHANGES[effect.change]
        if effect.obstacle is not None:
            why = _OBSTACLES[effect.obstacle].format(
                framework=workload.framework.name, precision=workload.precision
            )
            yield f"Not possible: {name}; {why}."
        elif isinstance(effect.change, Overlap) and effect.step_s is not None:
            if gain(effect.step_s, fastest) >= WORTH_SAYING:
                yield f"To switch {name} on, write it as workload: framework_settings: {{{effect.change}: true}}"
            elif effect.step_s > fastest * (1 + WORTH_SAYING):
                yield f"Leave {name} off: it would make the step longer."
