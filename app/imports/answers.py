"""Decisions of the sender of files, as a request has them."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from app.documents.moments import Moment
from app.documents.reading import Count, Document, Line, Text
from readers.proposal.aliases import is_host
from readers.proposal.values import ALIAS, EVERY_NODE, Answers

_MOST: Final = 10_000
_LONGEST_KEY: Final = 1_000

_Key = Annotated[str, Field(min_length=1, max_length=_LONGEST_KEY)]
"""A file's name may be long and hold anything; it is only compared."""


def _node_name(name: str) -> str:
    if name != EVERY_NODE and not is_host(name):
        raise ValueError("cannot be the name of a node")
    return name


def _of_nodes(chosen: dict[str, str]) -> dict[str, str]:
    for key, node in chosen.items():
        if key.startswith(ALIAS) and (node == EVERY_NODE or not is_host(node)):
            raise ValueError(f"{key} must be the name of a node, not {node[:100]!r}")
    return chosen


_NodeName = Annotated[Text, AfterValidator(_node_name)]


class AnswersDocument(Document):
    """Answers to the questions of a report; what is absent is not answered."""

    hosts: Annotated[dict[_Key, _NodeName], Field(max_length=_MOST)] = Field(
        default_factory=dict,
        description="File -> the node it is from, or * where it shows one of many equal nodes.",
        examples=[{"topo.txt": "*"}],
    )
    ranks: Annotated[dict[_Key, Annotated[Count, Field(le=1_000_000)]], Field(max_length=_MOST)] = Field(
        default_factory=dict,
        description="file:line of a run -> how many ranks it had; of a matrix between nodes, ranks per node.",
        examples=[{"all_reduce.log:12": 16}],
    )
    nodes: Annotated[dict[_Key, Annotated[list[_NodeName], Field(max_length=_MOST)]], Field(max_length=_MOST)] = (
        Field(
            default_factory=dict,
            description="file:line of a run -> the nodes it ran on.",
            examples=[{"all_reduce.log:12": ["n1", "n2"]}],
        )
    )
    accepted: Annotated[list[_Key], Field(max_length=_MOST)] = Field(
        default_factory=list,
        description="Keys of doubts whose figures are to be used all the same.",
        examples=[["all_reduce.log:12:tcp-fallback"]],
    )
    chosen: Annotated[dict[_Key, Line], Field(max_length=_MOST), AfterValidator(_of_nodes)] = Field(
        default_factory=dict,
        description='"node.field" or "*.field" -> value, for what no file says and where files differ; '
        '"alias:name" -> node; "gpu_kind:product" -> GPU kind.',
        examples=[{"*.nics": "8 x 400 infiniband"}],
    )
    gpu_kind: Text | None = Field(
        None, description="GPU kind of nodes of which no file says it.", examples=["H100-SXM5-80GB"]
    )
    node_kind: Text | None = Field(
        None, description="Node kind of the catalogue, for all nodes.", examples=["DGX H100/H200"]
    )
    measured_at: Moment | None = Field(
        None, description="When runs were, of those that do not say it.", examples=["2026-03-01T10:00:00Z"]
    )

    def to_answers(self) -> Answers:
        """The domain value."""
        return Answers(
            hosts=dict(self.hosts),
            ranks=dict(self.ranks),
            nodes={place: tuple(nodes) for place, nodes in self.nodes.items()},
            accepted=frozenset(self.accepted),
            chosen=dict(self.chosen),
            gpu_kind=self.gpu_kind,
            node_kind=self.node_kind,
            measured_at=self.measured_at,
        )
