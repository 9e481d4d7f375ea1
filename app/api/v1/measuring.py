"""Pairs to measure next, with the scripts that do it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ClusterPath, ServiceDep
from app.documents.reading import Count, Document, Line, Positive, Text
from app.documents.values import Computed, Given, Holds, ValueAnswer
from app.exports.contract import ExportFile
from app.exports.options import options_of
from app.services.clusters import measuring
from app.services.clusters.measuring import Launcher
from cluster_models.cluster.measurements import Collective
from solver.measuring.choose import MeasuringPlan, Wanted
from solver.measuring.sizes import Trial

MOST_PAIRS = 10_000
MOST_SECONDS = 30 * 86_400.0

router = APIRouter(tags=["measurements"], route_class=BodyRoute)


class MeasuringRequest(Document):
    """How much may be measured, and how tests are launched."""

    plan_id: Text | None = Field(
        None, description="Id of a finished plan that the figures are to make surer; absent = any plan."
    )
    most_pairs: Annotated[Count, Field(le=MOST_PAIRS)] = Field(200, description="Pairs of nodes at most.")
    most_seconds: Annotated[Positive, Field(ge=1, le=MOST_SECONDS)] = Field(
        4 * 3600.0, description="Seconds at most, as expected of all rounds."
    )
    launcher: Launcher = Field(
        Launcher.NONE, alias="for", description="What to write scripts for; none = only say which pairs."
    )
    options: dict[Text, Line] = Field(
        default_factory=dict,
        max_length=20,
        description="Options of Kubernetes manifests: image, namespace, gpu_resource, job.",
        examples=[{"image": "registry.example/nccl-tests:2.17", "namespace": "bench"}],
    )


class TrialAnswer(ValueAnswer[Trial]):
    """One call of nccl-tests on a pair."""

    collective: Collective = Field(description="What it runs.", examples=["sendrecv"])
    ranks_per_node: int = Field(description="GPUs of each node.", examples=[8])
    sizes_bytes: Annotated[list[int], Holds("sizes")] = Field(
        description="Message sizes.", examples=[[1048576, 4194304]]
    )


class WantedAnswer(ValueAnswer[Wanted]):
    """One pair to measure."""

    nodes: Annotated[list[str], Holds("pair")] = Field(description="The two nodes.", examples=[["n1", "n2"]])
    round: Annotated[int, Given()] = Field(
        description="Pairs of one round run at once and share no node; from 1.", examples=[1]
    )
    worth: Annotated[str, Computed(lambda wanted: wanted.worth.name.lower())] = Field(
        description="Kind of reason.", examples=["never_measured"]
    )
    why: str = Field(description="The reason in a sentence.")
    gain_s: float = Field(description="Seconds that hang on it.", examples=[0.4])
    trials: list[TrialAnswer] = Field(description="Tests, one after another.")


class ScriptAnswer(ValueAnswer[ExportFile]):
    """A file to run or apply."""

    name: str = Field(description="File name.", examples=["measure.sh"])
    text: str = Field(description="Its content.")
    executable: bool = Field(description="Whether it is a program.", examples=[True])


class MeasuringAnswer(BaseModel):
    """Measurements to make next."""

    rounds: int = Field(description="Rounds, one after another.", examples=[16])
    expected_s: float = Field(description="About how long all rounds take, in seconds.", examples=[1900.0])
    left_out: int = Field(description="Pairs worth measuring that are beyond what was asked for.", examples=[0])
    pairs: list[WantedAnswer] = Field(description="The pairs, by round.")
    scripts: list[ScriptAnswer] = Field(description="What to run; import the logs that it writes.")

    @classmethod
    def make(cls, plan: MeasuringPlan, scripts: list[ScriptAnswer]) -> MeasuringAnswer:
        """The answer for a measuring plan."""
        return cls(
            rounds=len(plan.rounds),
            expected_s=plan.seconds,
            left_out=plan.left_out,
            pairs=[
                WantedAnswer.from_value(wanted, round=number)
                for number, group in enumerate(plan.rounds, start=1)
                for wanted in group
            ],
            scripts=scripts,
        )


@router.post("/clusters/{cluster}/measuring-plan")
def plan_measurements(cluster: ClusterPath, document: MeasuringRequest, service: ServiceDep) -> MeasuringAnswer:
    """The pairs of nodes whose measurement would make plans surer, the most useful first; nothing is stored."""
    options = options_of(document.options)
    with service.read_sessions() as session:
        snapshot, plan = measuring.subject(session, reference=cluster, plan_id=document.plan_id)
    found = measuring.measuring_plan(
        snapshot, plan, most_pairs=document.most_pairs, most_seconds=document.most_seconds
    )
    files = measuring.scripts(found, document.launcher, options)
    return MeasuringAnswer.make(found, [ScriptAnswer.from_value(file) for file in files])
