"""Steps of reinforcement learning: prompts, responses, and the two parts that generate and learn."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from cluster_models.errors import InvalidInput, InvalidWorkload
from cluster_models.model.architecture import Architecture
from cluster_models.serving.requests import Lengths, RequestClass
from cluster_models.serving.traces import MOST_ARRIVALS
from cluster_models.serving.workload import ServingWorkload
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK
from cluster_models.training.methods import TrainingMethod
from cluster_models.training.mixed_lengths import MixedLengths, Packing
from cluster_models.training.packing import packed_sequences
from cluster_models.training.workload import TrainingWorkload

MOST_STALENESS: Final = 1
ROUNDED_TO: Final = 128
"""Tokens of which a sequence is a multiple where the workload does not say how long it is: ranks divide it."""
FINENESS: Final = 16
"""Packed sequences of an update are rounded up by one in so many at most, to a number that many ranks divide."""
RESPONSES: Final = "responses"


class Arrangement(StrEnum):
    """Where the engine that generates has its GPUs."""

    COLOCATED = "colocated"
    """On those of the trainer, in turns: the engine's weights are filled in place after each update, its caches
    released before it (HybridFlow's hybrid engine, arXiv 2409.19256)."""
    SEPARATE = "separate"
    """On nodes of its own, to which the trainer sends the weights after each step."""


@dataclass(frozen=True, slots=True)
class ReinforcementWorkload:
    """One step: ``prompts``, each answered ``samples`` times, then learned from in ``updates`` equal parts.

    ``prompt_tokens`` and ``response_tokens`` are independent of each other.  ``training`` is one update (its global
    batch and lengths follow from the responses), ``rollout`` all responses of a step in flight at once;
    ``update_of`` and ``rollout_of`` make them.  ``pinned``: degrees of the engine's workers.  ``arrangements``
    are those to choose from.  ``staleness`` is how many steps old the weights may be that generated what is learned
    from: 0 generates and learns in turn, 1 at once where the parts have nodes of their own.
    """

    prompts: int
    samples: int
    prompt_tokens: Lengths
    response_tokens: Lengths
    training: TrainingWorkload
    rollout: ServingWorkload
    updates: int = 1
    arrangements: tuple[Arrangement, ...] = tuple(Arrangement)
    staleness: int = 0
    avoid_nodes: tuple[str, ...] = ()
    pinned: dict[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_batch(self.prompts, self.samples, self.updates)
        if not self.arrangements:
            raise InvalidWorkload("workload.arrangements", [], "allows nothing", "list colocated, separate or both")
        if not 0 <= self.staleness <= MOST_STALENESS:
            problem = f"must lie in 0..{MOST_STALENESS}: deeper queues of responses are not priced"
            raise InvalidWorkload("workload.staleness_steps", self.staleness, problem)
        if self.staleness and Arrangement.SEPARATE not in self.arrangements:
            problem = "needs an engine on nodes of its own, which arrangements leaves out"
            raise InvalidWorkload("workload.staleness_steps", self.staleness, problem, "allow separate, or say 0")
        if not self.training.method.is_policy:
            raise InvalidWorkload("workload.training.method", str(self.training.method), "updates no policy")
        if self.training.adapters is not None:
            remedy = "leave them out: all weights are trained and moved"
            raise InvalidWorkload(
                "workload.training.adapters", self.training.adapters.words, "are not planned", remedy
            )

    @property
    def responses(self) -> int:
        """Responses of a step."""
        return self.prompts * self.samples

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps of a step, on all parts of the responses, of policy and critic, in all epochs."""
        return self.updates * self.training.roles.steps

    @property
    def response_tokens_per_step(self) -> float:
        """Mean tokens that are generated in a step."""
        return self.responses * self.response_tokens.mean


def check_batch(prompts: int, samples: int, updates: int) -> None:
    """Raise ``InvalidWorkload`` where no batch is made of so many prompts, samples and updates."""
    for name, value in (("prompts", prompts), ("samples_per_prompt", samples), ("updates", updates)):
        if value < 1:
            raise InvalidWorkload(f"workload.{name}", value, "must be at least 1")
    if prompts * samples > MOST_ARRIVALS:
        problem = f"makes {prompts * samples} responses a step, at most {MOST_ARRIVALS} are simulated"
        raise InvalidWorkload("workload.prompts", prompts, problem, "lower prompts or samples_per_prompt")
    if prompts % updates:
        problem = f"must divide the {prompts} prompts of a step"
        near = max(each for each in range(1, updates) if prompts % each == 0)
        raise InvalidWorkload("workload.updates", updates, problem, f"give {near}")


def sequence_tokens(prompt_tokens: Lengths, response_tokens: Lengths, given: int | None) -> int:
    """Tokens of a trained sequence: as ``given``, or the longest prompt and response, rounded up.

    Raises ``InvalidWorkload`` where the longest is longer than what is given.
    """
    longest = math.ceil(prompt_tokens.tokens[-1] + response_tokens.tokens[-1])
    if given is None:
        return -(-longest // ROUNDED_TO) * ROUNDED_TO
    if given < longest:
        raise InvalidWorkload(
            "workload.context_tokens",
            given,
            f"the longest prompt and response together have {longest} tokens",
            "raise it, or cut the lengths",
        )
    return given


def update_of(
    prompt_tokens: Lengths,
    response_tokens: Lengths,
    *,
    responses: int,
    context_tokens: int | None = None,
    reference: bool = False,
    **given: Any,
) -> TrainingWorkload:
    """The update on so many ``responses``; ``given`` are other fields of the training.

    Where the framework packs whole sequences, as many as fit share one; the number of packed ones is rounded up, by
    one in ``FINENESS`` at most, to a multiple of the largest power of two.  Raises ``InvalidWorkload``.
    """
    length = sequence_tokens(prompt_tokens, response_tokens, context_tokens)
    framework = given.get("framework", DEFAULT_FRAMEWORK)
    packing = Packing.WHOLE if Packing.WHOLE in framework.packings else framework.packings[0]
    try:
        lengths = joint_lengths(prompt_tokens, response_tokens, packing)
    except InvalidInput as error:
        raise InvalidWorkload("workload.response_tokens", error.value, error.problem, "cut the lengths") from error
    method = TrainingMethod.POLICY_REFERENCE if reference else TrainingMethod.POLICY
    count = responses
    if packing is Packing.WHOLE:
        needed = responses / packed_sequences(lengths, length).documents
        steps = (2**power for power in range(math.ceil(needed).bit_length(), -1, -1))
        rounded = (math.ceil(needed / step) * step for step in steps)
        count = next(each for each in rounded if each <= max(math.ceil(needed), needed * (1.0 + 1.0 / FINENESS)))
    try:
        return TrainingWorkload(length, count, lengths=lengths, method=method, **given)
    except InvalidInput as error:
        if error.field.startswith("workload.lengths"):
            remedy = "lower it, or cut the lengths"
            raise InvalidWorkload("workload.context_tokens", length, error.problem, remedy) from error
        is_own = error.field.startswith("workload.roles")
        path = error.field if is_own else error.field.replace("workload.", "workload.training.", 1)
        raise InvalidWorkload(path, error.value, error.problem, error.remedy) from error


def joint_lengths(prompt_tokens: Lengths, response_tokens: Lengths, packing: Packing) -> MixedLengths:
    """Tokens of prompt and response together, which a trained sequence has."""
    counts: dict[int, float] = {}
    for prompt, one in zip(prompt_tokens.tokens, prompt_tokens.shares, strict=True):
        for response, other in zip(response_tokens.tokens, response_tokens.shares, strict=True):
            length = round(prompt + response)
            counts[length] = counts.get(length, 0.0) + one * other
    return MixedLengths.of(counts, packing)


def rollout_of(
    prompt_tokens: Lengths, response_tokens: Lengths, *, prompts: int, samples: int, **given: Any
) -> ServingWorkload:
    """All responses of a step in flight; a prompt is prefilled for the first of its samples alone.

    Raises ``InvalidWorkload``.
    """
    shared = 1.0 - 1.0 / samples
    each = RequestClass(RESPONSES, 1.0, prompt_tokens, response_tokens, prefix_share=shared)
    try:
        return ServingWorkload.mixed((each,), concurrency=float(prompts * samples), **given)
    except InvalidInput as error:
        path = error.field.replace("workload.", "workload.rollout.", 1)
        raise InvalidWorkload(path, error.value, error.problem, error.remedy) from error


def check_context(architecture: Architecture, workload: ReinforcementWorkload) -> None:
    """Raise ``InvalidWorkload`` where the longest prompt and response are longer than the policy's context."""
    longest = workload.prompt_tokens.tokens[-1] + workload.response_tokens.tokens[-1]
    most = architecture.max_sequence
    if most and longest > most:
        raise InvalidWorkload(
            "workload.response_tokens",
            workload.response_tokens.tokens[-1],
            f"with the longest prompt makes {longest:.0f} tokens, {architecture.name} takes {most}",
            "cut the lengths, or take a model of longer context",
        )
