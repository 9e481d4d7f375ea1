"""Proposals of several files together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Direction, SampleStatus
from cluster_models.cluster.topology import NicGroup
from readers.frame.facts import (
    MatrixFact,
    Memory,
    Name,
    NameKind,
    Operation,
    Point,
    PortFact,
    Quantity,
    RunEnd,
    SwitchFact,
    WiringFact,
)
from readers.frame.findings import reject
from readers.frame.reading import Reading
from readers.proposal.aliases import AliasTable
from readers.proposal.combine import combine
from readers.proposal.values import Answers, Proposal
from tests.readers.made_facts import HDR, host, origin, reading, run


def proposed(*readings: Reading, answers: Answers | None = None, aliases: AliasTable | None = None) -> Proposal:
    return combine(readings, aliases=aliases or AliasTable(), known=None, answers=answers or Answers())


def reasons(proposal: Proposal) -> list[str]:
    return [reason for _, reason in proposal.kept_aside]


def test_names_of_three_tools_become_one_node() -> None:
    """Slurm knows its short name, Kubernetes its FQDN, the log a third: one node with the fields of all."""
    slurm = host("n1", nics=0)
    kubernetes = host(
        "n1.pod.example",
        file="kube.json",
        kind=NameKind.KUBERNETES,
        leaf="l7",
        more=(Name(NameKind.INSTANCE, "i-1"),),
    )
    proposal = proposed(reading(slurm), reading(kubernetes), reading(run("i-1", "n2")))
    assert [node.name for node in proposal.nodes] == ["n1", "n2"]
    fields = {field: said.value for field, said in proposal.nodes[0].fields.items()}
    assert fields["gpu_kind"] == "H100-SXM5-80GB"
    assert (fields["gpu_count"], fields["labels.leaf"]) == (8, "l7")
    assert fields["nics"] == NicGroup(8, 2 * HDR, "infiniband")
    assert {(one.sample.source, one.sample.destination) for one in proposal.samples} == {("n1", "n2")}


def test_files_that_differ_are_a_conflict_until_the_sender_chooses() -> None:
    wiring = WiringFact(origin("topo.txt"), "n1", ("GPU0",) * 4, (), (), 4)
    files = [reading(host("n1")), reading(wiring)]
    proposal = proposed(*files)
    assert [(c.where, c.taken.value, [s.value for s in c.said]) for c in proposal.conflicts] == [
        ("n1.gpu_count", 8, [8, 4])
    ]
    chosen = proposed(*files, answers=Answers(chosen={"n1.gpu_count": "4"}))
    assert not chosen.conflicts
    assert chosen.nodes[0].fields["gpu_count"].value == 4


@given(st.permutations(range(4)))
def test_the_order_of_files_changes_nothing(order: Sequence[int]) -> None:
    files = [
        reading(host("n1"), host("n2")),
        reading(run("n1", "n2")),
        reading(run("n2", "n1", file="b.log")),
        reading(SwitchFact(origin("topo.conf"), "s0", ("n1", "n2", "login"), ())),
    ]
    assert proposed(*(files[index] for index in order)) == proposed(*files)


def test_the_same_run_twice_makes_each_sample_once() -> None:
    """Repeats become their median; a run that is given in the other order is the same run."""
    rates = [((1 << 30, rate),) for rate in (41e9, 45e9, 43e9)]
    logs = [reading(run("n1", "n2", file=f"{i}.log", rates=rates[i])) for i in range(2)]
    proposal = proposed(*logs, reading(run("n2", "n1", file="2.log", rates=rates[2])))
    assert [one.sample.bytes_per_s for one in proposal.samples] == [43e9]


def test_tiny_rows_become_one_latency() -> None:
    rows = (
        Point(2, 8, 1e5, 30e-6),
        Point(3, 1024, 1e7, 31e-6),
        Point(4, 4096, 4e7, 90e-6),
        Point(5, 1 << 20, 5e9, 2e-4),
    )
    proposal = proposed(reading(replace(run("n1", "n2"), points=rows)))
    assert [(s.sample.latency_s, s.sample.bytes_per_s, s.origin.first_line) for s in proposal.samples] == [
        (31e-6, None, 3),
        (None, 5e9, 5),
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"memory": Memory.HOST}, "host memories"),
        ({"operation": Operation.BROADCAST}, "broadcast makes no sample"),
        ({"hosts": ("n1", "n2", "n3")}, "3 nodes at once"),
        ({"hosts": ("n1",), "nodes": 2}, "names 1 nodes"),
        ({"members": (), "ranks": 3}, "do not divide"),
        ({"members": (), "ranks": None}, "how many ranks"),
        ({"hosts": ("localhost",), "members": ()}, "which nodes"),
    ],
)
def test_what_makes_no_sample_is_kept_aside_with_the_reason(change: dict[str, object], reason: str) -> None:
    fact = replace(run("n1", "n2"), **change)  # type: ignore[arg-type]
    proposal = proposed(reading(host("n1"), host("n2"), host("n3")), reading(fact))
    assert proposal.samples == ()
    assert reason in " ".join(reasons(proposal))


def test_a_run_without_hosts_waits_for_an_answer() -> None:
    fact = replace(run(ranks_per_node=8), ranks=16, nodes=2)
    waiting = proposed(reading(fact))
    assert [question.key for question in waiting.questions] == ["nodes:a.log:1"]
    answered = proposed(reading(fact), answers=Answers(nodes={"a.log:1": ("n1", "n2")}))
    assert [(s.sample.source, s.sample.ranks_per_node) for s in answered.samples] == [("n1", 8), ("n1", 8)]


def test_unequal_ranks_are_no_pair() -> None:
    fact = run("n1", "n2", ranks_per_node=2)
    fact = replace(fact, members=fact.members[:-1], ranks=3)
    assert "unequal" in reasons(proposed(reading(fact)))[0]


def test_a_failed_run_is_a_failed_sample_beside_what_it_printed() -> None:
    """At the size that would have come next."""
    failed = replace(run("n1", "n2", rates=()), end=RunEnd.FAILED)
    assert [one.sample.status for one in proposed(reading(failed)).samples] == [SampleStatus.FAILED]
    died = replace(run("n1", "n2"), end=RunEnd.FAILED)
    found = [(one.sample.message_bytes, one.sample.status) for one in proposed(reading(died)).samples]
    assert found == [(1 << 28, SampleStatus.OK), (1 << 30, SampleStatus.OK), (1 << 32, SampleStatus.FAILED)]


def test_a_rejecting_doubt_holds_back_its_run_until_accepted() -> None:
    doubt = reject("one-rank", 4, "one rank moves nothing")
    file = reading(run("n1", "n2"), doubts=(doubt,))
    assert proposed(file).samples == ()
    assert len(proposed(file, answers=Answers(accepted=frozenset({"a.log:4:one-rank"}))).samples) == 2


def test_a_doubt_on_the_first_line_of_a_run_rejects_no_other_whose_lines_are_mixed_with_it() -> None:
    """Two tasks print at once: each run spans lines of the other."""
    doubt = reject("one-rank", 2, "one rank moves nothing")
    file = reading(run("n1", "n2", line=1), run("n3", "n4", line=2), doubts=(doubt,))
    assert {one.sample.source for one in proposed(file).samples} == {"n1"}


def test_a_fallback_to_tcp_is_found_by_the_cards_and_by_another_file() -> None:
    """Nothing in the slow file says so: only the cards, or a better file of the same pair, tell."""
    slow = reading(run("n1", "n2", rates=((1 << 30, 2e9),), operation=Operation.SEND_RECV))
    by_cards = proposed(reading(host("n1"), host("n2")), slow)
    assert [doubt.code for doubt in by_cards.doubts] == ["tcp-fallback"]
    assert by_cards.samples == ()
    good = reading(run("n1", "n2", file="b.log", rates=((1 << 30, 45e9),), operation=Operation.SEND_RECV))
    by_file = proposed(slow, good)
    assert "tcp-fallback" in [doubt.code for doubt in by_file.doubts]
    assert [one.sample.bytes_per_s for one in by_file.samples] == [45e9]
    place = f"a.log:{by_cards.doubts[0].first_line}:tcp-fallback"
    accepted = proposed(reading(host("n1"), host("n2")), slow, answers=Answers(accepted=frozenset({place})))
    assert len(accepted.samples) == 1


@pytest.mark.parametrize(("rate", "doubted"), [(24e9, True), (700e9, False)])
def test_the_figure_of_a_network_card_inside_a_node_is_doubted(rate: float, doubted: bool) -> None:
    """Equal figures inside and between nodes; what no card carries is NVLink that spans the nodes."""
    rates = ((1 << 30, rate),)
    files = [
        reading(
            run(
                *pair,
                file=f"{len(pair)}.log",
                rates=rates,
                ranks_per_node=4 // len(pair) * len(pair) // 2,
                operation=Operation.SEND_RECV,
            )
        )
        for pair in (("n1",), ("n1", "n2"))
    ]
    assert ("nic-figure-for-nvlink" in [doubt.code for doubt in proposed(*files).doubts]) is doubted


def matrix(values: Sequence[Sequence[float | None]], **changes: object) -> MatrixFact:
    names = tuple(f"GPU{index}" for index in range(len(values)))
    fact = MatrixFact(
        origin=origin("m.txt"),
        tool="nvbandwidth",
        between="gpus",
        host="n1",
        rows=names,
        columns=names,
        hosts={},
        quantity=Quantity.BANDWIDTH,
        values=tuple(tuple(row) for row in values),
        lines=tuple(range(2, 2 + len(values))),
        direction=Direction.FORWARD,
    )
    return replace(fact, **changes)  # type: ignore[arg-type]


def test_gpus_of_a_node_give_the_figure_of_a_slow_pair() -> None:
    """The diagonal is the GPU's own memory; a bidirectional figure is the sum of both ways."""
    rows = [[9e12, 40e9, 20e9], [40e9, 9e12, 40e9], [20e9, 40e9, 9e12]]
    one_way = proposed(reading(matrix(rows)))
    assert [(s.sample.source, s.sample.destination, s.sample.bytes_per_s) for s in one_way.samples] == [
        ("n1", "n1", 20e9)
    ]
    both = proposed(reading(matrix(rows, direction=Direction.BOTH)))
    assert both.samples[0].sample.bytes_per_s == 10e9
    together = proposed(reading(matrix(rows), matrix(rows, direction=Direction.BOTH, origin=origin("m.txt", 20))))
    assert [one.sample.bytes_per_s for one in together.samples] == [20e9]
    assert len(together.kept_aside) == 1


