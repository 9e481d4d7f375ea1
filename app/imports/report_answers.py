"""The report of an upload in its wire form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.documents.cluster import ClusterDocument
from app.documents.measurements import MeasurementsDocument
from app.documents.remarks import RemarkDocument
from app.documents.values import Computed, Given, Holds, ValueAnswer
from app.imports.documents import shown
from app.imports.obstacles import is_needed
from cluster_models.cluster.topology import NodeState
from readers.frame.facts import HealthFact, Name, Origin
from readers.frame.findings import Finding, Severity
from readers.frame.reading import Reading
from readers.proposal.values import Conflict, ProposedNode, Question, SourcedValue, place_of

_MOST_ORIGINS: Final = 20
_ANSWERED_BY_PLACE: Final = ("host", "nodes", "ranks")
"""Kinds of question whose answers stand under the place in a field of their own."""


def places(origins: Sequence[Origin]) -> list[str]:
    """The first places of many."""
    return [place_of(origin) for origin in origins[:_MOST_ORIGINS]]


class RefusalAnswer(ValueAnswer[Finding]):
    """Lines that were not taken."""

    first_line: int = Field(description="First of the lines, from 1.", examples=[12])
    last_line: int = Field(description="Last of the lines.", examples=[12])
    reason: Annotated[str, Holds("sentence")] = Field(
        description="Why.", examples=["the tool waived this test: no peer"]
    )
    remedy: str = Field(description="What to do.", examples=["send another file"])
    shown: str = Field(description="How the first of the lines begins.", examples=[""])


class DoubtAnswer(ValueAnswer[Finding]):
    """Something that looks wrong about what was read."""

    key: str = Field(description="file:line:code; accept a doubt by this.", examples=["a.log:12:tcp-fallback"])
    code: str = Field(description="Kind of doubt; stable.", examples=["tcp-fallback"])
    trust: Annotated[Literal[Severity.NOTE, Severity.DOUBT, Severity.REJECT], Holds("severity")] = Field(
        description="note and doubt are said only; with reject the figures are used only if it is accepted."
    )
    file: Annotated[str, Holds("place.file")] = Field(description="The file.", examples=["a.log"])
    first_line: int = Field(description="Where in the file.", examples=[12])
    sentence: str = Field(description="What looks wrong.")
    remedy: str = Field(description="What to do; may be empty.")
    accepted: Annotated[bool, Given()] = Field(description="Whether the answers accept it.", examples=[False])


class SectionAnswer(BaseModel):
    """Lines of a file that are the output of one tool."""

    format: str = Field(description="Name of the kind of file.", examples=["nccl-tests"])
    known_as: str = Field(description="The kind for people.", examples=["log of nccl-tests"])
    first_line: int = Field(description="First line, from 1.", examples=[1])
    last_line: int = Field(description="Last line.", examples=[33])
    summary: str = Field(description="What was understood.", examples=["29 sizes of all_reduce among 8 GPUs"])
    refusals: list[RefusalAnswer] = Field(description="Lines that were not taken.")
    doubts: list[DoubtAnswer] = Field(description="What looks wrong.")


class FileAnswer(ValueAnswer[Reading]):
    """Reading of one file, a member of an archive included."""

    name: Annotated[str, Holds("file")] = Field(
        description="Its name; of a member of an archive, archive/member.", examples=["a.log"]
    )
    line_count: Annotated[int, Holds("lines")] = Field(description="Lines; 0 where it is not text.", examples=[33])
    sections: Annotated[list[SectionAnswer], Given()] = Field(
        description="What was recognised; empty where nothing was."
    )
    refusals: list[RefusalAnswer] = Field(description="Why the file, or a part of it, was not read.")


class SaidAnswer(ValueAnswer[SourcedValue]):
    """A value and where it stands."""

    value: Annotated[str, Computed(lambda said: shown(said.value))] = Field(
        description="The value as text.", examples=["8 x 400 Gb/s infiniband"]
    )
    origins: Annotated[list[str], Computed(lambda said: places(said.origins))] = Field(
        description="file:line of the places that say it; empty where an answer does.", examples=[["a.log:12"]]
    )


class AliasAnswer(ValueAnswer[Name]):
    """A name that a node also goes by."""

    alias: Annotated[str, Holds("text")] = Field(description="The name.", examples=["n1.cluster.example"])
    kind: str = Field(description="Which naming it belongs to.", examples=["fqdn"])


class ProposedNodeAnswer(ValueAnswer[ProposedNode]):
    """A node of the cluster as it would be."""

    name: str = Field(description="Name of the node.", examples=["n1"])
    aliases: list[AliasAnswer] = Field(description="Other names that the files give it.")
    is_new: bool = Field(description="Whether the cluster does not have it yet.", examples=[True])
    fields: dict[str, SaidAnswer] = Field(description="Field of the node's document -> value.")


class ConflictAnswer(ValueAnswer[Conflict]):
    """Different values for one thing."""

    where: str = Field(description="node.field; choose a value by this.", examples=["n1.gpu_count"])
    said: list[SaidAnswer] = Field(description="All values.")
    taken: SaidAnswer = Field(description="The one that is used unless an answer chooses another.")


def _answered_at(question: Question) -> tuple[str, str]:
    """The field of answers that takes this question's, and the key in it."""
    kind, _, rest = question.key.partition(":")
    if kind not in _ANSWERED_BY_PLACE:
        return "chosen", question.key
    return "hosts" if kind == "host" else kind, rest


