"""Answers about the GPUs that jobs hold, and the nodes kept for jobs that lose one."""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby
from typing import Annotated

from pydantic import BaseModel, Field

from app.documents.values import Holds, ValueAnswer
from app.services.running.occupancy import HeldGpu, SpareNode


class HeldGpuAnswer(ValueAnswer[HeldGpu]):
    """A GPU that a job holds."""

    gpu: int = Field(description="Its number as nvidia-smi shows it.", examples=[0])
    job: Annotated[str, Holds("job_name")] = Field(description="Name of the job.", examples=["pretrain-a"])
    job_id: str = Field(description="Id of the job.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    claimed: bool = Field(
        description="Whether it changes hands for a plan that was approved and is not applied yet.",
        examples=[False],
    )
    releasing: bool = Field(description="Whether it is free once that plan is applied.", examples=[False])


class HeldNodeAnswer(BaseModel):
    """A node of which jobs hold GPUs."""

    node: str = Field(description="Its name.", examples=["cnode2-001"])
    gpus: list[HeldGpuAnswer] = Field(description="Its GPUs that jobs hold, by number.")


class OccupancyAnswer(BaseModel):
    """GPUs of a cluster that jobs hold."""

    gpus: int = Field(description="GPUs of the cluster.", examples=[128])
    gpus_held: int = Field(description="Those that jobs hold.", examples=[64])
    nodes: list[HeldNodeAnswer] = Field(description="Nodes of which jobs hold GPUs, by name.")

    @classmethod
    def make(cls, gpus: int, held: Collection[HeldGpu]) -> OccupancyAnswer:
        """The answer for a cluster of so many GPUs; ``held`` are in the order of their nodes."""
        nodes = [
            HeldNodeAnswer(node=node, gpus=[HeldGpuAnswer.from_value(each) for each in rows])
            for node, rows in groupby(held, key=lambda each: each.node)
        ]
        return cls(gpus=gpus, gpus_held=len(held), nodes=nodes)


class SpareNodeAnswer(ValueAnswer[SpareNode]):
    """A node that is kept as a spare."""

    node: str = Field(description="Its name.", examples=["cnode2-016"])
    free: bool = Field(
        description="Whether it works, is in no quarantine, and no job holds one of its GPUs.", examples=[True]
    )


class SparesAnswer(BaseModel):
    """The nodes that are kept for jobs that lose one."""

    spares: list[SpareNodeAnswer] = Field(description="By name.")

    @classmethod
    def make(cls, spares: tuple[SpareNode, ...]) -> SparesAnswer:
        """The answer for stored spares."""
        return cls(spares=[SpareNodeAnswer.from_value(each) for each in spares])