def test_a_matrix_of_gpus_of_two_hosts_gives_both_directions() -> None:
    rows = [[None, 30e9], [28e9, None]]
    proposal = proposed(reading(matrix(rows, host=None, hosts={"GPU0": "n1", "GPU1": "n2"})))
    assert [(s.sample.source, s.sample.destination, s.sample.bytes_per_s) for s in proposal.samples] == [
        ("n1", "n2", 30e9),
        ("n2", "n1", 28e9),
    ]


def test_a_file_of_one_of_many_equal_nodes_is_for_all() -> None:
    wiring = WiringFact(origin("topo.txt"), None, ("GPU0",) * 8, (), (), 8, ("NVIDIA H100 80GB HBM3",))
    files = [reading(run("n1", "n2", ranks_per_node=1)), reading(wiring)]
    assert "host:topo.txt" in [question.key for question in proposed(*files).questions]
    every = proposed(*files, answers=Answers(hosts={"topo.txt": "*"}))
    assert [node.fields["gpu_count"].value for node in every.nodes] == [8, 8]
    single = proposed(*files, answers=Answers(hosts={"topo.txt": "n2"}))
    assert [node.fields["gpu_count"].value for node in single.nodes] == [1, 8]


def test_ports_that_are_up_at_the_best_rate_are_the_cards() -> None:
    ports = [
        PortFact(origin("ib.txt"), "n1", f"mlx5_{i}", f"{i}", up, rate, fabric)
        for i, (up, rate, fabric) in enumerate(
            [
                (True, 50e9, "infiniband"),
                (True, 50e9, "infiniband"),
                (False, 50e9, "infiniband"),
                (True, 5e9, "infiniband"),
                (True, 50e9, "ethernet"),
            ]
        )
    ]
    proposal = proposed(reading(host("n1", nics=0)), reading(*ports))
    assert proposal.nodes[0].fields["nics"].value == NicGroup(2, 50e9, "infiniband")