class QuestionAnswer(ValueAnswer[Question]):
    """Something that the files do not say."""

    key: str = Field(description="Names the question.", examples=["host:topo.txt"])
    sentence: str = Field(description="The question.")
    choices: list[str] = Field(
        description="Answers that are likely; others are taken, too.", examples=[["*", "n1"]]
    )
    blocks: int = Field(description="Facts that wait for the answer.", examples=[1])
    needed: Annotated[bool, Computed(is_needed)] = Field(
        description="Whether nothing can be stored before it is answered.", examples=[False]
    )
    answer_in: Annotated[str, Computed(lambda question: _answered_at(question)[0])] = Field(
        description="Field of answers that takes it.", examples=["hosts"]
    )
    answer_as: Annotated[str, Computed(lambda question: _answered_at(question)[1])] = Field(
        description="Key in that field.", examples=["topo.txt"]
    )


class AsideAnswer(BaseModel):
    """Facts that were read and are of no use here."""

    what: str = Field(description="The first of them.")
    reason: str = Field(description="Why they are not used.")
    origin: str = Field(description="file:line of the first.", examples=["a.log:12"])
    count: int = Field(description="Facts kept aside for this reason.", examples=[1])


class HealthAnswer(ValueAnswer[HealthFact]):
    """Something that a file says is wrong with hardware; it is shown, and not stored."""

    node: Annotated[str, Computed(lambda fact: fact.host or "")] = Field(
        description="The host as written; may be empty.", examples=["n1"]
    )
    entity: str = Field(description="node, gpu:.. or nic:..", examples=["gpu:0000:1b:00.0"])
    state: NodeState = Field(description="The state that it suggests.", examples=["degraded"])
    text: str = Field(description="What the file says.")
    origin: Annotated[str, Computed(lambda fact: place_of(fact.origin))] = Field(
        description="file:line.", examples=["dmesg.txt:3"]
    )


class ImportProblem(BaseModel):
    """Why nothing can be stored."""

    field: str = Field(description="Field of the cluster or its measurements.", examples=["nodes[0].gpu_kind"])
    value: str | None = Field(description="What would stand there; null where nothing does.", examples=["H900"])
    problem: str = Field(description="What is wrong with it.", examples=["is missing"])
    remedy: str = Field(description="What to do; may be empty.")
    origins: list[str] = Field(description="file:line of the places that say it.", examples=[["a.log:12"]])


class ImportAnswer(BaseModel):
    """Contents of an upload, and what storing it would do."""

    model_config = ConfigDict(defer_build=True)

    files: list[FileAnswer] = Field(description="What became of each file.")
    nodes: list[ProposedNodeAnswer] = Field(description="All nodes of the cluster as it would be.")
    sample_count: int = Field(description="Measurements that the files give, failed ones included.", examples=[29])
    failed_count: int = Field(description="How many of them are tests that failed.", examples=[0])
    switches_count: int = Field(description="Switches that the files give figures of.", examples=[0])
    conflicts: list[ConflictAnswer] = Field(description="Where files differ.")
    questions: list[QuestionAnswer] = Field(description="What the files do not say.")
    doubts: list[DoubtAnswer] = Field(description="What looks wrong only across files.")
    kept_aside: list[AsideAnswer] = Field(description="What was read and is not used, by reason.")
    health: list[HealthAnswer] = Field(description="What files say of broken hardware.")
    problems: list[ImportProblem] = Field(description="Why nothing can be stored; empty where it can.")
    suspicions: list[RemarkDocument] = Field(description="What would look wrong about all measurements together.")
    changes: list[str] = Field(description="What storing would change.")
    digest: str = Field(description="Names files, answers and cluster; send it to store what this report says.")
    can_be_stored: bool = Field(description="Whether storing would be refused.", examples=[True])
    document: ClusterDocument | None = Field(None, description="The cluster as it would be, if asked for.")
    measurements: MeasurementsDocument | None = Field(None, description="The measurements, if asked for.")
