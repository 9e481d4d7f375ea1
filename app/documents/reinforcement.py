"""Steps of reinforcement learning as users write them: prompts, responses, and what trainer and engine may do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal, cast

from pydantic import Field, create_model

from app.documents.reading import (
    Count,
    Document,
    FieldProblem,
    Flag,
    InvalidDocument,
    Text,
    WholeNumber,
    problems_of,
)
from app.documents.roles import RolesDocument
from app.documents.serving import ServingWorkloadDocument
from app.documents.serving_classes import MOST_TOKENS, TokensOrSpread, lengths_of, tokens_of
from app.documents.workload import WorkloadDocument
from cluster_models.cluster.topology import MOST_NODES
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.reinforcement.workload import (
    MOST_STALENESS,
    Arrangement,
    ReinforcementWorkload,
    check_batch,
    rollout_of,
    update_of,
)
from cluster_models.serving.goal import ServedModel
from cluster_models.serving.traces import MOST_ARRIVALS
from cluster_models.training.frameworks import Framework
from cluster_models.training.workload import TrainingWorkload

_TRAINING: Final = (
    "framework",
    "framework_settings",
    "precision",
    "optimizer",
    "optimizer_states",
    "recompute",
    "recompute_modules",
    "pinned_modules",
    "sharding",
    "offload",
    "context_exchange",
    "schedule",
    "memory_headroom_fraction",
    "pinned",
    "forbidden",
    "link_bandwidth",
)
_ROLLOUT: Final = (
    "engine",
    "weights",
    "attention_weights",
    "kv_cache",
    "speculation",
    "memory_fraction",
    "prefill_imbalance",
    "decode_imbalance",
    "pinned",
)
_FOLLOWS: Final = frozenset({"sequence_length", "global_batch", "lengths", "method", "roles"})
"""Attributes of the update that follow from prompts and responses."""


def _part(name: str, of: type[Document], fields: Sequence[str], meaning: str) -> type[Document]:
    """A document of some fields of another, each with its meaning and default."""
    wanted: dict[str, Any] = {
        field: (of.model_fields[field].annotation, of.model_fields[field]) for field in fields
    }
    return cast(
        "type[Document]", create_model(name, __base__=Document, __doc__=meaning, __module__=__name__, **wanted)
    )


TrainerDocument = _part(
    "TrainerDocument", WorkloadDocument, _TRAINING, "What the trainer may do, as in a workload of training."
)
RolloutEngineDocument = _part(
    "RolloutEngineDocument", ServingWorkloadDocument, _ROLLOUT, "The engine, as in a workload of serving."
)


class ReinforcementWorkloadDocument(Document):
    """Steps in which an engine generates responses to prompts and a trainer updates the policy on them."""

    kind: Literal["reinforcement"] = Field(
        description="Marks a workload of reinforcement learning.", examples=["reinforcement"]
    )
    prompts: Annotated[Count, Field(le=MOST_ARRIVALS)] = Field(description="Prompts of a step.", examples=[512])
    samples_per_prompt: Annotated[Count, Field(le=MOST_ARRIVALS)] = Field(
        description="Responses to each prompt.", examples=[16]
    )
    prompt_tokens: TokensOrSpread = Field(
        description="Tokens of a prompt: all the same, or a distribution (quantiles or a histogram).",
        examples=[512],
    )
    response_tokens: TokensOrSpread = Field(
        description="Tokens of a response, likewise; independent of those of its prompt.",
        examples=[{"quantiles": {"p0": 100, "p50": 1200, "p90": 4000, "p100": 8192}}],
    )
    context_tokens: Annotated[Count, Field(le=MOST_TOKENS)] | None = Field(
        None,
        description="Tokens of a sequence that is trained on, into which whole responses are packed where the "
        "framework does so; absent: the longest prompt and response, rounded up to 128.",
        examples=[16384],
    )
    updates: Count = Field(
        1, description="Optimizer steps on the responses of a step, each on as many prompts.", examples=[4]
    )
    reference: Flag = Field(
        False, description="Whether a frozen reference model runs forward beside the policy.", examples=[True]
    )
    roles: RolesDocument = Field(
        default_factory=RolesDocument,
        description="Critic and reward model beside the policy, and epochs over a batch (PPO); absent: none, once.",
        examples=[{"critic": True, "epochs": 2}],
    )
    arrangements: Annotated[list[Arrangement], Field(min_length=1, max_length=len(Arrangement))] = Field(
        list(Arrangement),
        description="Ways to choose from: colocated (trainer and engine take turns on the same GPUs), separate (on "
        "nodes of their own).",
        examples=[["colocated", "separate"]],
    )
    staleness_steps: Annotated[WholeNumber, Field(le=MOST_STALENESS)] = Field(
        0,
        description="Steps that the weights may be old which generated what is learned from: with 1 separate parts "
        "work at once.",
        examples=[1],
    )
    avoid_nodes: list[Text] = Field(
        default_factory=list, max_length=MOST_NODES, description="Nodes to keep away from.", examples=[[]]
    )
    training: TrainerDocument = Field(  # type: ignore[valid-type]  # made above
        default_factory=TrainerDocument,
        description="The trainer.",
        examples=[{"framework": "megatron-bridge-26.04"}],
    )
    rollout: RolloutEngineDocument = Field(  # type: ignore[valid-type]  # made above
        default_factory=RolloutEngineDocument, description="The rollout engine.", examples=[{"engine": "vllm-0.16"}]
    )

    def to_value(self, described: Mapping[str, Framework] | None = None) -> ReinforcementWorkload:
        """The domain value; raises ``InvalidDocument`` or ``InvalidWorkload``.

        ``described`` are frameworks that may be named besides the shipped ones.
        """
        check_batch(self.prompts, self.samples_per_prompt, self.updates)
        with _in_part("workload"):
            prompts = lengths_of(self.prompt_tokens, "prompt_tokens")
            responses = lengths_of(self.response_tokens, "response_tokens")
        with _in_part("workload.training"):
            base = WorkloadDocument(sequence_length=1, global_batch_sequences=1, **_given(self.training))
            own = base.to_value(described)
        with _in_part("workload.rollout"):
            served = ServingWorkloadDocument(
                kind="serving", input_tokens=1, output_tokens=1, concurrency=1.0, **_given(self.rollout)
            )
            engine = served.to_workload()
            pinned = served.to_goal().pinned
        every = [each.name for each in dataclasses.fields(TrainingWorkload) if each.name not in _FOLLOWS]
        total = self.prompts * self.samples_per_prompt
        return ReinforcementWorkload(
            prompts=self.prompts,
            samples=self.samples_per_prompt,
            prompt_tokens=prompts,
            response_tokens=responses,
            training=update_of(
                prompts,
                responses,
                responses=total // self.updates,
                context_tokens=self.context_tokens,
                reference=self.reference,
                roles=self.roles.to_value(),
                **{name: getattr(own, name) for name in every},
            ),
            rollout=rollout_of(
                prompts,
                responses,
                prompts=self.prompts,
                samples=self.samples_per_prompt,
                weights=engine.weights,
                attention_weights=engine.attention_weights,
                cache=engine.cache,
                engine=engine.engine,
                speculation=engine.speculation,
                memory_fraction=engine.memory_fraction,
                prefill_imbalance=engine.prefill_imbalance,
                decode_imbalance=engine.decode_imbalance,
            ),
            updates=self.updates,
            arrangements=tuple(dict.fromkeys(self.arrangements)),
            staleness=self.staleness_steps,
            avoid_nodes=tuple(self.avoid_nodes),
            pinned=pinned,
        )

    @classmethod
    def from_value(cls, value: ReinforcementWorkload, architecture: Architecture) -> ReinforcementWorkloadDocument:
        """The document of a workload of that policy."""
        trained = WorkloadDocument.from_value(value.training)
        served = ServingWorkloadDocument.from_served(ServedModel(architecture, value.rollout))
        return cls(
            kind="reinforcement",
            prompts=value.prompts,
            samples_per_prompt=value.samples,
            prompt_tokens=tokens_of(value.prompt_tokens),
            response_tokens=tokens_of(value.response_tokens),
            context_tokens=value.training.sequence_length,
            updates=value.updates,
            reference=value.training.method.has_reference,
            roles=RolesDocument.from_value(value.training.roles),
            arrangements=list(value.arrangements),
            staleness_steps=value.staleness,
            avoid_nodes=list(value.avoid_nodes),
            training=TrainerDocument(**{name: getattr(trained, name) for name in _TRAINING}),
            rollout=RolloutEngineDocument(
                **{name: getattr(served, name) for name in _ROLLOUT} | {"pinned": dict(value.pinned)}
            ),
        )


def _given(document: Document) -> dict[str, Any]:
    """The fields that were given."""
    return {name: getattr(document, name) for name in document.model_fields_set}


@contextmanager
def _in_part(place: str) -> Iterator[None]:
    """Give errors of a part's own document the place that the part has in the workload."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidDocument(
            [
                FieldProblem(
                    f"{place}.{each.field.removeprefix('workload.')}", each.value, each.problem, each.remedy
                )
                for each in problems_of(error)
            ]
        ) from error
