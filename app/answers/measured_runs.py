"""Answers about measured runs: beside their predictions, their drift, slow parts, and recalibrations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from app.answers.addresses import Moment
from app.documents.calibration import CalibrationDocument
from app.documents.values import Computed, Holds, ValueAnswer
from app.services.feedback.drifts import Drifts, Evidence, GroupDrift, Grouping, PartKind, SuspectedPart
from app.services.feedback.measured_runs import MeasuredRunRecord
from app.services.feedback.recalibration import JobEffect, Recalibration
from cluster_models.calibration.run_report import NodeTime
from cluster_models.calibration.training_run import MemoryCounter
from cluster_models.units import GIB


class NodeTimeAnswer(ValueAnswer[NodeTime]):
    """Times that a node's own timers measured."""

    node: str = Field(description="The node.", examples=["cnode2-001"])
    compute_time_s: Annotated[float, Holds("compute_s")] = Field(
        description="Mean seconds that its ranks computed in a step.", examples=[3.1]
    )


class MeasuredRunAnswer(ValueAnswer[MeasuredRunRecord]):
    """A run that was measured, beside its prediction."""

    id: str = Field(description="Its id.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    cluster: Annotated[str, Holds("cluster_name")] = Field(
        description="Name of the cluster.", examples=["h100-17-nodes"]
    )
    plan: Annotated[str | None, Holds("plan_id")] = Field(
        description="Plan of this service that it ran by, if any.", examples=[None]
    )
    running_plan: Annotated[str | None, Holds("running_plan_id")] = Field(
        description="Plan of a job that it ran by, if any.", examples=[None]
    )
    framework: str = Field(description="Framework generation.", examples=["megatron-core-0.12"])
    model: str = Field(description="The model.", examples=["llama-3-70b"])
    degrees: Annotated[str, Holds("predicted.degrees")] = Field(
        description="Its degrees.", examples=["tp8 pp2 dp8"]
    )
    gpus: Annotated[int, Holds("predicted.gpus")] = Field(description="GPUs that it used.", examples=[128])
    gpu_kinds: Annotated[list[str], Holds("predicted.gpu_kinds")] = Field(
        description="Their kinds.", examples=[["H100-SXM5-80GB"]]
    )
    hosts: Annotated[list[str], Holds("predicted.hosts")] = Field(
        description="Nodes in rank order.", examples=[["cnode2-001"]]
    )
    step_time_s: Annotated[float, Holds("report.step_s")] = Field(
        description="Median step, as measured.", examples=[30.2]
    )
    step_time_p10_s: Annotated[float | None, Holds("report.step_low_s")] = Field(
        description="10th percentile of steps.", examples=[29.9]
    )
    step_time_p90_s: Annotated[float | None, Holds("report.step_high_s")] = Field(
        description="90th percentile of steps.", examples=[31.4]
    )
    steps: Annotated[int | None, Holds("report.steps")] = Field(
        description="Steps that were measured.", examples=[200]
    )
    predicted_step_time_s: Annotated[float, Holds("predicted.step_s")] = Field(
        description="Step as the plan predicts it.", examples=[29.4]
    )
    predicted_low_s: Annotated[float | None, Holds("predicted.low_s")] = Field(
        description="Lower end of the plan's prediction interval.", examples=[27.1]
    )
    predicted_high_s: Annotated[float | None, Holds("predicted.high_s")] = Field(
        description="Upper end of it.", examples=[32.8]
    )
    measured_over_predicted: Annotated[float, Holds("ratio")] = Field(
        description="Measured step over predicted.", examples=[1.03]
    )
    within_interval: Annotated[bool | None, Holds("is_within")] = Field(
        description="Whether the step lies in that interval; null where the plan has none.", examples=[True]
    )
    peak_memory_gib: Annotated[float | None, Holds("report.peak_memory_bytes", GIB)] = Field(
        description="Peak memory of the fullest GPU, as measured.", examples=[61.3]
    )
    predicted_memory_gib: Annotated[float, Holds("predicted.peak_memory_bytes", GIB)] = Field(
        description="The same as predicted, for that counter.", examples=[63.0]
    )
    memory_counter: Annotated[MemoryCounter, Holds("report.memory_counter")] = Field(
        description="Counter that it was read from.", examples=["driver"]
    )
    calibration: Annotated[str, Holds("predicted.calibration")] = Field(
        description="Calibration that the plan was made with; empty = as shipped.", examples=[""]
    )
    nodes: Annotated[list[NodeTimeAnswer], Holds("report.nodes")] = Field(
        description="Times by the nodes' own timers.", examples=[[]]
    )
    note: Annotated[str, Holds("report.note")] = Field(description="For people.", examples=[""])
    ended_at: Moment
    received_at: Moment


