"""Cluster models of topograph: trees of switches, blocks of nodes, scale-up domains."""

from __future__ import annotations

from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from readers.formats.nvidia.topograph import FORMAT
from readers.frame.facts import HostFact, SwitchFact
from readers.frame.findings import Severity
from readers.frame.lines import clean_lines
from readers.frame.reading import Contents
from readers.frame.sources import Source
from tests.readers.real_files import real, understood


def hosts(read: Contents) -> dict[str, HostFact]:
    """The facts on hosts by name."""
    return {fact.names[0].text: fact for fact in read.facts if isinstance(fact, HostFact)}


def switches(read: Contents, *, domain: bool = False) -> dict[str, SwitchFact]:
    """The switches, or the scale-up domains, by name."""
    return {fact.name: fact for fact in read.facts if isinstance(fact, SwitchFact) and fact.domain is domain}


def read_model(model: Any) -> Contents:
    """Read a model."""
    text = yaml.safe_dump(model)
    return FORMAT.read(Source("model.yaml", text, model), clean_lines(text))


@pytest.mark.parametrize(
    ("file", "node_count", "switch_count", "domains", "spot", "place"),
    [
        ("small-tree", 6, 3, {"nvl2": 3, "nvl3": 3}, ("I25", 21), {"leaf": "S2", "level2": "S1"}),
        ("medium", 8, 7, {f"nvl{n}": 2 for n in (1, 2, 3, 4)}, ("1302", 50), {"leaf": "sw13", "zone": "zone2"}),
        (
            "dual-xclr-regular",
            96,
            19,
            {"nvl-1": 48, "nvl-2": 48},
            ("srv4108", 106),
            {"leaf": "leaf-4-1", "level3": "core", "zone": "zone2", "block": "rack07"},
        ),
        (
            "dual-xclr-irregular",
            255,
            34,
            {"domain-01": 124, "domain-02": 131},
            ("node0032", 78),
            {"leaf": "rack-1-04", "zone": "zone-1"},
        ),
    ],
)
def test_real_models(
    file: str,
    node_count: int,
    switch_count: int,
    domains: dict[str, int],
    spot: tuple[str, int],
    place: dict[str, str],
) -> None:
    """Nodes, switches and domains of each model, and the place of one node with its line."""
    source = real(f"topology/topograph_models/{file}.yaml")
    assert FORMAT.fits is not None
    assert FORMAT.fits(source.tree)
    read = understood(FORMAT, source)
    assert len(hosts(read)) == node_count
    assert len(switches(read)) == switch_count
    assert {name: len(fact.hosts) for name, fact in switches(read, domain=True).items()} == domains
    host = hosts(read)[spot[0]]
    assert host.origin.first_line == spot[1]
    assert place.items() <= host.labels.items()
    assert read.refusals == ()
    assert read.doubts[0].code == "model-not-measurement"
    assert read.doubts[0].severity is Severity.NOTE


def test_two_levels_of_domains_are_a_doubt() -> None:
    """Which of both shares NVLink is not said; empty racks stay switches without hosts."""
    read = understood(FORMAT, real("topology/topograph_models/dual-xclr-irregular.yaml"))
    assert [doubt.code for doubt in read.doubts].count("parts-of-domain") == 2
    assert switches(read)["rack-1-13"].hosts == ()
    assert "node0031" not in hosts(read)


MODEL: Final = {
    "switches": {
        "top": {"switches": ["left", "right"], "labels": {"topology.kubernetes.io/region": "north"}},
        "left": {"switches": ["l1"], "labels": {"topology.kubernetes.io/zone": "za"}},
    },
    "blocks": [
        {"switch": "l1", "nodes": ["g[08-11]", "h3"], "annotations": {"x.example/domain": "d1"}},
        {"switch": "right", "nodes": ["k1"]},
    ],
}


def test_a_model_of_our_own() -> None:
    """Levels count from the nodes up, zones come from above, and a leaf may be named by its block only."""
    read = read_model(MODEL)
    assert {name: fact.level for name, fact in switches(read).items()} == {"top": 3, "left": 2, "l1": 1, "right": 1}
    assert switches(read)["l1"].hosts == ("g08", "g09", "g10", "g11", "h3")
    host = hosts(read)["g10"]
    assert dict(host.labels) == {"leaf": "l1", "level1": "l1", "level2": "left", "level3": "top", "zone": "za"}
    assert host.scale_up_domain == "d1"
    assert hosts(read)["k1"].scale_up_domain is None


def test_the_older_format_says_the_same() -> None:
    """``switches`` and ``capacity_blocks`` as lists, the leaf naming its blocks."""
    older = {
        "switches": [
            {"name": "top", "switches": ["left"]},
            {"name": "left", "capacity_blocks": ["b1"]},
        ],
        "capacity_blocks": [{"name": "b1", "type": "H100", "nvlink": "d9", "nodes": ["g[1-2]"]}],
    }
    assert FORMAT.fits is not None
    assert FORMAT.fits(older)
    host = hosts(read_model(older))["g2"]
    assert (host.gpu_product, host.scale_up_domain, host.labels["leaf"]) == ("H100", "d9", "left")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"blocks": [{"switch": "l1", "nodes": ["g[1-2"]}]}, "cannot read the nodes"),
        ({"blocks": [{"switch": "l1", "nodes": ["g1"]}, {"switch": "right", "nodes": ["g1"]}]}, "stands in"),
        ({"switches": {"a": {"switches": ["b"]}, "b": {"switches": ["a"]}}}, "below themselves"),
        ({"switches": {"a": {"switches": ["c"]}, "b": {"switches": ["c"]}}}, "hangs below a and below b"),
        ({"switches": [{"switches": []}]}, "no name"),
    ],
)
def test_broken_models_are_refused_in_part(change: dict[str, Any], reason: str) -> None:
    """The rest stays; what is broken is said."""
    read = read_model(MODEL | change)
    assert any(reason in refusal.sentence for refusal in read.refusals)
    assert read.facts


TREES: Final = st.recursive(
    st.none() | st.integers(0, 9) | st.sampled_from(["a", "b", "n[1-3]", "n[", ""]) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["switches", "blocks", "nodes", "switch", "capacity_blocks", "name", "labels", "a", "b"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=40,
)


@given(TREES)
def test_no_tree_breaks_the_reader(tree: Any) -> None:
    """Any value is read or refused; every node has one fact, and every leaf of it exists."""
    read = read_model(tree)
    names = [fact.names[0].text for fact in read.facts if isinstance(fact, HostFact)]
    assert len(set(names)) == len(names)
    known = switches(read)
    assert all(fact.labels["leaf"] in known for fact in hosts(read).values() if "leaf" in fact.labels)
