"""Cluster files become clusters and samples, and what is wrong in them is named precisely."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.cluster import ClusterDocument
from app.documents.reading import problems_of
from cluster_models.errors import InvalidInput
from tests.app.cluster_documents import document, problems, read, with_node


def test_units_become_si() -> None:
    """200 Gbit/s is 25e9 bytes/s, 13.1 GB/s is 13.1e9 bytes/s, 3.1 us is 3.1e-6 s."""
    cluster, samples = read(document())
    assert cluster.nodes[0].nics.bytes_per_s == 25e9
    assert samples[0].bytes_per_s == 13.1e9
    assert samples[-1].latency_s == pytest.approx(3.1e-6)


def test_node_kind_fills_in_what_is_not_given() -> None:
    """A DGX A100 has eight GPUs and eight cards of 200 Gbit/s."""
    cluster, _ = read(document())
    node = cluster.nodes[1]
    assert (node.gpu_count, node.nics.count, node.nics.bytes_per_s) == (8, 8, 25e9)
    assert node.nvlink_domain == "n2"


def test_memory_of_a_node_is_stated_in_its_units() -> None:
    """2 TiB for eight GPUs, 600 GB/s; a link that is not stated is estimated, and no GPU kind is written."""
    stated = {"memory_gib": 2048, "memory_bandwidth_gbytes_per_s": 600}
    cluster, _ = read(document(nodes=[{**each, "host": stated} for each in document()["nodes"]]))
    share = cluster.gpu_kinds[cluster.nodes[1].gpu_kind].host_share
    assert (share.memory_bytes, share.memory_bytes_per_s) == (256 * 2**30, 75e9)
    assert share.is_estimated
    again = ClusterDocument.from_cluster(cluster)
    assert again.to_cluster() == cluster
    assert again.gpu_kinds == []


def test_document_of_a_cluster_says_the_same_cluster() -> None:
    """Domain to document and back changes nothing."""
    cluster, samples = read(document())
    again = ClusterDocument.from_cluster(cluster, samples)
    assert again.to_cluster() == cluster
    assert again.to_samples(cluster) == samples
    assert again.gpu_kinds == []


def test_own_gpu_kinds_survive_the_round_trip() -> None:
    """A kind the catalogue lacks is written into the document."""
    kind = {
        "name": "X1",
        "vendor": "us",
        "memory_gib": 96,
        "memory_bandwidth_gbytes_per_s": 4000,
        "peak_bf16_tflops_per_s": 1200,
        "achievable_fraction": 0.7,
        "scale_up_link": "own",
        "scale_up_bandwidth_gbytes_per_s": 450,
        "scale_up_domain_gpus": 8,
        "power_watts": 800,
        "source": "our data sheet",
    }
    cluster, _ = read(with_node(gpu_kind="X1") | {"gpu_kinds": [kind]})
    again = ClusterDocument.from_cluster(cluster)
    assert cluster.gpu_kinds["X1"].memory_bytes == 96 * 2**30
    assert [own.name for own in again.gpu_kinds] == ["X1"]
    assert again.to_cluster().gpu_kinds == cluster.gpu_kinds


@pytest.mark.parametrize(
    ("value", "field", "words"),
    [
        (document(nodes=[]), "nodes", "has no nodes"),
        (document(nodes="n1"), "nodes", "must be a list, not text"),
        (document(nodez=[]), "nodez", "unknown field"),
        (document(name="a/b"), "name", "letters, digits"),
        (with_node(gpu_cout=8), "nodes[0].gpu_cout", "did you mean 'gpu_count'?"),
        (with_node(gpu_count="8"), "nodes[0].gpu_count", "must be a whole number, not text"),
        (with_node(gpu_count=2.5), "nodes[0].gpu_count", "must be a whole number (got 2.5)"),
        (with_node(gpu_count=True), "nodes[0].gpu_count", "not true/false (got True); a switch takes 1 or 0"),
        (with_node(gpu_count=0), "nodes[0].gpu_count", "must be at least 1"),
        (with_node(gpu_count=None), "nodes[0].gpu_count", "is missing"),
        (with_node(nics=None), "nodes[0].nics", "is missing"),
        (with_node(gpu_kind="H1000"), "nodes[0].gpu_kind", "H100-SXM5-80GB"),
        (with_node(node_kind="DXG A100"), "nodes[0].node_kind", "DGX A100"),
        (with_node(gpu_kind=None, node_kind="DGX H100/H200"), "nodes[0].gpu_kind", "several GPU kinds"),
        (with_node(name="n2"), "nodes[1].name", "listed twice: nodes[0]"),
        (with_node(name=7), "nodes[0].name", "put it in quotes"),
        (with_node(name="n\x1b[31m"), "nodes[0].name", "holds a control character"),
        (with_node(labels={"leaf": "a\nb"}), "nodes[0].labels.leaf", "holds a control character"),
        (with_node(state="broken"), "nodes[0].state", "must be one of ready"),
        (with_node(compute_slowdown=0.5), "nodes[0].compute_slowdown", "must be at least 1"),
        ([1, 2], "cluster", "must be a mapping of fields, not a list"),
        (document(name=".."), "name", "begin with a letter or digit"),
        (with_node(compute_slowdown=1e300), "nodes[0].compute_slowdown", "must be at most 1000"),
        (with_node(nics={"count": 1, "rate_gbits_per_s": 1e300}), "nodes[0].nics.rate_gbits_per_s", "at most"),
        (with_node(nics={"count": 10**12, "rate_gbits_per_s": 1}), "nodes[0].nics.count", "at most 1024"),
        (with_node(labels={str(index): "" for index in range(101)}), "nodes[0].labels", "more than 100 entries"),
        (document(nodes=[{}] * 5000), "nodes", "has more than 2048 entries"),
        (document(**{f"field{index}": 1 for index in range(200)}), "cluster", "most of them unknown"),
    ],
)
def test_wrong_nodes_are_named(value: object, field: str, words: str) -> None:
    """Each mistake is one problem on its own field, with a remedy where there is one."""
    (found,) = problems(value)
    assert found.field == field
    assert words in str(found)


def test_many_problems_are_counted_not_all_listed() -> None:
    """A file full of mistakes still gives a readable answer."""
    found = problems(document(**{f"field{index}": 1 for index in range(50)}))
    assert len(found) == 21
    assert "30 more problems" in found[-1].problem


def test_a_million_bad_entries_are_looked_at_in_slices() -> None:
    """The path of a problem late in a long list is right, and its length costs nothing more."""
    good = document()["samples"][0]
    moments = [f"2025-01-01T00:00:00.{index:06d}Z" for index in range(2500)]
    samples = [good | {"measured_at": moment} for moment in moments]
    assert len(read(document(samples=samples))[1]) > 2500
    found = problems(document(samples=[*samples, *[{}] * 300_000]))
    assert found[0].field == "samples[2500].source"
    assert "2480 more problems" in found[-1].problem


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every path inside a plain value."""
    items: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path, *(deeper for key, item in items for deeper in places(item, (*path, key)))]


@given(st.sampled_from(places(document())), JUNK)
def test_junk_anywhere_is_a_cluster_or_an_invalid_input(path: tuple[str | int, ...], junk: object) -> None:
    """Whatever stands wherever, the answer is a cluster or a sentence for each problem."""
    value: Any = document()
    if path:
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = junk
    else:
        value = junk
    try:
        cluster, samples = read(value)
    except InvalidInput as error:
        sentences = [str(found) for found in problems_of(error)]
    else:
        sentences = []
        assert {sample.source for sample in samples} <= {node.name for node in cluster.nodes}
    assert all(sentences)
