"""Lengths of documents as their owner writes them."""

from __future__ import annotations

from typing import Any

import pytest

from app.documents.mixed_lengths import MixedLengthsDocument
from app.documents.reading import InvalidDocument, read_document
from cluster_models.errors import InvalidWorkload
from cluster_models.training.mixed_lengths import MixedLengths, Packing


def read(data: dict[str, Any]) -> MixedLengths:
    """The value of a document."""
    return read_document(MixedLengthsDocument, data, what="lengths").to_value()


def test_a_histogram_in_any_order_is_one_of_shares() -> None:
    """Counts of one length add up, empty bins are left out, and what is written reads back."""
    found = read({"tokens": [900, 100, 900, 50], "counts": [1, 6, 1, 0], "packing": "whole"})
    assert found == MixedLengths((100, 900), (0.75, 0.25), Packing.WHOLE)
    assert read(MixedLengthsDocument.from_value(found).model_dump(mode="json")) == found


def test_a_log_normal_distribution_has_its_median_and_mean() -> None:
    """The mean of exp(normal) is exp(sigma^2 / 2) times the median."""
    found = read({"log_normal": {"median_tokens": 1000, "sigma": 0.8}})
    assert found.lengths[len(found.lengths) // 2] == pytest.approx(1000, rel=0.02)
    assert found.mean == pytest.approx(1000 * 1.377, rel=0.01)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "tokens with counts, or log_normal"),
        ({"tokens": [5], "counts": [1], "log_normal": {"median_tokens": 5, "sigma": 1}}, "not both"),
        ({"tokens": [5, 6], "counts": [1]}, "as many as tokens"),
        ({"tokens": [5], "counts": [0]}, "how many documents"),
        ({"tokens": [0], "counts": [1]}, "at least 1"),
        ({"log_normal": {"median_tokens": 5, "sigma": 0}}, "greater than 0"),
    ],
)
def test_what_is_no_distribution_is_refused(data: dict[str, Any], problem: str) -> None:
    """One line with the reason."""
    with pytest.raises((InvalidDocument, InvalidWorkload), match=problem):
        read(data)
