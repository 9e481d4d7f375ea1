"""Fleets as users write them, and the fleet plan that they get."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from app.documents.plan import PlanDocument
from app.documents.reading import Count, Document, Flag, Positive, Text
from app.documents.values import Given, Holds, ValueDocument
from cluster_models.fleet.jobs import FleetObjective
from cluster_models.fleet.plan import CurvePoint, FleetPlan, FleetShare, NoFleetPlan, NoFleetReason
from cluster_models.training.plan import StopReason
from cluster_models.units import DAY, TFLOP

MOST_JOBS: Final = 64
MOST_OFFERS: Final = 16
MOST_OFFERED_NODES: Final = 512


class OfferDocument(Document):
    """Nodes that could be rented."""

    node_kind: Text = Field(description="A node kind of the catalogue.", examples=["DGX H100/H200"])
    gpu_kind: Text | None = Field(
        None, description="Its GPU kind, where it is sold with several.", examples=["H100-SXM5-80GB"]
    )
    nodes: Annotated[Count, Field(le=MOST_OFFERED_NODES)] = Field(description="How many at most.", examples=[8])
    usd_per_node_hour: Positive | None = Field(
        None, description="Price of a node; absent = its list price.", examples=[24.0]
    )


class FleetLimits(Document):
    """Worth and limits of a job."""

    weight: Positive = Field(1.0, description="Worth of a FLOP of its work.", examples=[1.0])
    tokens: Positive | None = Field(
        None, description="Tokens that it still has to be trained on.", examples=[1.5e12]
    )
    deadline_days: Positive | None = Field(
        None, description="Days within which it must be; it may not wait then.", examples=[30.0]
    )
    budget_usd: Positive | None = Field(
        None, description="Most that it may cost in all, of rented nodes.", examples=[250000.0]
    )
    least_gpus: Count = Field(1, description="Fewer GPUs than that are of no use to it.", examples=[64])
    most_gpus: Count | None = Field(None, description="It gets no more than that.", examples=[512])
    required: Flag = Field(False, description="Whether it must run; others may wait.", examples=[False])


class CurvePointDocument(ValueDocument[CurvePoint]):
    """A job on so many nodes of a pool."""

    job: str = Field(description="The job.", examples=["pretrain-a"])
    pool: str = Field(description="The pool.", examples=["h100-17-nodes H100-SXM5-80GB"])
    nodes: int = Field(description="Nodes.", examples=[8])
    gpus: int = Field(description="GPUs of them.", examples=[64])
    bound_step_s: float = Field(description="A step that no plan there beats.", examples=[11.2])
    step_s: float | None = Field(
        description="Step of the plan that was made there as if the job were alone; null where none was needed.",
        examples=[11.3],
    )


class FleetShareDocument(ValueDocument[FleetShare]):
    """Share of one job."""

    job: str = Field(description="The job.", examples=["pretrain-a"])
    pool: str = Field(description="Where its nodes are.", examples=["h100-17-nodes H100-SXM5-80GB"])
    nodes: list[str] = Field(description="Its nodes, which no other job has.", examples=[["cnode2-001"]])
    gpus: int = Field(description="GPUs that its plan uses.", examples=[64])
    tokens_per_s: float = Field(description="Throughput.", examples=[180000.0])
    model_tflops_per_s: Annotated[float, Holds("flops_per_s", TFLOP)] = Field(
        description="Model FLOP a second, in 10^12.", examples=[27000.0]
    )
    usd_per_hour: float = Field(description="Price of its rented nodes.", examples=[0.0])
    ends_after_days: Annotated[float | None, Holds("ends_after_s", DAY)] = Field(
        description="Until all its tokens are trained on; null where it does not say how many.", examples=[21.5]
    )
    usd_in_all: float | None = Field(description="What that costs; null likewise.", examples=[0.0])
    plan: PlanDocument = Field(description="Its plan in full, to be carried out or registered as a job's.")


class FleetPlanDocument(ValueDocument[FleetPlan]):
    """The share of each job, and how far from optimal that can be."""

    result: Annotated[Literal["fleet_plan"], Given()] = Field("fleet_plan", description="no_fleet_plan: none.")
    objective: FleetObjective = Field(
        description="work: most weighted model FLOP a second; cost: least rent with every deadline kept.",
        examples=["work"],
    )
    shares: list[FleetShareDocument] = Field(description="Jobs that run.")
    waiting: list[str] = Field(description="Jobs that wait.", examples=[[]])
    value: float = Field(description="The objective: weighted FLOP/s, or US dollars an hour.", examples=[5.4e16])
    bound: float = Field(
        description="What no fleet plan reaches whose jobs use a number of nodes that stands in curves.",
        examples=[5.5e16],
    )
    gap: float = Field(description="Distance of the two over value.", examples=[0.01])
    usd_per_hour: float = Field(description="Rent in all.", examples=[0.0])
    stopped_by: StopReason = Field(description="Why the search ended.", examples=["proven"])
    plans_made: int = Field(description="Plans of single jobs that it took.", examples=[14])
    solver: str = Field(description="Integer programming solver.", examples=["cbc 3.3.2"])
    curves: list[CurvePointDocument] = Field(description="Steps of each job by number of nodes.")


class NoFleetPlanDocument(ValueDocument[NoFleetPlan]):
    """Why no fleet plan is possible."""

    result: Annotated[Literal["no_fleet_plan"], Given()] = Field("no_fleet_plan", description="fleet_plan: one is.")
    reason: NoFleetReason = Field(
        description="job_fits_nowhere, deadline (or the job's budget, even alone), not_together (nodes and budget "
        "do not suffice for all that must run), nothing_runs, or not_found (in the time that there was).",
        examples=["deadline"],
    )
    jobs: list[str] = Field(description="The jobs that it concerns.", examples=[["pretrain-a"]])
    curves: list[CurvePointDocument] = Field(description="Steps of each job by number of nodes.")


def fleet_document(result: FleetPlan | NoFleetPlan) -> FleetPlanDocument | NoFleetPlanDocument:
    """The document of whatever the planner of fleets returns."""
    if isinstance(result, NoFleetPlan):
        return NoFleetPlanDocument.from_value(result)
    shares = [
        FleetShareDocument.from_value(share, plan=PlanDocument.from_plan(share.plan, timeline=False))
        for share in result.shares
    ]
    return FleetPlanDocument.from_value(result, shares=shares)
