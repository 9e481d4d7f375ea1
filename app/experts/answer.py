"""A placement of experts as the API and ``--json`` answer it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from app.documents.reading import Count, Document
from app.documents.routing import Layer
from app.experts.advice import next_steps, warnings_of
from app.experts.budget import MOST_RANKS, MOST_SLOTS
from app.experts.judging import Verdict
from app.experts.locality_answer import FollowedAnswer, LocalityAnswer, followed_answer
from app.experts.placing import Proposal
from app.experts.request import BALANCE, BOTH, LOCALITY, Prepared
from cluster_models.training.expert_slots import ExpertSlots
from cluster_models.units import GBIT, MILLISECOND
from readers.routing.reading import MOST_EXPERTS, MOST_LAYERS
from solver.experts.dispatch import LayerTimes
from solver.experts.loads import CopyChoice

Row = Annotated[list[Annotated[int, Field(strict=True, ge=0, lt=MOST_EXPERTS)]], Field(max_length=MOST_SLOTS)]


class ExpertMapDocument(Document):
    """Expert of each slot: what an export takes and a placement answers."""

    layers: list[Layer] = Field(
        min_length=1,
        max_length=MOST_LAYERS,
        description="Decoder layers that have experts, increasing.",
        examples=[[3, 4]],
    )
    experts: Annotated[Count, Field(le=MOST_EXPERTS)] = Field(description="Experts of a layer.", examples=[4])
    ranks: Annotated[Count, Field(le=MOST_RANKS)] = Field(
        description="Expert ranks; slots of each are consecutive.", examples=[2]
    )
    physical_to_logical_map: list[Row] = Field(
        min_length=1,
        max_length=MOST_LAYERS,
        description="For each layer the expert in each slot.",
        examples=[[[0, 3, 1, 2], [0, 1, 2, 3]]],
    )

    def to_slots(self) -> ExpertSlots:
        """The domain value; raises ``InvalidConfiguration``."""
        rows = tuple(tuple(row) for row in self.physical_to_logical_map)
        return ExpertSlots(tuple(self.layers), rows, self.experts, self.ranks)

    @classmethod
    def from_slots(cls, slots: ExpertSlots) -> ExpertMapDocument:
        """The document of a map."""
        return cls.model_construct(
            layers=list(slots.layers),
            experts=slots.experts,
            ranks=slots.ranks,
            physical_to_logical_map=[list(row) for row in slots.slots],
        )


class TimesAnswer(BaseModel):
    """Predicted time of all layers together, one after the other, and what crosses nodes.

    All figures but the two of the choices are those under ``copy_choice``.
    """

    copy_choice: Literal["nearest", "any"] = Field(
        description="Which copies serve tokens: as asked, else the choice that makes this map slower.",
        examples=["any"],
    )
    nearest_ms: float = Field(description="This map where the nearest copy serves.", examples=[20.4])
    any_ms: float = Field(description="This map where each copy is as likely to serve.", examples=[21.9])
    layers_ms: float = Field(description="This map.", examples=[20.4])
    in_order_ms: float = Field(description="Experts in their order.", examples=[31.9])
    balance_alone_ms: float = Field(description="The map that balances best and knows no nodes.", examples=[24.0])
    least_ms: float = Field(description="No map takes less.", examples=[11.0])
    compute_ms: float = Field(description="Products of the slowest rank with this map.", examples=[7.2])
    between_nodes_ms: float = Field(
        description="Dispatch and combination between nodes with this map.", examples=[9.1]
    )
    inside_node_ms: float = Field(
        description="Dispatch and combination inside nodes with this map.", examples=[4.1]
    )
    nodes_crossed: float = Field(description="Other nodes that a token needs, mean.", examples=[1.7])
    in_order_nodes_crossed: float = Field(description="The same of experts in their order.", examples=[2.5])
    traffic: list[list[float]] = Field(
        description="Share of the tokens of each node, a row, that go to each other node with this map.",
        examples=[[[0.0, 0.8], [0.7, 0.0]]],
    )
    in_order_traffic: list[list[float]] = Field(
        description="The same of experts in their order.", examples=[[[0.0, 1.0], [1.0, 0.0]]]
    )


class LayerAnswer(BaseModel):
    """One layer of one workload."""

    layer: int = Field(description="Decoder layer.", examples=[3])
    balancedness: float = Field(description="Mean over maximum rank load.", examples=[0.99])
    in_order: float = Field(description="The same of experts in their order.", examples=[0.44])
    bound: float = Field(description="No map exceeds it.", examples=[1.0])


class JudgedWorkload(BaseModel):
    """Worth of the map for one workload."""

    name: str = Field(description="The workload.", examples=["prefill"])
    planned: bool = Field(description="Whether the map was planned for it.", examples=[True])
    weight: float | None = Field(description="Its weight; null where the worst counts.", examples=[None])
    balancedness: float | None = Field(
        description="Mean over layers of mean over maximum rank load, under the choice of copies that was asked "
        "for, else where each copy is as likely to serve; null without common layers.",
        examples=[0.99],
    )
    nearest_balancedness: float | None = Field(
        description="The balancedness where the nearest copy serves, as in SGLang's static dispatch.",
        examples=[0.96],
    )
    any_balancedness: float | None = Field(
        description="The balancedness where each copy is as likely to serve.", examples=[0.99]
    )
    in_order: float | None = Field(
        description="The same of experts in their order, repeated to fill the slots.", examples=[0.44]
    )
    bound: float | None = Field(description="No map exceeds it on this workload alone.", examples=[1.0])
    node_local_share: float | None = Field(
        description="Share of selections that a copy on their node can serve, with tokens spread over the nodes.",
        examples=[0.31],
    )
    in_order_node_local_share: float | None = Field(description="The same of the order.", examples=[0.25])
    times: TimesAnswer | None = Field(description="Predicted times, where nodes were weighed.")
    locality: LocalityAnswer | None = Field(
        description="Share that stays from layer to layer; null without counted transitions, and with copies."
    )
    layers: list[LayerAnswer] = Field(description="Layer by layer.")


class PlacementAnswer(BaseModel):
    """Placement of experts, and its worth."""

    placement: ExpertMapDocument = Field(description="The map.")
    objective: Literal["balance", "locality"] = Field(description="As asked.", examples=["balance"])
    locality: FollowedAnswer | None = Field(
        description="Locality that a map by transitions keeps; null with objective balance."
    )
    balancedness: float = Field(
        description="Weighted mean over the workloads planned for, or the worst of them.", examples=[0.99]
    )
    bound: float = Field(description="No map exceeds it.", examples=[1.0])
    nodes: int = Field(description="Nodes of the layout.", examples=[4])
    slots: int = Field(description="Slots of a layer.", examples=[288])
    nodes_weighed: bool = Field(description="Whether the map minimises time with links, not balance alone.")
    between_nodes_gbit_per_s_per_gpu: float | None = Field(
        description="Speed that was counted with; null where nodes were not weighed.", examples=[100.0]
    )
    copy_choice: Literal["nearest", "any", "both"] | None = Field(
        description="Which copies were taken to serve tokens; null where no expert has copies.",
        examples=["both"],
    )
    workloads: list[JudgedWorkload] = Field(description="Worth of the map, workload by workload.")
    warnings: list[str] = Field(description="Where the map will disappoint.")
    next_steps: list[str] = Field(description="Ways to make it better.")
    assumptions: list[str] = Field(description="What was taken for want of something given.")
    search_steps: int = Field(description="Steps of the search by loads, for each layer.", examples=[20000])
    search_proposals: int = Field(description="Proposals of the search over nodes; 0 without.", examples=[60000])


def answer_of(proposal: Proposal, asked: Prepared) -> PlacementAnswer:
    """The answer for a placement."""
    terms = proposal.ask.terms if proposal.ask.layout.nodes > 1 else None
    weights = proposal.ask.weights or {}
    return PlacementAnswer(
        placement=ExpertMapDocument.from_slots(proposal.slots),
        objective=BALANCE if proposal.chained is None else LOCALITY,
        locality=followed_answer(proposal.chained, proposal.ask.chain),
        balancedness=proposal.worth,
        bound=proposal.bound,
        nodes=proposal.ask.layout.nodes,
        slots=proposal.ask.layout.slots,
        nodes_weighed=terms is not None,
        between_nodes_gbit_per_s_per_gpu=None if terms is None else terms.rates.between_bytes_per_s / GBIT,
        copy_choice=_choice(proposal),
        workloads=[_judged(each, weights.get(each.name)) for each in proposal.verdicts],
        warnings=list(warnings_of(proposal)),
        next_steps=list(next_steps(proposal, asked.workloads)),
        assumptions=list(asked.assumed),
        search_steps=proposal.budget.steps,
        search_proposals=0 if terms is None else proposal.budget.proposals,
    )


def _judged(verdict: Verdict, weight: float | None) -> JudgedWorkload:
    told = bool(verdict.layers)
    rows = zip(verdict.layers, verdict.balancedness, verdict.in_order, verdict.bound, strict=True)
    return JudgedWorkload(
        name=verdict.name,
        planned=verdict.planned,
        weight=weight,
        balancedness=float(verdict.balancedness.mean()) if told else None,
        nearest_balancedness=float(verdict.by_choice[CopyChoice.NEAREST].mean()) if told else None,
        any_balancedness=float(verdict.by_choice[CopyChoice.ANY].mean()) if told else None,
        in_order=float(verdict.in_order.mean()) if told else None,
        bound=float(verdict.bound.mean()) if told else None,
        node_local_share=verdict.node_local_share if told else None,
        in_order_node_local_share=verdict.in_order_node_local_share if told else None,
        times=_times(verdict),
        locality=verdict.locality and LocalityAnswer.from_value(verdict.locality),
        layers=[
            LayerAnswer(layer=layer, balancedness=float(own), in_order=float(plain), bound=float(bound))
            for layer, own, plain, bound in rows
        ],
    )


def _choice(proposal: Proposal) -> Literal["nearest", "any", "both"] | None:
    if proposal.ask.layout.slots == proposal.slots.experts:
        return None
    return BOTH if proposal.ask.choice is None else proposal.ask.choice.value


def _times(verdict: Verdict) -> TimesAnswer | None:
    times = verdict.times
    if times is None:
        return None
    own = times.own
    return TimesAnswer(
        copy_choice=times.counted.value,
        nearest_ms=_ms(times.by_choice[CopyChoice.NEAREST]),
        any_ms=_ms(times.by_choice[CopyChoice.ANY]),
        layers_ms=_ms(own),
        in_order_ms=_ms(times.in_order),
        balance_alone_ms=_ms(times.balanced),
        least_ms=float(times.least_s.sum()) / MILLISECOND,
        compute_ms=float(own.compute_s.sum()) / MILLISECOND,
        between_nodes_ms=float(own.between_s.sum()) / MILLISECOND,
        inside_node_ms=float(own.inside_s.sum()) / MILLISECOND,
        nodes_crossed=float(own.crossing.mean()),
        in_order_nodes_crossed=float(times.in_order.crossing.mean()),
        traffic=own.traffic.round(6).tolist(),
        in_order_traffic=times.in_order.traffic.round(6).tolist(),
    )


def _ms(times: LayerTimes) -> float:
    return float(times.total_s.sum()) / MILLISECOND
