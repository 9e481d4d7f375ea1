"""Planning requests, as users write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from app.documents.calibration import CalibrationDocument
from app.documents.cluster import ClusterDocument
from app.documents.configuration import ConfigurationDocument
from app.documents.fleet import MOST_JOBS, MOST_OFFERS, FleetLimits, OfferDocument
from app.documents.reading import CHOICE, Count, Document, Flag, NotNegative, Positive, Text, WholeNumber
from app.documents.reinforcement import ReinforcementWorkloadDocument
from app.documents.routing import MOST_WORKLOADS, RoutingDocument
from app.documents.serving import ServingConfigurationDocument, ServingWorkloadDocument
from app.documents.workload import WorkloadDocument
from cluster_models.fleet.jobs import FleetObjective
from solver.fitting.report import MOST_EXPERIMENTS
from solver.problem import Backend, SearchOptions

MOST_SERVED = 50
BY_NAME = "by_name"
IN_FULL = "in_full"
_DEFAULT = SearchOptions()


def _spelling(value: object) -> str:
    return BY_NAME if isinstance(value, str) else IN_FULL


ClusterReference = Annotated[
    Annotated[Text, Tag(BY_NAME)] | Annotated[ClusterDocument, Tag(IN_FULL)],
    Discriminator(_spelling),
    Field(
        description="Name or id of a stored cluster, or a cluster in full.",
        examples=["h100-17-nodes"],
    ),
]
ModelReference = Annotated[
    Annotated[Text, Tag(BY_NAME)] | Annotated[dict[str, Any], Tag(IN_FULL)],
    Discriminator(_spelling),
    Field(
        description="Name of a stored or catalogue model, or a model in full: a model document, the content of a "
        "Hugging Face config.json, or an architecture.",
        examples=["llama-3-70b"],
    ),
]


CalibrationReference = Annotated[
    Annotated[Text, Tag(BY_NAME)] | Annotated[CalibrationDocument, Tag(IN_FULL)],
    Discriminator(_spelling),
]


RoutingReference = Annotated[
    Annotated[Text, Tag(BY_NAME)] | Annotated[RoutingDocument, Tag(IN_FULL)],
    Discriminator(_spelling),
    Field(
        description="Name of stored routing statistics, or counts in full: workloads, or one logical_count.",
        examples=["deepseek-r1"],
    ),
]


RoutingWeights = Annotated[dict[Text, NotNegative], Field(max_length=MOST_WORKLOADS)]


class OptionsDocument(Document):
    """How hard to search."""

    time_limit_s: Positive | None = Field(
        None, description="Seconds after which the search stops; absent = the service's default.", examples=[60.0]
    )
    effort: Annotated[Count, Field(le=100)] = Field(
        _DEFAULT.effort, description="Scales every work budget of the search.", examples=[1]
    )
    seed: Annotated[WholeNumber, Field(le=2**31 - 1)] = Field(
        _DEFAULT.seed, description="Equal seeds give equal plans.", examples=[0]
    )
    gap: NotNegative = Field(
        _DEFAULT.gap,
        lt=1,
        description="The search stops once no plan can be better by more than this fraction.",
        examples=[0.001],
    )
    backend: Backend = Field(
        _DEFAULT.backend, description="Integer programming solver that proves the placement.", examples=["cbc"]
    )
    alternatives: Annotated[WholeNumber, Field(le=50)] = Field(
        _DEFAULT.alternatives, description="Next-best configurations to list.", examples=[5]
    )


class ClusterRequest(Document):
    """A cluster at one moment."""

    cluster: ClusterReference
    snapshot: Text | None = Field(
        None,
        description="Id of a stored snapshot of the cluster; absent = the cluster as it is now.",
        examples=["7f6d1c0f9a3b2e45"],
    )
    as_stored: Flag = Field(
        False,
        description="Plan on a stored cluster as it is stored, GPUs that running jobs hold and parts reported as "
        "failed included; absent = on what is free and works. Goes with no snapshot, which is as it was frozen.",
        examples=[False],
    )


class ProblemRequest(ClusterRequest):
    """A cluster, a model and a workload."""

    model: ModelReference
    workload: WorkloadDocument = Field(description="What is to be trained.")
    calibration: CalibrationReference | None = Field(
        None,
        description="Name of a stored calibration, or a calibration in full; absent = the shipped parameters.",
        examples=["our-h100"],
    )
    routing: RoutingReference | None = Field(
        None,
        description="How tokens were routed: name of stored routing statistics, or counts in full. Experts are "
        "placed for them and priced with the balance they then have; absent = the calibrated imbalance.",
        examples=[None],
    )
    routing_weights: RoutingWeights | None = Field(
        None,
        description="Weight of each workload of routing in what experts are placed for; those left out have none "
        "and are judged only. Absent = all alike.",
        examples=[None],
    )
    keep_expert_order: Flag = Field(
        False,
        description="Leave experts in contiguous blocks, for checkpoints that cannot be permuted.",
        examples=[False],
    )


class SearchRequest(Document):
    """A search that waits for its turn."""

    options: OptionsDocument = Field(
        default_factory=OptionsDocument, description="How hard the search tries, and for how long."
    )
    background: Flag = Field(
        False, description="Whether it lets all others go first, of whatever tenant.", examples=[False]
    )


class PlanRequest(ProblemRequest, SearchRequest):
    """A plan that is wanted."""


class ExperimentsRequest(ProblemRequest):
    """Request for the runs that tell most of a model and a workload on a cluster."""

    runs: Annotated[Count, Field(le=MOST_EXPERIMENTS)] = Field(6, description="How many at most.", examples=[6])


class PredictionRequest(ProblemRequest):
    """A configuration given in full, to be priced without a search."""

    configuration: ConfigurationDocument = Field(description="The configuration in full.")
    timeline: Flag = Field(False, description="Whether to return the predicted schedule, too.", examples=[False])


class ServedModelRequest(Document):
    """One more model to serve."""

    model: ModelReference
    workload: ServingWorkloadDocument = Field(description="Requests to it; the goal is that of the first model.")


class ServingProblemRequest(ClusterRequest):
    """Models to serve on a cluster."""

    model: ModelReference
    workload: ServingWorkloadDocument = Field(description="Requests, the engine that answers them, and the goal.")
    calibration: CalibrationReference | None = Field(
        None,
        description="Name of a stored calibration, or one in full; absent = the shipped rates.",
        examples=[None],
    )
    others: Annotated[list[ServedModelRequest], Field(max_length=MOST_SERVED)] = Field(
        default_factory=list, description="More models to serve on the same cluster.", examples=[[]]
    )


class ServingPlanRequest(ServingProblemRequest, SearchRequest):
    """A plan of serving that is wanted."""


class ReinforcementPlanRequest(ClusterRequest, SearchRequest):
    """A joint plan of reinforcement learning that is wanted."""

    model: ModelReference
    workload: ReinforcementWorkloadDocument = Field(description="The steps, the trainer and the rollout engine.")
    calibration: CalibrationReference | None = Field(
        None,
        description="Name of a stored calibration, or one in full; absent = the shipped parameters.",
        examples=[None],
    )


class FleetJobRequest(FleetLimits):
    """A job of a fleet."""

    name: Text = Field(description="Its name.", examples=["pretrain-a"])
    model: ModelReference
    workload: WorkloadDocument = Field(description="What is to be trained.")


class FleetDocument(Document):
    """Jobs that share out the GPUs of a cluster, and what could be rented for them."""

    jobs: Annotated[list[FleetJobRequest], Field(min_length=1, max_length=MOST_JOBS)] | None = Field(
        None, description="The jobs; null = those that run on the stored cluster, with their weights."
    )
    fleet: FleetObjective = Field(
        description="work: most weighted model FLOP a second; cost: least rent with every deadline kept.",
        examples=["work"],
    )
    offers: Annotated[list[OfferDocument], Field(max_length=MOST_OFFERS)] = Field(
        default_factory=list, description="Nodes that could be rented besides.", examples=[[]]
    )
    budget_usd_per_hour: NotNegative | None = Field(
        None, description="Rent in all at most; absent = any, for cost alone.", examples=[500.0]
    )
    calibration: CalibrationReference | None = Field(
        None,
        description="Name of a stored calibration, or one in full; absent = the shipped parameters.",
        examples=[None],
    )


class FleetPlanRequest(ClusterRequest, FleetDocument, SearchRequest):
    """A fleet plan that is wanted: how many GPUs each job gets, on which nodes."""


def _kind(value: object) -> str:
    """The tag of a request for a plan, by the kind that its workload names; a fleet has an objective of its own."""
    if (value.get("fleet") if isinstance(value, Mapping) else getattr(value, "fleet", None)) is not None:
        return f"{CHOICE}fleet"
    workload = value.get("workload") if isinstance(value, Mapping) else getattr(value, "workload", None)
    kind = workload.get("kind") if isinstance(workload, Mapping) else getattr(workload, "kind", None)
    return f"{CHOICE}{kind}" if kind in ("serving", "reinforcement") else f"{CHOICE}training"


AnyPlanRequest = Annotated[
    Annotated[PlanRequest, Tag(f"{CHOICE}training")]
    | Annotated[ServingPlanRequest, Tag(f"{CHOICE}serving")]
    | Annotated[ReinforcementPlanRequest, Tag(f"{CHOICE}reinforcement")]
    | Annotated[FleetPlanRequest, Tag(f"{CHOICE}fleet")],
    Discriminator(_kind),
]
"""A request for a plan: of training, of the ``kind`` that its workload says, or of a ``fleet``."""
AnyProblemRequest = Annotated[
    Annotated[ProblemRequest, Tag(f"{CHOICE}training")] | Annotated[ServingProblemRequest, Tag(f"{CHOICE}serving")],
    Discriminator(lambda value: kind if (kind := _kind(value)) == f"{CHOICE}serving" else f"{CHOICE}training"),
]
"""A problem of training, or of serving where its workload says ``kind: serving``."""


class ServingPredictionRequest(ClusterRequest):
    """A serving configuration given in full, to be priced."""

    model: ModelReference
    workload: ServingWorkloadDocument = Field(description="Requests, and the engine that answers them.")
    calibration: CalibrationReference | None = Field(
        None,
        description="Name of a stored calibration, or one in full; absent = the shipped rates.",
        examples=[None],
    )
    configuration: ServingConfigurationDocument = Field(description="Workers that answer them.")
