"""Slurm's trees and blocks: levels, hosts listed twice, names without prefix, circles, catch-all switches, YAML."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import registry
from readers.formats.slurm.topology import FORMATS
from readers.frame.facts import HostFact, NameKind, PortFact, SwitchFact
from readers.frame.reading import Contents
from tests.readers.damage import damaged, sound
from tests.readers.real_files import real, source_of, understood

CONF, YAML = FORMATS
TREE = """# topology of ours
SwitchName=top Switches=mid[1-2]
SwitchName=mid1 Switches=low1,low2  # first row
SwitchName=mid2 Switches=low3
SwitchName=low1 Nodes=n[01-04]
SwitchName=low2 Nodes=n[05-07],m1
SwitchName=low3 Nodes=n08
"""


def labels_of(found: Contents) -> dict[str, dict[str, str]]:
    return {fact.names[0].text: dict(fact.labels) for fact in found.facts if isinstance(fact, HostFact)}


def switches_of(found: Contents) -> dict[str, SwitchFact]:
    return {fact.name: fact for fact in found.facts if isinstance(fact, SwitchFact)}


def read(text: str) -> Contents:
    return understood(CONF, source_of(text, "topology.conf"))


@pytest.mark.parametrize(
    ("file", "switches", "hosts", "refusals", "doubts"),
    [
        ("azure_slurm_topology.txt", 6, 16, 0, []),
        ("azure_slurm_illegal_block_topology.txt", 0, 0, 4, []),
        ("azure_topology.txt", 40, 0, 9, ["guid-names"]),
        ("scontrol_show_topology_unknown_switch.txt", 5, 4, 0, ["unknown-switch"]),
        ("topograph_expected.slinky-dra-block.conf", 12, 96, 0, []),
        ("topograph_expected.slinky-oci-sim-tree.conf", 19, 96, 0, []),
        ("topology_leonardo_line.txt", 2, 180, 0, []),
        ("topology_superpod_inconsistent.conf", 5, 77, 1, ["two-leaves"]),
    ],
)
def test_real_files_are_read_whole(file: str, switches: int, hosts: int, refusals: int, doubts: list[str]) -> None:
    """Counts of each file, and the kind it is taken for."""
    source = real(f"topology/slurm/{file}")
    found = understood(CONF, source)
    assert len(switches_of(found)) == switches
    assert len(labels_of(found)) == hosts
    assert len(found.refusals) == refusals
    assert [doubt.code for doubt in found.doubts] == doubts
    assert [section.format for section in registry.recognise(source)] == ["slurm-topology"]


def test_a_real_tree_has_three_levels() -> None:
    """Names of the simulator stand in the comments."""
    found = understood(CONF, real("topology/slurm/topograph_expected.slinky-oci-sim-tree.conf"))
    assert labels_of(found)["srv6208"] == {
        "leaf": "switch.1.12",
        "level1": "switch.1.12",
        "level2": "switch.2.6",
        "level3": "switch.3.1",
    }
    switch = switches_of(found)["switch.2.1"]
    assert (switch.level, switch.alias, switch.origin.first_line) == (2, "spine-1", 4)


def test_real_blocks_are_domains_of_eight() -> None:
    """A block is marked as one; its hosts carry its name."""
    found = understood(CONF, real("topology/slurm/topograph_expected.slinky-dra-block.conf"))
    assert all(switch.domain and len(switch.hosts) == 8 for switch in switches_of(found).values())
    assert labels_of(found)["srv1101"] == {"block": "rack11"}


def test_a_real_file_with_two_faults_keeps_the_rest() -> None:
    """A host under two leaves gets none; names that lost their prefix are not taken."""
    found = understood(CONF, real("topology/slurm/topology_superpod_inconsistent.conf"))
    labels = labels_of(found)
    assert labels["circe-n051"] == {}
    assert labels["circe-n001"] == {"leaf": "s0", "level1": "s0"}
    assert "n019" not in labels
    assert "n[019-020]" in found.refusals[0].sentence
    assert "circe-n051" in found.doubts[0].sentence
    assert found.doubts[0].first_line == 5


def test_a_real_circle_leaves_the_leaves() -> None:
    """Switches that list each other have no level; port GUIDs below the leaves become ports."""
    found = understood(CONF, real("topology/slurm/azure_topology.txt"))
    assert {switch.level for switch in switches_of(found).values()} == {1}
    ports = [fact for fact in found.facts if isinstance(fact, PortFact)]
    assert len(ports) == 128
    assert (ports[0].guid, ports[0].switch, ports[0].host) == ("00155dfffd33ff7d", "ibsw1", None)
    assert {refusal.first_line for refusal in found.refusals} == {14, 26, 27, 44, 45, 46, 47, 48, 49}


def test_hosts_of_the_real_catch_all_have_no_leaf() -> None:
    """They share no switch that anybody knows."""
    found = understood(CONF, real("topology/slurm/scontrol_show_topology_unknown_switch.txt"))
    assert labels_of(found)["worker-payg-0"] == {}
    assert labels_of(found)["worker-1"]["level3"] == "root"
    assert switches_of(found)["root"].hosts == ()
    assert "unknown" not in switches_of(found)


def test_brackets_expand_in_names_of_switches() -> None:
    """The switch above knows three leaves; hosts outside the leaf that is listed have no label."""
    found = understood(CONF, real("topology/slurm/topology_leonardo_line.txt"))
    assert switches_of(found)["isw-L2-CELLG1"].switches == ("isw10100", "isw10102", "isw10104")
    assert labels_of(found)["lrdn0013"]["leaf"] == "isw10100"
    assert labels_of(found)["lrdn0180"] == {}


def test_a_tree_gives_every_level() -> None:
    """From the leaf up; the hosts are Slurm's names."""
    found = read(TREE)
    assert labels_of(found)["m1"] == {"leaf": "low2", "level1": "low2", "level2": "mid1", "level3": "top"}
    assert {name: switch.level for name, switch in switches_of(found).items()} == {
        "top": 3,
        "mid1": 2,
        "mid2": 2,
        "low1": 1,
        "low2": 1,
        "low3": 1,
    }
    host = next(fact for fact in found.facts if isinstance(fact, HostFact))
    assert host.names[0].kind is NameKind.SLURM
    assert not found.refusals
    assert not found.doubts


