"""GPU counts of nodes where only tests tell them."""

from __future__ import annotations

import pytest

from readers.proposal.aliases import AliasTable
from readers.proposal.combine import combine
from readers.proposal.values import Answers, Proposal
from readers.registry import read
from tests.readers.nccl_logs import log
from tests.readers.real_files import source_of

TABLE = "node_a,node_b,gpus_per_node,collective,size_bytes,busbw_GBps\na,b,{gpus},alltoall,1073741824,40.0\n"


def proposed(*texts: str) -> Proposal:
    readings = [read(source_of(text)) for text in texts]
    return combine(readings, aliases=AliasTable(), known=None, answers=Answers())


def counts(proposal: Proposal) -> dict[str, int | None]:
    return {
        node.name: node.fields["gpu_count"].value if "gpu_count" in node.fields else None for node in proposal.nodes
    }


@pytest.mark.parametrize("gpus", [2, 8])
def test_a_table_raises_what_a_run_with_few_ranks_shows(gpus: int) -> None:
    """A sweep starts with one GPU of each node; its table says that others ran on more."""
    single = log(["a", "b"])
    assert counts(proposed(single)) == {"a": 1, "b": 1}
    assert counts(proposed(single, TABLE.format(gpus=gpus))) == {"a": gpus, "b": gpus}
    assert counts(proposed(TABLE.format(gpus=gpus), single)) == {"a": gpus, "b": gpus}


def test_a_table_lowers_nothing_and_answers_nothing_alone() -> None:
    """Ranks per node are a lower bound: eight GPUs seen stay eight; of other nodes we ask."""
    table = TABLE.format(gpus=2)
    assert counts(proposed(log(["a", "b"], gpus=8), table)) == {"a": 8, "b": 8}
    alone = proposed(table)
    assert counts(alone) == {"a": None, "b": None}
    assert "*.gpu_count" in {question.key for question in alone.questions}
