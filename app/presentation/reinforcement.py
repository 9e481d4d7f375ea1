"""A joint plan of reinforcement learning in words and figures, the same on the terminal and in a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from app.presentation.figures import count, gib, percent, plural, seconds
from cluster_models.reinforcement.plan import NoReinforcementPlan, ReinforcementPlan, Split, SplitEnd
from cluster_models.reinforcement.workload import Arrangement
from cluster_models.training.plan import StopReason

PART_COLUMNS: Final = ("part", "nodes", "GPUs", "shape", "takes")
STEP_COLUMNS: Final = ("part of the step", "takes", "what it is")
SPLIT_COLUMNS: Final = ("trainer", "engine", "at least", "step of a plan", "what became of it")
ESTIMATED: Final = (
    "Both parts are priced by their own models; the step of both was fitted to no measured run, and published ones "
    "take {low} to {high} where it says {step}, nine of ten (docs/reinforcement.md)."
)
_ENDS: Final = {
    SplitEnd.CHOSEN: "the plan",
    SplitEnd.SLOWER: "planned, slower",
    SplitEnd.RULED_OUT: "ruled out by its bound",
    SplitEnd.NO_TRAINING: "the trainer does not fit",
    SplitEnd.NO_ROLLOUT: "the engine does not fit",
    SplitEnd.NOT_REACHED: "the search ended before",
}
_ENDINGS: Final = {
    StopReason.PROVEN: "every other split is ruled out by its bound or was planned and is slower",
    StopReason.CANCELLED: "the search was stopped",
}


def headline(plan: ReinforcementPlan) -> str:
    """The step in one line."""
    responses = count(plan.workload.responses)
    parts = plan.parts
    likely = f"measured perhaps {seconds(parts.low_s)} to {seconds(parts.high_s)}"
    return f"{seconds(parts.step_s)} a step of {responses} responses ({likely}), {arrangement_words(plan)}"


def arrangement_words(plan: ReinforcementPlan) -> str:
    """Where both parts are."""
    trainer, engine = len(plan.training_nodes), len(plan.rollout_nodes)
    if plan.arrangement is Arrangement.COLOCATED:
        offloads = plan.memory is not None and plan.memory.offloaded_bytes > 0
        return f"colocated on {plural(trainer, 'node')}{', states offloaded in turns' if offloads else ''}"
    at_once = ", at once" if plan.parts.is_overlapped else ", in turns"
    return f"trainer on {plural(trainer, 'node')}, engine on {plural(engine, 'node')}{at_once}"


def part_rows(plan: ReinforcementPlan) -> list[tuple[str, ...]]:
    """Trainer and engine as lines of a table with ``PART_COLUMNS``."""
    configuration, updates = plan.training.configuration, plural(plan.workload.optimizer_steps, "update")
    shapes = ", ".join(str(pool.pool) for pool in plan.serving.pools)
    trainer = f"{configuration.degrees}, micro-batch {configuration.micro_batch}"
    return [
        (
            f"trainer, {plan.workload.training.framework.name}",
            count(len(plan.training_nodes)),
            count(configuration.degrees.gpus),
            trainer,
            f"{seconds(plan.parts.training_s)} for {updates}",
        ),
        (
            f"engine, {plan.workload.rollout.engine.name}",
            count(len(plan.rollout_nodes)),
            count(plan.serving.gpus),
            f"replicas {shapes}",
            f"{seconds(plan.parts.rollout_s)} for {count(plan.workload.responses)} responses",
        ),
    ]


def step_rows(plan: ReinforcementPlan) -> Iterator[tuple[str, str, str]]:
    """Parts of the step as lines of a table with ``STEP_COLUMNS``."""
    parts, rollout, weights = plan.parts, plan.rollout, plan.weights
    hidden = " (hidden behind the longer part)"
    shorter = min(parts.rollout_s, parts.training_s)
    yield (
        "rollout",
        seconds(parts.rollout_s),
        f"half of the responses end by {seconds(rollout.half_s)}, the mean replica by {seconds(rollout.mean_s)}"
        + hidden * (parts.is_overlapped and parts.rollout_s == shorter),
    )
    roles = plan.workload.training.roles
    passes = 1.0 + roles.passes(plan.workload.training.method)
    each = f"{_updates(plan)} take {seconds(plan.training.time.step_s)}"
    yield (
        "training",
        seconds(parts.training_s),
        f"{each}, with {passes:.3g} forward passes"
        + hidden * (parts.is_overlapped and parts.training_s == shorter),
    )
    way = f"{gib(weights.network_bytes)} over the busiest link" if weights.network_bytes else "inside nodes alone"
    yield "weights", seconds(parts.weights_s), f"the policy in 16 bits has {gib(weights.weight_bytes)}, {way}"
    if plan.memory is not None:
        memory = plan.memory
        share = percent(memory.engine_fraction, places=1)
        leaves = "no states leave the GPUs"
        if memory.offloaded_bytes:
            leaves = f"states of {gib(memory.offloaded_bytes)} leave a GPU and come back"
        stays = f"{gib(memory.resident_bytes)} of the trainer stay; the engine takes {share} of a GPU"
        yield "offload", seconds(parts.offload_s), f"{leaves}, {stays}"


def _updates(plan: ReinforcementPlan) -> str:
    """Optimizer steps of a step in words, before how long each takes."""
    roles, updates = plan.workload.training.roles, plural(plan.workload.updates, "update")
    models = "policy and critic" if roles.critic else "the policy"
    epochs = f" in {plural(roles.epochs, 'epoch')}" if roles.epochs > 1 else ""
    beside = ", beside a reward model," if roles.reward_model else ""
    return f"{updates}{epochs} of {models}{beside} each"


def split_cells(split: Split) -> tuple[str, ...]:
    """A way to share the nodes out as a line of a table with ``SPLIT_COLUMNS``."""
    shared = split.arrangement is Arrangement.COLOCATED
    engine = ("the same, states offloaded" if split.offloads else "the same") if shared else None
    return (
        plural(split.training_nodes, "node"),
        engine or f"apart, {plural(split.rollout_nodes, 'node')}",
        seconds(split.bound_s),
        seconds(None if split.parts is None else split.parts.step_s),
        _ENDS[split.end],
    )


def proof(plan: ReinforcementPlan) -> str:
    """How far from optimal the step can be, and what that covers."""
    said = plan.certificate
    ending = _ENDINGS.get(said.stopped_by, "the time limit ended the search")
    return (
        f"No step of the {plural(said.splits, 'split')} looked at is shorter than {seconds(said.bound_s)}, "
        f"{percent(said.gap)} below the plan: {ending}. The bound takes the trainer's best price on so many nodes "
        "and equal replicas on the best links, of which more are taken never to be slower; replicas of several "
        f"shapes and numbers of nodes that were not looked at are outside of it. {estimated(plan)}"
    )


def estimated(plan: ReinforcementPlan) -> str:
    """The range in which measured steps lay beside predicted ones, for this one."""
    parts = plan.parts
    return ESTIMATED.format(low=seconds(parts.low_s), high=seconds(parts.high_s), step=seconds(parts.step_s))


def refusal(answer: NoReinforcementPlan) -> tuple[str, str]:
    """Why nothing fits, and what would help."""
    ends = {split.end for split in answer.splits}
    if ends == {SplitEnd.NO_TRAINING}:
        return (
            "the trainer fits on no number of nodes",
            "allow more recomputation, sharding or offload, or give it nodes with more memory",
        )
    if ends == {SplitEnd.NO_ROLLOUT} and all(split.arrangement is Arrangement.SEPARATE for split in answer.splits):
        return (
            "the engine holds no request on the nodes that a trainer leaves it",
            "allow colocated, narrower weights, or give it nodes with more memory",
        )
    if ends == {SplitEnd.NO_ROLLOUT}:
        return (
            "the engine holds no request beside what it shares GPUs with",
            "allow separate, narrower weights, or give it nodes with more memory",
        )
    return (
        "on no split of the nodes do both parts fit",
        "allow colocated and separate, free more nodes, or take nodes with more memory",
    )