def test_hosts_of_switches_are_nodes_only_where_no_file_shows_others() -> None:
    """A login node under a leaf is not a GPU node; of a tree of switches alone nobody can tell."""
    tree = reading(
        SwitchFact(origin("topo.conf", 1), "s0", ("n1", "n2"), (), 1),
        SwitchFact(origin("topo.conf", 2), "s1", ("n3", "login"), (), 1),
        SwitchFact(origin("topo.conf", 3), "top", (), ("s0", "s1"), 2),
    )
    alone = proposed(tree)
    assert [node.name for node in alone.nodes] == ["login", "n1", "n2", "n3"]
    with_nodes = proposed(tree, reading(host("n1"), host("n2"), host("n3")))
    places = {node.name: node.fields["labels.leaf"].value for node in with_nodes.nodes}
    assert places == {"n1": "s0", "n2": "s0", "n3": "s1"}
    assert with_nodes.nodes[0].fields["labels.level2"].value == "top"
    assert "login" in reasons(with_nodes)[0]


def test_a_node_under_two_leaves_gets_none_but_rails_are_one_place() -> None:
    two = [("s0", ("n1", "n2", "n3")), ("s1", ("n3", "n4", "n5"))]
    faulty = proposed(
        reading(*(SwitchFact(origin("t", i), name, hosts, (), 1) for i, (name, hosts) in enumerate(two, 1)))
    )
    assert [node.name for node in faulty.nodes if "labels.leaf" not in node.fields] == ["n3"]
    assert [doubt.code for doubt in faulty.doubts] == ["two-leaves"]
    rails = proposed(
        reading(
            *(
                SwitchFact(origin("t", i), f"r{i}", ("n1", "n2"), (), 1, up_ports=1, down_ports=2)
                for i in range(1, 5)
            )
        )
    )
    assert {node.fields["labels.leaf"].value for node in rails.nodes} == {"r[1-4]"}


