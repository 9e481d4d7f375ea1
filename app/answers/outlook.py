"""The answer about a problem before its search."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.documents.configuration import ConfigurationDocument
from app.documents.values import Given, ValueAnswer
from solver.outlook import FirstPlan, Outlook


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
