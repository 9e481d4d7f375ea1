"""The uploads that the benchmark of imports makes up are what it says that they are."""

from __future__ import annotations

import pytest

from benchmarks.imports import UPLOADS, report_of


@pytest.mark.parametrize(
    ("name", "samples", "refusals"),
    [("one-log", 40, 0), ("many-logs", 40, 0), ("table", 249, 0), ("topology", 0, 0)],
)
def test_everything_in_an_upload_is_understood(name: str, samples: int, refusals: int) -> None:
    """A benchmark that reads refusals would measure nothing."""
    report = report_of(UPLOADS[name](0.001))
    assert len(report.proposal.samples) == samples
    assert sum(len(found.refusals) for reading in report.readings for _, found in reading.sections) == refusals
    assert report.proposal.nodes
