"""The answer about a problem before its search."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.documents.configuration import ConfigurationDocument
from app.documents.serving_plan_parts import PlannedConfigurationDocument
from app.documents.values import Given, Holds, ValueAnswer
from cluster_models.units import MILLISECOND
from solver.outlook import FirstPlan, Outlook
from solver.serving.outlook import ModelOutlook, ServingOutlook


class FirstPlanAnswer(ValueAnswer[FirstPlan]):
    """The best of the few configurations that were placed."""

    configuration: ConfigurationDocument = Field(description="The configuration.")
    step_s: float = Field(description="Seconds of a step in its first placement.", examples=[29.4])
    tokens_per_s: float = Field(description="Tokens that all GPUs train on in a second.", examples=[142086.0])


class OutlookAnswer(ValueAnswer[Outlook]):
    """Feasible candidates, fewest GPUs and a rough step, known before a search."""

    result: Annotated[Literal["outlook"], Given()] = Field(
        "outlook", description="outlook; no_plan where nothing fits."
    )
    configurations: int = Field(description="Legal configurations listed in the time.", examples=[139404])
    too_large: int = Field(description="Those that do not fit into memory.", examples=[46904])
    ruled_out: int = Field(description="Those that fit but cannot keep every placement rule.", examples=[0])
    is_complete: bool = Field(description="Whether the time sufficed to list and price all.", examples=[False])
    least_gpus: int | None = Field(
        description="GPUs of one kind on which some configuration fits, however slow; null where it takes several "
        "kinds together.",
        examples=[24],
    )
    first: FirstPlanAnswer | None = Field(description="A first plan; a search ends with one as fast or faster.")


class ModelOutlookAnswer(ValueAnswer[ModelOutlook]):
    """One model to serve: its smallest replica, and the group that takes the load on fewest GPUs."""

    name: str = Field(description="The model.", examples=["llama-3.1-70b"])
    shapes: int = Field(description="Workers that were looked at.", examples=[24])
    too_large: int = Field(description="Those that do not hold the model and one request.", examples=[3])
    least_gpus: int = Field(description="GPUs of the smallest replica that does.", examples=[2])
    gpu_kind: str = Field(description="GPU kind of the group.", examples=["H100-SXM5-80GB"])
    configuration: PlannedConfigurationDocument = Field(description="Its workers.")
    group_gpus: int = Field(description="Its GPUs.", examples=[4])
    concurrency: float = Field(description="Requests in flight at its most load.", examples=[64.0])
    requests_per_s: float = Field(description="Requests answered in a second there.", examples=[4.1])
    output_tokens_per_s: float = Field(description="Output tokens in a second there.", examples=[2100.0])
    time_to_first_token_ms: Annotated[float, Holds("first_token_s", MILLISECOND)] = Field(
        description="Mean time to first token there.", examples=[210.0]
    )
    time_per_output_token_ms: Annotated[float, Holds("token_s", MILLISECOND)] = Field(
        description="Mean time per further output token there.", examples=[24.0]
    )
    needed_gpus: int = Field(
        description="GPUs of so many such groups that they take all load; 0 where the goal is as much as can be.",
        examples=[16],
    )


class ServingOutlookAnswer(ValueAnswer[ServingOutlook]):
    """Smallest replicas and about how many GPUs the load takes, known before a search."""

    result: Annotated[Literal["serving_outlook"], Given()] = Field(
        "serving_outlook", description="serving_outlook; no_serving_plan where nothing fits or meets the limits."
    )
    gpus: int = Field(description="GPUs that the plan may use.", examples=[64])
    models: list[ModelOutlookAnswer] = Field(description="The models, in the order of the request.")
    is_complete: bool = Field(description="Whether the time sufficed for every model.", examples=[True])