def test_hosts_without_gpus_are_no_nodes() -> None:
    proposal = proposed(reading(host("n1"), host("storage", gpus=0, product=None)))
    assert [node.name for node in proposal.nodes] == ["n1"]
    assert "has no GPU" in reasons(proposal)[0]


def test_a_moment_without_a_zone_is_not_believed() -> None:
    naive = datetime(2024, 1, 12, 18, 23, 45)  # noqa: DTZ001 - the point of the test
    file = reading(replace(run("n1", "n2"), measured_at=naive))
    assert {one.sample.measured_at for one in proposed(file).samples} == {None}
    answer = datetime(2024, 1, 12, tzinfo=UTC)
    assert {s.sample.measured_at for s in proposed(file, answers=Answers(measured_at=answer)).samples} == {answer}


def test_a_sender_names_what_no_file_says() -> None:
    file = reading(run("n1", "n2", ranks_per_node=1))
    assert "*.nics" in [question.key for question in proposed(file).questions]
    chosen = Answers(chosen={"*.nics": "8 x 400 infiniband", "*.gpu_count": "8"})
    fields = proposed(file, answers=chosen).nodes[0].fields
    assert (fields["nics"].value, fields["gpu_count"].value) == (NicGroup(8, 50e9, "infiniband"), 8)


def test_an_answer_says_which_node_a_name_is() -> None:
    """A name that several nodes begin with is asked for by its key, and the answer goes by that key."""
    files = [reading(host("n1.a.example"), host("n1.b.example"), host("n2")), reading(run("n1", "n2"))]
    asked = proposed(*files).questions
    assert [(one.key, one.choices) for one in asked] == [("alias:n1", ("n1.a.example", "n1.b.example"))]
    answered = proposed(*files, answers=Answers(chosen={"alias:n1": "n1.b.example"}))
    assert not answered.questions
    assert {(one.sample.source, one.sample.destination) for one in answered.samples} == {("n1.b.example", "n2")}