class GroupDriftAnswer(ValueAnswer[GroupDrift]):
    """How far the runs of one group are from their predictions, and since when."""

    by: Grouping = Field(description="Property that the runs share.", examples=["node"])
    name: str = Field(description="Which.", examples=["h100-17-nodes: cnode2-001"])
    runs: Annotated[int, Holds("drift.runs")] = Field(description="How many.", examples=[12])
    measured_over_predicted: Annotated[float, Holds("drift.ratio")] = Field(
        description="Median step over the predicted one.", examples=[1.06]
    )
    p10: Annotated[float, Holds("drift.low")] = Field(description="10th percentile of that.", examples=[0.99])
    p90: Annotated[float, Holds("drift.high")] = Field(description="90th percentile of that.", examples=[1.15])
    memory_measured_over_predicted: Annotated[float | None, Holds("memory_ratio")] = Field(
        description="Median peak memory over the predicted one; null where none was measured.", examples=[0.98]
    )
    changed_at: datetime | None = Field(
        description="Since when steps differ from before, beyond chance; null where they do not.", examples=[None]
    )
    before: Annotated[float | None, Holds("drift.before")] = Field(
        description="Median before that.", examples=[1.01]
    )
    after: Annotated[float | None, Holds("drift.after")] = Field(description="Median since then.", examples=[1.12])


class SuspectedPartAnswer(ValueAnswer[SuspectedPart]):
    """A node or link that steps point to."""

    kind: PartKind = Field(description="Kind of part.", examples=["node"])
    names: list[str] = Field(
        description="The part; where there are several, no run tells them apart and one of them is slow.",
        examples=[["cnode2-007"]],
    )
    cluster: Annotated[str, Holds("cluster_name")] = Field(
        description="Name of its cluster.", examples=["h100-17-nodes"]
    )
    slowdown: float = Field(
        description="Steps with it over usual ones, or its compute time over that of other nodes.", examples=[1.14]
    )
    evidence: Evidence = Field(
        description="runs: its newest runs were all slow, others were not; compute_times: its own ranks say so.",
        examples=["runs"],
    )
    runs: list[str] = Field(description="Ids of the runs that say so.", examples=[["0f4d2c8e6b7a4c55"]])
    chance: float | None = Field(
        description="Probability of such runs without a cause; null with compute_times.", examples=[0.002]
    )


class DriftAnswer(ValueAnswer[Drifts]):
    """Findings from the newest measured runs."""

    runs: Annotated[int, Computed(lambda drifts: len(drifts.runs))] = Field(
        description="Runs that were looked at, the newest 2000 at most.", examples=[48]
    )
    groups: list[GroupDriftAnswer] = Field(description="By cluster, framework and node.")
    suspects: list[SuspectedPartAnswer] = Field(description="Nodes and links that are probably slow.")


class JobEffectAnswer(ValueAnswer[JobEffect]):
    """Change that a calibration would make to a running job's prediction."""

    job: str = Field(description="The job.", examples=["pretrain-a"])
    cluster: Annotated[str, Holds("cluster_name")] = Field(description="Its cluster.", examples=["h100-17-nodes"])
    step_time_s: Annotated[float, Holds("step_s")] = Field(description="As its plan says.", examples=[29.4])
    new_step_time_s: Annotated[float | None, Holds("new_step_s")] = Field(
        description="As it would be predicted; null where a node of it is out of order.", examples=[31.0]
    )


class RecalibrationAnswer(BaseModel):
    """A calibration that is offered; nothing is stored."""

    model_config = ConfigDict(defer_build=True)

    calibration: CalibrationDocument = Field(
        description="The calibration, with its errors before, after and held out. To accept it, send it to "
        "POST /calibrations."
    )
    runs: int = Field(description="Runs that it is fitted to.", examples=[18])
    oldest: Moment
    newest: Moment
    jobs: list[JobEffectAnswer] = Field(description="Effect on the jobs that run now.")

    @classmethod
    def make(cls, offered: Recalibration) -> RecalibrationAnswer:
        """The answer about what is offered."""
        return cls(
            calibration=offered.document,
            runs=len(offered.runs),
            oldest=offered.runs[0].ended_at,
            newest=offered.runs[-1].ended_at,
            jobs=[JobEffectAnswer.from_value(each) for each in offered.jobs],
        )
