"""Cluster files become clusters and samples, and what is wrong in them is named precisely."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.cluster import ClusterDocument, samples_of
from app.documents.measurements import MeasurementDocument, MeasurementsDocument
from app.documents.reading import FieldProblem, parse_text, problems_of, read_document
from cluster_models.errors import InvalidInput
from cluster_models.measurements import Collective, Direction, Sample, SampleStatus
from tests.plans import small_cluster, small_samples

TEXT = """
name: three-nodes
source: built for tests
nodes:
  - {name: n1, gpu_kind: H100-SXM5-80GB, gpu_count: 8, nics: {count: 8, rate_gbits_per_s: 200}, labels: {leaf: a}}
  - {name: n2, node_kind: DGX A100, gpu_kind: A100-SXM4-80GB}
  - {name: n3, node_kind: DGX A100, gpu_kind: A100-SXM4-80GB, state: degraded, compute_slowdown: 1.2}
measurement_tables:
  - tool: nccl-tests
    collective: alltoall
    direction: both
    ranks_per_node: 8
    measured_at: 2025-11-15T00:00:00Z
    message_bytes: [33554432, 268435456]
    pairs: [[n1, n2, 13.1, 23.4], [n1, n3, failed], [n2, n3, null, 20]]
samples:
  - {source: n1, destination: n2, direction: forward, tool: mpigraph, collective: point_to_point,
     message_bytes: 1048576, bandwidth_gbytes_per_s: 18.2, latency_us: 3.1}
