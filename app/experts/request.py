"""Requests for placements of experts, as users write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from pydantic import Discriminator, Field, Tag

from app.documents.reading import CHOICE, Count, Document, Flag, Positive, Text, WholeNumber, close_name
from app.documents.routing import MOST_WORKLOADS
from app.experts.budget import MOST_RANKS, MOST_SLOTS
from app.experts.following import check_transitions, limits_of
from app.experts.links import Given, prices_of, terms_of
from app.experts.wanted import Ask, ChainTerms
from app.services.planning.requests import ModelReference, RoutingReference
from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import RoutedWorkload
from solver.experts.dispatch import RouterRule
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice

MOST_EFFORT: Final = 3
BALANCE: Final = "balance"
LOCALITY: Final = "locality"
"""Goal that a placement raises first."""
LEAST_LOCALITY: Final = 0.98
BOTH: Final = "both"
"""Either choice of copies may come."""
SERVED_BY: Final = {"sglang": CopyChoice.NEAREST, "trtllm": CopyChoice.ANY, "vllm-ascend": CopyChoice.ANY}
"""How engines choose copies, by the format of their files: SGLang takes static dispatch with any map it loads."""
_LIST, _WEIGHTS = f"{CHOICE}list", f"{CHOICE}weights"

Weight = Annotated[float, Field(strict=True, ge=1e-9, le=1e9, allow_inf_nan=False)]

Speed = Annotated[float, Field(strict=True, ge=1e-3, le=1e3, allow_inf_nan=False)]
Planned = Annotated[
    Annotated[list[Text], Field(min_length=1, max_length=MOST_WORKLOADS), Tag(_LIST)]
    | Annotated[dict[Text, Weight], Field(min_length=1, max_length=MOST_WORKLOADS), Tag(_WEIGHTS)],
    Discriminator(lambda value: _LIST if isinstance(value, list) else _WEIGHTS),
]


class RouterDocument(Document):
    """How a router selects the experts of a token."""

    active: Count = Field(description="Experts of a token.", examples=[8])
    groups: Count = Field(1, description="Equal groups of consecutive experts; 1 = none.", examples=[8])
    active_groups: Count | None = Field(
        None, description="Groups that the experts of a token come from; absent = all.", examples=[4]
    )

    def to_rule(self) -> RouterRule:
        """The domain value."""
        return RouterRule(
            self.active, self.groups, self.groups if self.active_groups is None else self.active_groups
        )


class LayoutFields(Document):
    """Ranks, nodes and slots that experts are spread over."""

    ranks: Annotated[Count, Field(le=MOST_RANKS)] = Field(description="Expert ranks (GPUs).", examples=[32])
    nodes: Annotated[Count, Field(le=MOST_RANKS)] = Field(
        1, description="Nodes; the ranks of each are consecutive.", examples=[4]
    )
    slots: Annotated[Count, Field(le=MOST_SLOTS)] | None = Field(
        None, description="Slots of a layer on all ranks together; absent = one for each expert.", examples=[288]
    )
    redundant_experts: Annotated[WholeNumber, Field(le=MOST_SLOTS)] | None = Field(
        None, description="Instead of slots: how many more than experts.", examples=[32]
    )
    speeds: list[Speed] | None = Field(
        None,
        max_length=MOST_RANKS,
        description="How fast each rank computes beside the others, from 0.001 to 1000; absent = equally fast.",
        examples=[None],
    )

    def to_layout(self, experts: int) -> ExpertLayout:
        """The domain value for a model with so many experts; raises ``InvalidInput`` with fields of ours."""
        if self.slots is not None and self.redundant_experts is not None:
            raise InvalidInput(
                "redundant_experts", self.redundant_experts, "conflicts with slots", "give one of them"
            )
        slots = self.slots
        if slots is None:
            slots = experts + (self.redundant_experts or 0)
        with own_fields():
            layout = ExpertLayout(self.ranks, self.nodes, slots, tuple(self.speeds or ()))
            layout.check(experts)
        return layout


class LinkFields(Document):
    """Facts on model, router, GPUs and links; they decide whether and how nodes are weighed."""

    model: ModelReference | None = Field(None, description="The model that was recorded, by name or in full.")
    router: RouterDocument | None = Field(None, description="Its router, where no model is named.")
    cluster: Text | None = Field(
        None, description="Stored cluster whose measured links and GPU kind count.", examples=["h100-17-nodes"]
    )
    between_nodes_gbit_per_s_per_gpu: Positive | None = Field(
        None,
        le=1e6,
        description="Rate of a GPU's share of its node's NICs in one direction.",
        examples=[400.0],
    )
    inside_node_gbit_per_s_per_gpu: Positive | None = Field(
        None, le=1e6, description="Rate at which a GPU sends to others of its node.", examples=[2880.0]
    )
    gpu_kind: Text | None = Field(None, description="GPU kind of the catalogue.", examples=["H100-SXM5-80GB"])
    tokens_per_gpu: Positive | None = Field(
        None,
        le=1e9,
        description="Tokens of each GPU in a step; absent = 4096, and 128 to rebalance for workloads named decode.",
        examples=[4096.0],
    )


class PlacementFields(LayoutFields, LinkFields):
    """All of a placement that is wanted but the counts."""

    workloads: Planned | None = Field(
        None,
        description="Workloads to plan for: a list (the worst of them counts) or weights by name (their mean "
        "counts); absent = all, the worst counts.",
        examples=[{"prefill": 2.0, "decode": 1.0}],
    )
    copy_choice: Literal["nearest", "any", "both"] = Field(
        BOTH,
        description="Which copy of an expert serves a token: nearest = the one on its own GPU, else the first of "
        "its node, else any (SGLang's static dispatch); any = each as likely (vLLM, TensorRT-LLM, SGLang's dynamic "
        "dispatch); both = not known, so that neither may cost much where nodes are weighed, and balance is that "
        "of any. Absent: as the engine of the format that is asked for, else both.",
        examples=["nearest"],
    )
    objective: Literal["balance", "locality"] = Field(
        BALANCE,
        description="balance = even loads of ranks and, where nodes are weighed, the least time of the layers; "
        "locality = tokens stay on their GPU, or in their node, from layer to layer, and what is left goes into "
        "balance. Locality needs counted transitions and takes no copies; a set is placed for its mean.",
        examples=["balance"],
    )
    least_locality: Annotated[float, Field(strict=True, ge=0, le=1)] | None = Field(
        None,
        description="With objective locality: share of the best locality found that must be kept while ranks are "
        "balanced; absent = 0.98.",
        examples=[None],
    )
    judge_others: Flag = Field(
        True, description="Whether to say what the map is worth for the other workloads, too.", examples=[True]
    )
    seed: Annotated[WholeNumber, Field(le=2**31 - 1)] = Field(
        0, description="Equal seeds give equal maps.", examples=[0]
    )
    effort: Annotated[Count, Field(le=MOST_EFFORT)] = Field(
        1, description="Scales the work of the search.", examples=[1]
    )


class PlacementRequest(PlacementFields):
    """A placement that is wanted."""

    routing: RoutingReference


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request with everything looked up: the workloads to judge on, what is asked, and what was assumed."""

    workloads: tuple[RoutedWorkload, ...]
    ask: Ask
    assumed: tuple[str, ...]


