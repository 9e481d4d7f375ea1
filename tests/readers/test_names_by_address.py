"""Hosts that a log calls by their address, or in other letters than Kubernetes: one node each."""

from __future__ import annotations

import json

from readers.frame.facts import NameKind
from readers.proposal.aliases import AliasTable, spellings
from readers.proposal.combine import combine
from readers.proposal.values import Answers, Proposal
from readers.registry import read
from tests.readers.nccl_logs import log
from tests.readers.real_files import source_of
from tests.readers.uploads import codes_of


def kubernetes(nodes: dict[str, str]) -> str:
    """``kubectl get nodes -o json`` of nodes and their internal addresses."""
    items = [
        {
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8"},
            },
            "status": {
                "addresses": [{"type": "InternalIP", "address": address}],
                "capacity": {"nvidia.com/gpu": "8"},
            },
        }
        for name, address in nodes.items()
    ]
    return json.dumps({"kind": "List", "items": items})


FOUR = kubernetes({f"node-{at}": f"10.1.0.{10 + at}" for at in range(1, 5)})


def proposed(files: dict[str, str], answers: Answers | None = None, aliases: AliasTable | None = None) -> Proposal:
    readings = [read(source_of(text, name)) for name, text in files.items()]
    return combine(readings, aliases=aliases or AliasTable(), known=None, answers=answers or Answers())


def pairs(proposal: Proposal) -> set[tuple[str, str]]:
    return {(one.sample.source, one.sample.destination) for one in proposal.samples}


def test_a_host_named_after_its_address_is_the_node_that_has_it() -> None:
    """Nodes are counted once, the name is proposed as an alias, and one doubt tells all of it."""
    proposal = proposed({"nodes.json": FOUR, "a.log": log(["ip-10-1-0-11", "ip-10-1-0-12.ec2.internal"], 8)})
    assert [node.name for node in proposal.nodes] == ["node-1", "node-2", "node-3", "node-4"]
    assert pairs(proposal) == {("node-1", "node-2")}
    names = {name.text: name.kind for name in proposal.nodes[0].aliases}
    assert names == {"10.1.0.11": NameKind.ADDRESS, "ip-10-1-0-11": NameKind.HOST}
    (doubt,) = [(doubt.place.file, doubt) for doubt in proposal.doubts if doubt.code == "named-by-address"]
    assert doubt[0] == "a.log"
    assert "ip-10-1-0-11 is taken for node-1" in doubt[1].sentence
    assert "1 more" in doubt[1].sentence


def test_it_is_said_once() -> None:
    """A name that was learned or answered is known."""
    files = {"nodes.json": FOUR, "a.log": log(["ip-10-1-0-11", "ip-10-1-0-12"], 8)}
    learned = AliasTable({"ip-10-1-0-11": "node-1", "ip-10-1-0-12": "node-2", "10.1.0.11": "node-1"})
    assert "named-by-address" not in codes_of(proposed(files, aliases=learned))
    answers = Answers(chosen={"alias:ip-10-1-0-11": "node-3", "alias:ip-10-1-0-12": "node-2"})
    answered = proposed(files, answers)
    assert "named-by-address" not in codes_of(answered)
    assert pairs(answered) == {("node-2", "node-3")}


def test_a_learned_address_tells_the_name_made_of_it() -> None:
    """A later log alone finds the node."""
    learned = AliasTable({"10.1.0.11": "node-1", "10.1.0.12": "node-2"})
    proposal = proposed({"a.log": log(["ip-10-1-0-11", "ip-10-1-0-12"], 8)}, aliases=learned)
    assert pairs(proposal) == {("node-1", "node-2")}


def test_names_that_only_look_like_addresses_stay() -> None:
    """Numbers beyond an address, and hosts whose address nobody names."""
    assert spellings("ip-300-1-0-11") == ("ip-300-1-0-11",)
    assert spellings("ip-10-1-0-11.ec2.internal") == ("ip-10-1-0-11.ec2.internal", "ip-10-1-0-11", "10.1.0.11")
    proposal = proposed({"a.log": log(["ip-10-9-0-1", "ip-10-9-0-2"], 8)})
    assert pairs(proposal) == {("ip-10-9-0-1", "ip-10-9-0-2")}
    assert "named-by-address" not in codes_of(proposal)


def test_the_name_in_kubernetes_wins_over_other_letters() -> None:
    """Its selectors tell large letters from small ones."""
    proposal = proposed({"a.log": log(["NODE-1", "NODE-2"], 8), "nodes.json": FOUR})
    assert [node.name for node in proposal.nodes] == ["node-1", "node-2", "node-3", "node-4"]
    assert pairs(proposal) == {("node-1", "node-2")}