"""


def document(**changes: Any) -> dict[str, Any]:
    """The plain value of the cluster above, with some top-level fields changed."""
    return {**copy.deepcopy(parse_text(TEXT, what="cluster")), **changes}


def read(value: object) -> tuple[Any, tuple[Sample, ...]]:
    """Cluster and samples of a plain value."""
    parsed = read_document(ClusterDocument, value, what="cluster")
    cluster = parsed.to_cluster()
    return cluster, parsed.to_samples(cluster)


def problems(value: object) -> tuple[FieldProblem, ...]:
    """What is wrong with a plain value."""
    with pytest.raises(InvalidInput) as caught:
        read(value)
    return problems_of(caught.value)


def with_node(**fields: Any) -> dict[str, Any]:
    """The cluster with other fields on its first node; ``None`` takes a field away."""
    value = document()
    node = {**value["nodes"][0], **fields}
    value["nodes"][0] = {key: item for key, item in node.items() if item is not None}
    return value


def with_rows(*rows: list[Any]) -> dict[str, Any]:
    """The cluster with other rows in its table."""
    value = document(samples=[])
    value["measurement_tables"][0]["pairs"] = list(rows)
    return value


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


def test_failed_is_unknown_and_null_is_no_sample() -> None:
    """A failed row gives a failed sample for each size; null gives none."""
    _, samples = read(document())
    failed = [sample for sample in samples if sample.status is SampleStatus.FAILED]
    assert [(s.source, s.destination, s.bytes_per_s) for s in failed] == [("n1", "n3", None)] * 2
    assert [s.message_bytes for s in samples if (s.source, s.destination) == ("n2", "n3")] == [268435456]


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
        (document(name="a/b"), "name", "pattern"),
        (with_node(gpu_cout=8), "nodes[0].gpu_cout", "did you mean 'gpu_count'?"),
        (with_node(gpu_count="8"), "nodes[0].gpu_count", "must be a whole number, not text"),
        (with_node(gpu_count=True), "nodes[0].gpu_count", "must be a whole number, not true/false"),
        (with_node(gpu_count=0), "nodes[0].gpu_count", "must be at least 1"),
        (with_node(gpu_count=None), "nodes[0].gpu_count", "is missing"),
        (with_node(nics=None), "nodes[0].nics", "is missing"),
        (with_node(gpu_kind="H1000"), "nodes[0].gpu_kind", "H100-SXM5-80GB"),
        (with_node(node_kind="DXG A100"), "nodes[0].node_kind", "DGX A100"),
        (with_node(gpu_kind=None, node_kind="DGX H100/H200"), "nodes[0].gpu_kind", "several GPU kinds"),
        (with_node(name="n2"), "nodes[1].name", "listed twice: nodes[0]"),
        (with_node(name=7), "nodes[0].name", "put it in quotes"),
        (with_node(state="broken"), "nodes[0].state", "must be one of ready"),
        (with_node(compute_slowdown=0.5), "nodes[0].compute_slowdown", "must be at least 1"),
        ([1, 2], "cluster", "must be a mapping of fields, not a list"),
    ],
)
def test_wrong_nodes_are_named(value: object, field: str, words: str) -> None:
    """Each mistake is one problem on its own field, with a remedy where there is one."""
    (found,) = problems(value)
    assert found.field == field
    assert words in str(found)


@pytest.mark.parametrize(
    ("row", "field", "words"),
    [
        (["n1", "n2", -1, 5], "measurement_tables[0].pairs[0][2]", "cannot be negative"),
        (["n1", "n2", 5, 0], "measurement_tables[0].pairs[0][3]", "cannot be zero"),
        (["n1", "n2", 5, 2340], "measurement_tables[0].pairs[0][3]", "more than the 400 GB/s"),
        (["n1", "n2", 1e-9, 5], "measurement_tables[0].pairs[0][2]", "less than a kilobyte"),
        (["n1", "n2", 5], "measurement_tables[0].pairs[0]", "1 figures for 2 message sizes"),
        (["n1", "n2", "failed", 5], "measurement_tables[0].pairs[0]", "stands alone"),
        (["n1", 5, 6], "measurement_tables[0].pairs[0]", "starts with two node names"),
        (["n1"], "measurement_tables[0].pairs[0]", "starts with two node names"),
        (["n1", "nn2", 5, None], "measurement_tables[0].pairs[0][2]", "did you mean 'n2'?"),
    ],
)
def test_wrong_rows_are_named(row: list[Any], field: str, words: str) -> None:
    """A wrong figure is named by row and column."""
    (found,) = problems(with_rows(row))
    assert found.field == field
    assert words in str(found)


@pytest.mark.parametrize("figure", [float("nan"), float("inf")])
def test_figures_that_are_not_finite_are_refused(figure: float) -> None:
    """Also where no text was parsed, as in an HTTP body."""
    assert any("finite" in str(found) for found in problems(with_rows(["n1", "n2", figure, 5])))


def test_asymmetric_duplicates_are_refused() -> None:
    """The same pair twice in one symmetric run contradicts itself, in either order."""
    first, second = problems(with_rows(["n1", "n2", 13, 23], ["n2", "n1", 14, 24]))
    assert "already says 13 GB/s" in first.problem
    assert first.field == "measurement_tables[0].pairs[1][2]"
    assert "already says 23 GB/s" in second.problem


def test_the_two_directions_of_a_directed_run_are_no_duplicates() -> None:
    """Forward tables may measure a pair both ways."""
    value = with_rows(["n1", "n2", 13, 23], ["n2", "n1", 14, 24])
    value["measurement_tables"][0]["direction"] = "forward"
    _, samples = read(value)
    assert len(samples) == 4


def test_many_problems_are_counted_not_all_listed() -> None:
    """A file full of mistakes still gives a readable answer."""
    found = problems(document(**{f"field{index}": 1 for index in range(50)}))
    assert len(found) == 21
    assert "30 more problems" in found[-1].problem


def test_moments_are_kept_in_utc_and_need_a_zone() -> None:
    """Equal moments are equal values; a time without a zone says nothing."""
    value = document()
    value["samples"][0]["measured_at"] = "2025-11-15T01:00:00+01:00"
    _, samples = read(value)
    assert samples[-1].measured_at == datetime(2025, 11, 15, tzinfo=UTC)
    assert samples[-1].measured_at.tzinfo is UTC
    value["samples"][0]["measured_at"] = "2025-11-15T01:00:00"
    (found,) = problems(value)
    assert "without a zone" in found.problem


def test_measurements_alone_are_checked_against_their_cluster() -> None:
    """New measurements of a known cluster may name only its nodes."""
    cluster = small_cluster()
    entry = MeasurementDocument.from_sample(small_samples()[0])
    assert samples_of(MeasurementsDocument(samples=[entry]), cluster) == small_samples()[:1]
    stranger = entry.model_copy(update={"source": "zz"})
    with pytest.raises(InvalidInput, match="a node that the cluster does not have"):
        samples_of(MeasurementsDocument(samples=[stranger]), cluster)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"bandwidth_gbytes_per_s": None}, "neither bandwidth nor latency"),
        ({"status": "failed"}, "a failed measurement carries a figure"),
        ({"bandwidth_gbytes_per_s": -2}, "cannot be negative"),
        ({"latency_us": 0}, "cannot be zero"),
        ({"latency_us": 2e7}, "more than ten seconds"),
        ({"message_bytes": 0}, "must be greater than 0"),
    ],
)
def test_single_measurements_are_checked(fields: dict[str, Any], words: str) -> None:
    """A sample that says nothing, or nonsense, is refused."""
    value = document(measurement_tables=[])
    value["samples"][0].pop("latency_us")
    value["samples"][0].update(fields)
    (found,) = problems(value)
    assert found.field.startswith("samples[0]")
    assert words in str(found)


@given(
    st.builds(
        Sample,
        source=st.sampled_from("abc"),
        destination=st.sampled_from("abc"),
        direction=st.sampled_from(Direction),
        tool=st.sampled_from(["nccl-tests", "mpigraph"]),
        collective=st.sampled_from(Collective),
        message_bytes=st.integers(1, 2**40).map(float),
        ranks_per_node=st.integers(1, 8),
        pairs_active=st.integers(1, 8),
        status=st.just(SampleStatus.OK),
        bytes_per_s=st.floats(1e4, 1e11),
        latency_s=st.none() | st.floats(1e-7, 1e-2),
        measured_at=st.none() | st.datetimes(timezones=st.just(UTC)),
    )
)
def test_a_sample_survives_its_document(sample: Sample) -> None:
    """Up to the rounding of the unit, the document says what the sample says."""
    again = MeasurementDocument.from_sample(sample).to_sample()
    assert again.bytes_per_s == pytest.approx(sample.bytes_per_s, rel=1e-12)
    assert again.latency_s == (None if sample.latency_s is None else pytest.approx(sample.latency_s, rel=1e-12))
    same = ("source", "destination", "direction", "collective", "message_bytes", "measured_at", "status")
    assert all(getattr(again, name) == getattr(sample, name) for name in same)
