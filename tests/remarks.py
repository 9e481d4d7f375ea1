"""Remarks in tests."""

from __future__ import annotations

from collections.abc import Iterable

from cluster_models.remarks import Remark


def codes(remarks: Iterable[Remark]) -> list[str]:
    """The code of each remark."""
    return [each.code for each in remarks]