@given(st.permutations(TREE.strip().split("\n")))
def test_the_order_of_records_says_nothing(lines: list[str]) -> None:
    """Labels and levels are those of the sorted file."""
    found = read("\n".join(lines) + "\n")
    assert labels_of(found) == labels_of(read(TREE))
    assert {n: s.level for n, s in switches_of(found).items()} == {
        n: s.level for n, s in switches_of(read(TREE)).items()
    }


def test_continued_lines_are_one_record() -> None:
    """A backslash at the end joins the next line; keys are read in any case."""
    found = read("switchname=a \\\n  nodes=n[1-2],\\\n\nSwitchName=b Nodes=n3\n")
    assert set(labels_of(found)) == {"n1", "n2", "n3"}


def test_records_pasted_onto_one_line_are_taken_apart() -> None:
    """Each keeps its own hosts."""
    found = read("SwitchName=a Nodes=n[1-2] SwitchName=b Nodes=n3  # SwitchName=c Nodes=n4\n")
    assert {name: switch.hosts for name, switch in switches_of(found).items()} == {"a": ("n1", "n2"), "b": ("n3",)}


@pytest.mark.parametrize("nodes", ["n[1-2", "n[2-1]", "n[1-9999]", "n[x]"])
def test_lists_that_cannot_be_read_are_refused(nodes: str) -> None:
    """With their line; the other records are taken."""
    found = read(f"SwitchName=a Nodes={nodes}\nSwitchName=b Nodes=m1\n")
    assert set(labels_of(found)) == {"m1"}
    assert [refusal.first_line for refusal in found.refusals] == [1]


def test_other_prefixes_of_one_record_are_kept() -> None:
    """Only an item whose prefix is the end of the first one's, behind a dash, has lost something."""
    found = read("SwitchName=a Nodes=gpu-n[1-2],cpu-n3,n4,mn5\n")
    assert set(labels_of(found)) == {"gpu-n1", "gpu-n2", "cpu-n3", "mn5"}


def test_a_cluster_uuid_above_a_block_is_its_domain() -> None:
    """Comments that the generator wrote above the record belong to it alone."""
    uuid = "01234567-89ab-cdef-0123-456789abcdef"
    found = read(f"# ClusterUUID and CliqueID: {uuid}.7\nBlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n3\n")
    domains = [fact.scale_up_domain for fact in found.facts if isinstance(fact, HostFact)]
    assert domains == [f"{uuid}.7", f"{uuid}.7", None]


OWN_YAML = """---
- topology: trees
  cluster_default: true
  tree:
    switches:
      - switch: top
        children: low[1-2]
      - switch: low1
        nodes: n[01-02]
      - switch: low2
        nodes: n[03-04]
- topology: blocks
  block:
    block_sizes: [2]
    blocks:
      - block: b1
        nodes: n[01-02]
- topology: none
  flat: true
"""


def test_yaml_holds_trees_and_blocks() -> None:
    """With the line of each record, and its path."""
    source = source_of(OWN_YAML, "topology.yaml")
    found = understood(YAML, source)
    assert labels_of(found)["n02"] == {"leaf": "low1", "level1": "low1", "level2": "top", "block": "b1"}
    assert labels_of(found)["n03"] == {"leaf": "low2", "level1": "low2", "level2": "top"}
    switch = switches_of(found)["low2"]
    assert (switch.origin.first_line, switch.origin.path) == (10, "[0].tree.switches[2]")
    assert [section.format for section in registry.recognise(source)] == ["slurm-topology-yaml"]


@given(damaged(OWN_YAML))
def test_damaged_yaml_is_taken(text: str) -> None:
    """Trees of any shape, or none, give facts or refusals."""
    found = understood(YAML, source_of(text, "topology.yaml"))
    assert found.facts or found.refusals


@given(damaged(TREE + "BlockName=b1 Nodes=n[01-04]\n#BlockName=b2 Nodes=n[05-08]\nBlockSizes=4\n"))
def test_damage_never_stops_the_reader(text: str) -> None:
    """A leaf label is always the name of a switch of the file."""
    found = sound(CONF, text)
    names = set(switches_of(found))
    assert {labels["leaf"] for labels in labels_of(found).values() if "leaf" in labels} <= names
