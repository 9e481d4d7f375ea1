"""Lists of ranks of which lines were left out: what they still tell of hosts and GPUs, and what is asked."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from readers.proposal.values import Answers, Proposal
from tests.readers.nccl_logs import log
from tests.readers.uploads import codes_of, fields_of, report_of, slurm_nodes


def listing(hosts: Sequence[str], gpus: int, kept: Sequence[int], *, one_visible: bool = False) -> str:
    """A log with the lines of these ranks only; ``one_visible``: each process sees its own GPU as device 0."""
    lines = []
    for line in log(hosts, gpus, program="all_reduce").splitlines():
        words = line.split()
        if words[1:2] == ["Rank"] and int(words[2]) not in kept:
            continue
        if one_visible and words[1:2] == ["Rank"]:
            at = line.index(" device ")
            line = f"{line[:at]} device  0 {line[at + 11 :]}"  # noqa: PLW2901 - the same line
        lines.append(line)
    return "\n".join(lines) + "\n"


def ends(proposal: Proposal) -> set[tuple[str, str, int]]:
    return {(one.sample.source, one.sample.destination, one.sample.ranks_per_node) for one in proposal.samples}


RACK = [f"t{tray:02d}" for tray in range(1, 19)]


def test_the_last_rank_alone_does_not_put_all_ranks_on_its_host() -> None:
    """Rank 71 on device 3: four GPUs, and eighteen hosts of which one is named."""
    proposal = report_of({"a.log": listing(RACK, 4, [71])}).proposal
    assert proposal.samples == ()
    assert fields_of(proposal)["t18"]["gpu_count"] == 4
    assert any("18 nodes" in reason for _, reason in proposal.kept_aside)


def test_hosts_that_the_list_leaves_open_are_asked_for() -> None:
    """Each process saw one GPU: a rank of 72 tells neither the GPUs of its host nor how many hosts there were."""
    files = {"a.log": listing(RACK, 4, [71], one_visible=True)}
    proposal = report_of(files).proposal
    assert proposal.samples == ()
    assert "gpu_count" not in fields_of(proposal)["t18"]
    keys = [question.key for question in proposal.questions]
    (key,) = [key for key in keys if key.startswith("nodes:a.log:")]
    assert "*.gpu_count" in keys
    answers = Answers(nodes={key.removeprefix("nodes:"): tuple(RACK)})
    answered = report_of(files, answers).proposal
    assert any("18 nodes" in reason for _, reason in answered.kept_aside)


@pytest.mark.parametrize("kept", [[0, 1, 8], [0, 7, 15], [0, 8, 9, 15], [7, 8]])
def test_a_few_of_sixteen_ranks_on_two_hosts_are_eight_gpus_each(kept: list[int]) -> None:
    """World size over hosts, where devices agree with it, whatever number of lines each host has."""
    proposal = report_of({"a.log": listing(["n1", "n2"], 8, kept)}).proposal
    assert {name: fields["gpu_count"] for name, fields in fields_of(proposal).items()} == {"n1": 8, "n2": 8}
    assert ends(proposal) == {("n1", "n2", 8)}


def test_two_of_four_hosts_are_not_taken_for_all() -> None:
    """Ranks 0 and 15 of sixteen on trays of four GPUs: rank 15 uses device 3, so there were four hosts."""
    proposal = report_of({"a.log": listing(["n1", "n2", "n3", "n4"], 4, [0, 15])}).proposal
    assert proposal.samples == ()
    assert {name: fields["gpu_count"] for name, fields in fields_of(proposal).items()} == {"n1": 4, "n4": 4}


def test_first_and_last_rank_of_one_host_are_all_of_its_gpus() -> None:
    """Rank 7 of eight on device 7: one host."""
    proposal = report_of({"a.log": listing(["n1"], 8, [0, 7])}).proposal
    assert fields_of(proposal)["n1"]["gpu_count"] == 8
    assert ends(proposal) == {("n1", "n1", 8)}


@pytest.mark.parametrize("gpus", ["gpu:gb200:4", "gpu:h100:8"])
def test_more_ranks_than_gpus_are_refused(gpus: str) -> None:
    """Whatever a log says: sixteen ranks never ran on a host of fewer GPUs."""
    files = {"a.log": log(["n1", "n2"], 16), "nodes.txt": slurm_nodes("n1", "n2", gpus=gpus)}
    proposal = report_of(files).proposal
    assert proposal.samples == ()
    (reason,) = [reason for _, reason in proposal.kept_aside]
    assert "16 ranks" in reason
    assert f"{gpus[-1]} GPUs" in reason


def test_more_ranks_than_gpus_of_a_node_kind_or_a_table_are_refused() -> None:
    """By the node kind that is answered, and in the rows of a table."""
    table = "node_a,node_b,gpus_per_node,collective,size_bytes,busbw_gbs\nn1,n2,8,alltoall,268435456,41.5\n"
    proposal = report_of({"t.csv": table}, Answers(node_kind="GB200 NVL72 tray")).proposal
    assert proposal.samples == ()
    assert [reason for _, reason in proposal.kept_aside if "8 ranks" in reason and "4 GPUs" in reason]
    square = "# gpus_per_node: 8\n# collective: alltoall\nnode_GBps,n1,n2\nn1,,40\nn2,40,\n"
    proposal = report_of({"t.csv": square}, Answers(node_kind="GB200 NVL72 tray")).proposal
    assert proposal.samples == ()
    assert [reason for _, reason in proposal.kept_aside if "8 ranks" in reason and "4 GPUs" in reason]
    assert "tcp-fallback" not in codes_of(proposal)
