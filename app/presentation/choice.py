"""Why a plan was taken among those as good, what else may be better, and the trial that would tell."""

from __future__ import annotations

from typing import Final

from app.presentation.figures import count, percent, plural
from app.presentation.sentences import sentences
from cluster_models.training.plan import Configuration, Plan
from cluster_models.training.selection import Selection, Simplicity
from cluster_models.training.workload import Choice

_SIMPLER: Final = {
    Simplicity.GPU_KINDS: "fewer GPU kinds",
    Simplicity.PARALLELISM: "fewer kinds of parallelism",
    Simplicity.TENSOR_IN_NODE: "tensor parallel groups inside a node",
    Simplicity.EVEN_LAYERS: "the same number of layers on all stages",
    Simplicity.POWERS_OF_TWO: "more sizes that are powers of two",
    Simplicity.VIRTUAL_STAGES: "fewer virtual stages",
    Simplicity.MEMORY_OPTIONS: "less that is recomputed, or all layers and modules alike",
    Simplicity.MEASURED_SIZES: "more sizes that measured runs had",
}


def caution_of(plan: Plan) -> str:
    """In what the plan is unlike anything measured, the first thing to know of it; empty where it is not."""
    return " ".join(sentences(plan.confidence.outside)) if plan.confidence else ""


def other_warnings(plan: Plan) -> tuple[str, ...]:
    """The plan's warnings but for those of the caution."""
    cautions = plan.confidence.outside if plan.confidence else ()
    return sentences(warning for warning in plan.warnings if warning not in cautions)


def choice_sentences(plan: Plan) -> tuple[str, ...]:
    """The choice and its price, plans that predictions cannot tell from it, and how to find out."""
    found = plan.selection
    if found is None:
        return ()
    return (*_taken(plan, found), *_close(plan, found), *_trial(plan, found))


def _taken(plan: Plan, found: Selection) -> tuple[str, ...]:
    if found.fastest is not None:
        fastest = _name(plan.alternatives[found.fastest].configuration)
        end = "The choice 'fastest' takes that one."
        lead = f"{percent(found.given_up, places=2)} worse than the best found, {fastest}"
        if found.choice is Choice.SIMPLEST:
            better = ", ".join(_SIMPLER[each] for each in found.simpler)
            return (f"{lead}, within what predictions can tell, and simpler: {better}. {end}",)
        return (f"{lead}, but more robust: {_regrets(found)}. {end}",)
    if found.choice is Choice.ROBUST and found.regret is not None:
        regret = percent(found.regret)
        return (f"The fastest found is also the most robust: in nine draws of ten it loses {regret} at most.",)
    return ()


def _regrets(found: Selection) -> str:
    assert found.regret is not None
    return (
        f"when predictions and links are off it loses at most {percent(found.regret)} to the best one in nine "
        f"draws of ten, that one {percent(found.fastest_regret)}"
    )


def _close(plan: Plan, found: Selection) -> tuple[str, ...]:
    if not found.close_calls:
        return ("No alternative of another shape is likely to be better in truth.",) if plan.alternatives else ()
    calls = "; ".join(
        f"{_name(plan.alternatives[call.alternative].configuration)} (expected {_change(call.ratio_low)} to "
        f"{_change(call.ratio_high)}; the better one with {percent(call.chance_better, places=0)})"
        for call in found.close_calls
    )
    return (f"Predictions cannot tell these from the plan: {calls}.",)


def _trial(plan: Plan, found: Selection) -> tuple[str, ...]:
    trial = found.trial
    if trial is None:
        return ()
    other, steps = _name(plan.alternatives[trial.alternative].configuration), trial.warm_up + trial.steps
    sentence = (
        f"The cheapest trial that would tell: run {other} and this plan for {plural(steps, 'step')} each, "
        f"{count(trial.gpu_minutes)} GPU-minutes in all. Leave out the first {trial.warm_up}; take {other} if its "
        f"median step costs less, else keep the plan. On average that saves {percent(trial.gain)}."
    )
    return (sentence,)


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f} %"


def _name(configuration: Configuration) -> str:
    return f"{configuration.degrees} mb{configuration.micro_batch}"
