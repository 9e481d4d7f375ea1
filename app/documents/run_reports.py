"""Reports of finished runs, as launch scripts and people send them."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Discriminator, Field, Tag

from app.documents.moments import Moment
from app.documents.plan import PlanDocument
from app.documents.reading import CHOICE, NAME, Count, Document, Line, Positive, Text
from app.documents.values import Given, Holds, ValueDocument
from cluster_models.calibration.run_report import NodeTime, RunReport
from cluster_models.calibration.training_run import MemoryCounter
from cluster_models.units import GIB

MOST_NODES: Final = 2048
_BY_ID, _IN_FULL = f"{CHOICE}by-id", f"{CHOICE}in-full"
_LONGEST_STEP_S: Final = 1e6
_MOST_GIB: Final = 1e5


class NodeTimeDocument(ValueDocument[NodeTime]):
    """Times of a node's ranks, as straggler detection prints them."""

    node: Text = Field(description="The node.", examples=["cnode2-001"])
    compute_time_s: Annotated[Positive, Field(le=_LONGEST_STEP_S), Holds("compute_s")] = Field(
        description="Mean seconds that its ranks computed in a step.", examples=[3.1]
    )


class RunReportDocument(ValueDocument[RunReport]):
    """Figures of a measured run, and the plan that it ran by."""

    plan: Annotated[
        Annotated[Text, Tag(_BY_ID)] | Annotated[PlanDocument, Tag(_IN_FULL)],
        Discriminator(lambda value: _BY_ID if isinstance(value, str) else _IN_FULL),
        Given(),
    ] = Field(
        description="Id of a plan or running plan of this service, or a plan in full whose cluster is stored.",
        examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"],
    )
    step_time_s: Annotated[Positive, Field(le=_LONGEST_STEP_S), Holds("step_s")] = Field(
        description="Median of the steps after warm-up.", examples=[30.2]
    )
    step_time_p10_s: Annotated[Positive | None, Holds("step_low_s")] = Field(
        None, description="10th percentile of them.", examples=[29.9]
    )
    step_time_p90_s: Annotated[Positive | None, Holds("step_high_s")] = Field(
        None, description="90th percentile of them.", examples=[31.4]
    )
    steps: Count | None = Field(None, description="How many were measured.", examples=[200])
    peak_memory_gib: Annotated[Positive | None, Field(le=_MOST_GIB), Holds("peak_memory_bytes", GIB)] = Field(
        None, description="Peak memory of the fullest GPU, in 2^30 bytes.", examples=[61.3]
    )
    memory_counter: MemoryCounter = Field(
        MemoryCounter.DRIVER,
        description="What counted it: driver (nvidia-smi), reserved or allocated (PyTorch).",
        examples=["driver"],
    )
    nodes: Annotated[list[NodeTimeDocument], Field(max_length=MOST_NODES)] = Field(
        default_factory=list, description="What the nodes' own timers say, where they were kept.", examples=[[]]
    )
    note: Line = Field("", description="For people.", examples=["driver 550.54"])
    ended_at: Annotated[Moment | None, Given()] = Field(
        None, description="When the run ended; absent = now.", examples=["2026-11-21T09:00:00Z"]
    )


class RecalibrationRequest(Document):
    """Filter of the runs that a calibration is fitted to: the newest 60 of those that match."""

    name: Text | None = Field(
        None,
        pattern=NAME,
        description="What to call the calibration; absent = a name with the date.",
        examples=["ours"],
    )
    cluster: Text | None = Field(
        None, description="Name or id of the cluster; absent = any.", examples=["h100-17-nodes"]
    )
    framework: Text | None = Field(
        None, description="Framework generation; absent = any.", examples=["megatron-core-0.12"]
    )
    since: Moment | None = Field(
        None, description="Only runs that ended since then.", examples=["2026-11-01T00:00:00Z"]
    )
