"""Measurements in documents: what they say, and which figures cannot be."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.cluster import samples_of
from app.documents.measurements import MeasurementDocument, MeasurementsDocument
from cluster_models.cluster.measurements import Collective, Direction, Sample, SampleStatus
from cluster_models.errors import InvalidInput
from tests.app.cluster_documents import document, problems, read, with_rows
from tests.plans import small_cluster, small_samples


def test_failed_is_unknown_and_null_is_no_sample() -> None:
    """A failed row gives a failed sample for each size; null gives none."""
    _, samples = read(document())
    failed = [sample for sample in samples if sample.status is SampleStatus.FAILED]
    assert [(s.source, s.destination, s.bytes_per_s) for s in failed] == [("n1", "n3", None)] * 2
    assert [s.message_bytes for s in samples if (s.source, s.destination) == ("n2", "n3")] == [268435456]


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


@pytest.mark.parametrize(
    "moment", [0, -1, "0", 1e30, "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00", "2999-01-01T00:00:00Z"]
)
def test_moments_that_cannot_be_are_refused(moment: object) -> None:
    """No number is taken for a moment, and none lies beyond the calendar or in the future."""
    value = document()
    value["samples"][0]["measured_at"] = moment
    (found,) = problems(value)
    assert found.field.startswith("samples[0]")
    assert "is not a time" in found.problem or "in the future" in found.problem


@pytest.mark.parametrize("figure", [float("nan"), float("inf")])
def test_figures_that_are_not_finite_are_refused(figure: float) -> None:
    """Also where no text was parsed, as in an HTTP body."""
    (found,) = problems(with_rows(["n1", "n2", figure, 5]))
    assert found.field == "measurement_tables[0].pairs[0][2]"
    assert "finite" in str(found)


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
    entry = MeasurementDocument.from_value(small_samples()[0])
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
    again = MeasurementDocument.from_value(sample).to_sample()
    assert again.bytes_per_s == pytest.approx(sample.bytes_per_s, rel=1e-12)
    assert again.latency_s == (None if sample.latency_s is None else pytest.approx(sample.latency_s, rel=1e-12))
    same = ("source", "destination", "direction", "collective", "message_bytes", "measured_at", "status")
    assert all(getattr(again, name) == getattr(sample, name) for name in same)
