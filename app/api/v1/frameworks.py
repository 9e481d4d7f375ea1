"""The framework generations that a workload can name, and what is known of each."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from app.documents.framework import FrameworkAnswer, FrameworkDescription
from app.services.errors import NotFound
from cluster_models.training.frameworks import frameworks

router = APIRouter(tags=["models"])


class FrameworkDetail(FrameworkAnswer):
    """One generation, and a description to start one's own from."""

    description: FrameworkDescription = Field(
        description="The same as a description under another name, to be changed where your framework differs."
    )


@router.get("/frameworks")
def list_frameworks() -> list[FrameworkAnswer]:
    """The framework generations that a workload can name, oldest first, each with the source of its facts."""
    return [FrameworkAnswer.from_framework(each) for each in frameworks().values()]


@router.get("/frameworks/{framework}")
def get_framework(
    framework: Annotated[str, Path(description="Name of a shipped generation.", examples=["megatron-core-0.12"])],
) -> FrameworkDetail:
    """One generation with its facts, also as a description to start from."""
    known = frameworks().get(framework)
    if known is None:
        raise NotFound("framework", framework)
    answer = FrameworkAnswer.from_framework(known).model_dump()
    return FrameworkDetail(**answer, description=FrameworkDescription.starting_from(known))