def prepared(
    fields: PlacementFields, workloads: Sequence[RoutedWorkload], given: Given, *, form: str | None = None
) -> Prepared:
    """Placement ``fields`` ask for; raises ``InvalidInput`` with the field of the request.

    ``form``: format of the wanted files, whose engine decides which copies serve where ``fields`` do not.
    """
    planned, weights = planned_of(fields.workloads, [workload.name for workload in workloads])
    layout = fields.to_layout(workloads[0].experts)
    with own_fields():
        choice, told = _choice(fields, form if layout.slots > workloads[0].experts else None)
        ask, assumed = _ask(fields, Ask(layout, planned, weights, choice), workloads, given)
    if not fields.judge_others:
        workloads = [workload for workload in workloads if workload.name in planned]
    return Prepared(
        tuple(workloads), replace(ask, seed=fields.seed, effort=float(fields.effort)), (*told, *assumed)
    )


def _choice(fields: PlacementFields, form: str | None) -> tuple[CopyChoice | None, tuple[str, ...]]:
    """Choice of serving copies, as asked or in the engine whose files are wanted, and a sentence where assumed."""
    if "copy_choice" in fields.model_fields_set or form not in SERVED_BY:
        return (None if fields.copy_choice == BOTH else CopyChoice(fields.copy_choice)), ()
    choice = SERVED_BY[form]
    return choice, (f"copies serve tokens as {form} does unless told otherwise: copy choice {choice}",)


def _ask(
    fields: PlacementFields, plain: Ask, workloads: Sequence[RoutedWorkload], given: Given
) -> tuple[Ask, tuple[str, ...]]:
    """The placement with what it minimises, and what was assumed for that."""
    experts = workloads[0].experts
    choice = plain.choice
    if fields.objective == BALANCE:
        if fields.least_locality is not None:
            remedy = "leave it out, or name objective locality"
            raise InvalidInput("least_locality", fields.least_locality, "belongs to objective locality", remedy)
        terms, assumed = terms_of(given, plain.layout, experts, choice)
        if terms is not None:
            terms.rule.check(experts)
        return replace(plain, terms=terms), assumed
    chosen = [workload for workload in workloads if workload.name in plain.planned]
    check_transitions(chosen, plain.layout, fields.redundant_experts)
    prices, assumed = prices_of(given, plain.layout, experts)
    least = LEAST_LOCALITY if fields.least_locality is None else fields.least_locality
    return replace(plain, chain=ChainTerms(prices, least)), (*limits_of(len(chosen), choice), *assumed)


def planned_of(
    asked: list[str] | Mapping[str, float] | None, known: Sequence[str]
) -> tuple[tuple[str, ...], Mapping[str, float] | None]:
    """Names to plan for, and their weights or ``None`` for the worst; raises ``InvalidInput`` for unknown ones."""
    names = list(known) if asked is None else list(asked)
    for position, name in enumerate(names):
        if name not in known:
            field = f"workloads[{position}]" if isinstance(asked, list) else f"workloads.{name}"
            raise InvalidInput(field, name, "is not a workload of these statistics", close_name(name, list(known)))
    if len(set(names)) < len(names):
        raise InvalidInput("workloads", names, "names a workload twice", "name each once")
    weights = dict(asked) if isinstance(asked, Mapping) else None
    return tuple(names), weights


@contextmanager
def own_fields() -> Iterator[None]:
    """Errors raised inside lose the domain's prefix: ``experts.slots`` is ``slots`` of the request."""
    try:
        yield
    except InvalidInput as error:
        field = error.field.removeprefix("experts.")
        raise InvalidInput(field, error.value, error.problem, error.remedy) from error
