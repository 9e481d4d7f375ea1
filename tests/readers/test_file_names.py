"""Names of files hint at nodes, and decide nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.frame.facts import HostFact, Name, NameKind, Origin, WiringFact
from readers.frame.reading import Contents, Reading, Section
from readers.proposal.aliases import AliasTable
from readers.proposal.combine import combine
from readers.proposal.file_names import host_hinted, nodes_hinted
from readers.proposal.values import Answers, Proposal
from readers.registry import read
from tests.readers.real_files import source_of

NODES = {name: name for name in ("oak2-005", "oak2-016", "n7", "gpu-a-042", "deep.rack.site")}


@pytest.mark.parametrize(
    ("file", "nodes"),
    [
        ("oak2-005_oak2-016_all_reduce.log", ("oak2-005", "oak2-016")),
        ("all.tar.gz/n7/topo.txt", ("n7",)),
        ("topo.n7.txt", ("n7",)),
        ("topo-gpu-a-042.txt", ("gpu-a-042",)),
        ("ibstat deep.rack.site.log", ("deep.rack.site",)),
        ("n70/topo.txt", ()),
        ("topo.txt", ()),
    ],
)
def test_words_of_the_name_are_looked_up(file: str, nodes: tuple[str, ...]) -> None:
    assert nodes_hinted(file, NODES.get) == nodes


@pytest.mark.parametrize(
    ("file", "host"),
    [
        ("all.zip/node-3/topo.txt", "node-3"),
        ("node-3/run-2/topo.txt", "node-3"),
        ("topo.node-3.txt", "node-3"),
        ("gpu042_topo.txt", "gpu042"),
        ("gpu3_topo.txt", None),
        ("h100-8/topo.txt", None),
        ("a100/topo.txt", None),
        ("topo-2026-01-02.txt", None),
        ("topo.txt", None),
    ],
)
def test_without_nodes_what_looks_like_a_host_is_hinted_at(file: str, host: str | None) -> None:
    assert host_hinted(file) == host


def _proposal(file: str, *known: str, answers: Answers | None = None) -> Proposal:
    wiring = WiringFact(Origin(file, 1, 2), None, ("GPU0",), (), (), 1)
    hosts = tuple(
        HostFact(Origin("hosts.txt", 1, 1), (Name(NameKind.HOST, name),), gpu_product="NVIDIA A100-SXM4-80GB")
        for name in known
    )
    readings = [
        Reading(name, 2, ((Section("x", 1, 2), Contents(facts)),))
        for name, facts in (("hosts.txt", hosts), (file, (wiring,)))
    ]
    return combine(readings, aliases=AliasTable(), known=None, answers=answers or Answers())


def test_a_hint_stands_first_among_the_choices_and_is_not_taken() -> None:
    """The node keeps what other files say of it until somebody answers."""
    proposal = _proposal("n2/topo.txt", "n1", "n2")
    (question,) = [asked for asked in proposal.questions if asked.key.startswith("host:")]
    assert question.choices == ("n2", "*", "n1")
    assert all("gpu_count" not in node.fields for node in proposal.nodes)


def test_a_folder_is_proposed_where_no_node_is_known() -> None:
    proposal = _proposal("node-3/topo.txt")
    assert [asked.choices for asked in proposal.questions] == [("node-3", "*")]
    assert proposal.nodes == ()


def test_the_two_nodes_of_a_run_are_proposed_by_its_file() -> None:
    rows = "".join(f"{size} {size // 4} float sum -1 {size / 1e5:.1f} 100.0 187.5 0\n" for size in (2**24, 2**26))
    run = read(source_of(rows, "n3_n1_all_reduce.log"))
    facts = tuple(
        HostFact(Origin("hosts.txt", 1, 1), (Name(NameKind.HOST, f"n{i}"),), gpu_count=8) for i in range(1, 4)
    )
    hosts = Reading("hosts.txt", 1, ((Section("x", 1, 1), Contents(facts)),))
    proposal = combine([run, hosts], aliases=AliasTable(), known=None, answers=Answers())
    (question,) = [asked for asked in proposal.questions if asked.key.startswith("nodes:")]
    assert question.choices == ("n3", "n1", "n2")
    assert proposal.samples == ()


@given(st.text(max_size=300))
def test_any_name_of_a_file_is_taken(file: str) -> None:
    assert set(nodes_hinted(file, NODES.get)) <= set(NODES.values())
    host = host_hinted(file)
    assert host is None or host in file
