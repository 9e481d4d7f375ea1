"""Single samples refuse what cannot be a measurement."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Collective, Direction, Sample, SampleStatus
from cluster_models.errors import InvalidCluster
from tests.cluster_models.clusters import sample


@given(st.one_of(st.floats(max_value=0), st.sampled_from([math.nan, math.inf])))
def test_only_positive_finite_bandwidth_is_a_measurement(value: float) -> None:
    """Zero, negative, infinite and NaN are refused with the advice to mark the sample failed."""
    with pytest.raises(InvalidCluster, match="positive, finite") as caught:
        sample("a", "b", value)
    assert "mark it failed" in caught.value.remedy


@pytest.mark.parametrize("size", [-1.0, math.nan, math.inf])
def test_a_message_size_must_be_a_size(size: float) -> None:
    """A table keyed by nonsense sizes would interpolate nonsense."""
    with pytest.raises(InvalidCluster, match="message_bytes"):
        sample("a", "b", mib=size)


def test_success_needs_a_figure() -> None:
    """A sample that succeeded without bandwidth or latency says nothing."""
    with pytest.raises(InvalidCluster, match="neither bandwidth nor latency"):
        sample("a", "b", None)


def test_ranks_and_pairs_start_at_one() -> None:
    """No measurement has zero ranks."""
    with pytest.raises(InvalidCluster, match="start at 1"):
        sample("a", "b", ranks=0)


def test_a_failed_test_carries_no_figure_into_the_model() -> None:
    """A failed sample with a left-over figure of zero is accepted as failed."""
    failed = Sample(
        "a", "b", Direction.BOTH, "nccl-tests", Collective.ALL_TO_ALL, 1e6, 8, 1, SampleStatus.FAILED, 0.0
    )
    assert failed.status is SampleStatus.FAILED
