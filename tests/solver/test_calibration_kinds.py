"""Whose parameters a GPU kind gets when a family was fitted and one member has estimates of its own."""

from __future__ import annotations

import pytest

from cluster_models.calibration.fitted import FittedParameters, FittedValue
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK
from solver.costs.calibration import calibration_of, kind_family

LIMITED = gpu_kind("H100-SXM5-96GB-HBM2e")


def fitted(name: str, value: float) -> FittedParameters:
    """One value for the sustained share of ``name``."""
    return FittedParameters({name: {"sustained_share": FittedValue(value, value, value, 1)}}, {}, "test")


@pytest.mark.parametrize("name", ["H100", "H100-SXM5-80GB"])
def test_a_fitted_family_reaches_its_members(name: str) -> None:
    """The full H100 takes what was fitted under its own name or its family's."""
    found = calibration_of(gpu_kind("H100-SXM5-80GB"), DEFAULT_FRAMEWORK, fitted(name, 0.5))
    assert found.sustained_share == 0.5


def test_a_fitted_family_leaves_a_power_limited_member_alone() -> None:
    """The 500 W card keeps what is shipped for it until something is fitted under its own name."""
    shipped = calibration_of(LIMITED, DEFAULT_FRAMEWORK).sustained_share
    assert shipped != 0.5
    assert calibration_of(LIMITED, DEFAULT_FRAMEWORK, fitted("H100", 0.5)).sustained_share == shipped
    own = fitted(kind_family(LIMITED), 0.5)
    assert calibration_of(LIMITED, DEFAULT_FRAMEWORK, own).sustained_share == 0.5


def test_families_are_told_apart_where_estimates_are() -> None:
    """Form factors and memory sizes share a family, a power limit of its own does not."""
    assert kind_family(gpu_kind("A100-SXM4-40GB")) == kind_family(gpu_kind("A100-SXM4-80GB")) == "A100"
    assert kind_family(gpu_kind("H100-SXM5-80GB")) == "H100" != kind_family(LIMITED)


def test_kinds_of_one_chip_take_what_was_fitted_for_it_and_keep_what_tells_them_apart() -> None:
    """An H200 is an H100 with other memory; an H20 keeps its own rate; what is fitted for a kind itself wins."""
    values = FittedParameters(
        {
            "H100": {name: FittedValue(0.4, 0.4, 0.4, 1) for name in ("sustained_share", "memory_share")},
            "H200": {"memory_share": FittedValue(0.6, 0.6, 0.6, 1)},
        },
        {},
        "test",
    )
    found = {name: calibration_of(gpu_kind(name), DEFAULT_FRAMEWORK, values) for name in ("H200", "H800", "H20")}
    assert [each.sustained_share for each in found.values()] == [0.4, 0.4, 0.98]
    assert [each.memory_share for each in found.values()] == [0.6, 0.4, 0.4]
