"""Files that are known in order to be refused well: NCCL graphs and TACCL profiles."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import registry
from readers.formats import taccl
from readers.formats.nccl import graph as nccl_graph
from readers.frame.sources import Source
from tests.readers.damage import damaged, sound
from tests.readers.real_files import real, source_of, understood

GRAPH = """<graphs version="1">
  <graph id="0" pattern="4" nchannels="3" speedintra="20" speedinter="10" typeintra="NVL" typeinter="PXB">
    <channel>
      <gpu dev="0"/>
      <gpu dev="1"/>
    </channel>
  </graph>
</graphs>
"""


def test_a_real_graph_is_refused_with_what_it_says() -> None:
    """Three graphs; the speeds that NCCL assumed stand in the note."""
    found = understood(nccl_graph.FORMAT, real("topology/nccl_topo_xml/azure_nc48v4-graph.xml"))
    assert not found.facts
    assert [(refusal.first_line, refusal.last_line) for refusal in found.refusals] == [(1, 48)]
    (note,) = found.doubts
    assert note.code == "nccl-graph"
    assert "nchannels 2 speedintra 12 speedinter 12 typeintra SYS typeinter PIX" in note.sentence


def test_a_graph_is_not_taken_for_a_topology() -> None:
    """Alone, and below a topology in one file."""
    topology = '<system version="1">\n<cpu><pci busid="0" class="0x030200"/></cpu>\n</system>\n'
    reading = registry.read(source_of(topology + GRAPH))
    assert [section.format for section, _ in reading.sections] == ["nccl-topology", "nccl-graph"]
    assert reading.sections[1][1].refusals[0].sentence == nccl_graph.REASON


def test_a_cut_graph_says_so() -> None:
    """The refusal names both reasons."""
    (refusal,) = understood(nccl_graph.FORMAT, source_of(GRAPH[:200])).refusals
    assert refusal.sentence.startswith(nccl_graph.REASON)
    assert "ends before" in refusal.sentence


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("topo-ndv2-1KB.json", "alpha 30; node_betas_list 2.24, 4.5"),
        ("topo-ndv2-1MB.json", "remote_alpha 2.6; remote_beta 105"),
        ("topo-ndv2-32KB.json", "remote_alpha 26; remote_beta 32.8"),
    ],
)
def test_a_real_profile_is_refused_with_its_figures(name: str, said: str) -> None:
    """Alpha and beta of classes of links name no pair."""
    reading = registry.read(real(f"topology/taccl_profiles/{name}"))
    ((section, found),) = reading.sections
    assert (section.format, found.facts) == ("taccl-profile", ())
    assert [refusal.sentence for refusal in found.refusals] == [taccl.REASON]
    assert said in found.doubts[0].sentence


@given(
    st.dictionaries(
        st.sampled_from(["name", "alpha", "node_betas_list", "remote_alpha", "remote_beta", "remote_invbw"]),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
        ),
    )
)
def test_any_tree_is_taken(tree: dict[str, Any]) -> None:
    """A profile of any content is refused; nothing is raised."""
    found = taccl.FORMAT.read(Source("profile.json", json.dumps(tree), tree), ())
    assert len(found.refusals) == 1
    assert taccl.fits(tree) == ("alpha" in tree and len(tree.keys() - {"name", "alpha"}) >= 2)


@given(damaged(GRAPH))
def test_damage_never_stops_the_reader(text: str) -> None:
    """A graph gives no fact, however damaged."""
    assert not sound(nccl_graph.FORMAT, text).facts
