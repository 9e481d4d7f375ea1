"""Answers about what to measure next."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from app.documents.remarks import RemarkDocument
from app.documents.values import Computed, Given, Holds, ValueAnswer
from app.exports.contract import ExportFile, Files
from app.presentation.measuring import reason
from cluster_models.cluster.measurements import Collective
from solver.measuring.choose import MeasuringPlan, Wanted
from solver.measuring.sizes import Trial


class TrialAnswer(ValueAnswer[Trial]):
    """One call of nccl-tests on a pair."""

    collective: Collective = Field(description="Operation that it runs.", examples=["sendrecv"])
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
    why: Annotated[str, Computed(lambda wanted: reason(wanted.why))] = Field(description="The reason in words.")
    reasons: Annotated[list[RemarkDocument], Holds("why")] = Field(description="The same as codes and figures.")
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
    scripts: list[ScriptAnswer] = Field(description="Scripts to run; import the logs that they write.")

    @classmethod
    def make(cls, plan: MeasuringPlan, files: Files = ()) -> MeasuringAnswer:
        """The answer for a measuring plan and the files that run it."""
        return cls(
            rounds=len(plan.rounds),
            expected_s=plan.seconds,
            left_out=plan.left_out,
            pairs=[
                WantedAnswer.from_value(wanted, round=number)
                for number, group in enumerate(plan.rounds, start=1)
                for wanted in group
            ],
            scripts=list(map(ScriptAnswer.from_value, files)),
        )
