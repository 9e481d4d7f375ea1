"""Collectives inside one NVLink domain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.catalogue import gpu_kind, gpu_kinds
from cluster_models.cluster.gpus import GpuKind
from cluster_models.cluster.measurements import Collective
from cluster_models.links.collective_curves import (
    FloatArray,
    bus_factor,
    curves,
    domain_is_estimated,
    domain_latency_s,
    domain_nominal_bytes_per_s,
    domain_time_s,
)

H100 = gpu_kind("H100")
KINDS = st.sampled_from(sorted(gpu_kinds()))
COLLECTIVES = st.sampled_from(list(Collective))
SIZES = st.floats(0, 1e11)


def bus_bytes_per_s(kind: GpuKind, collective: Collective, ranks: int, sizes: FloatArray) -> FloatArray:
    """Bus bandwidth as nccl-tests prints it, (sizes,)."""
    return sizes * bus_factor(collective, ranks) / domain_time_s(kind, collective, ranks, sizes)


def test_measured_points_come_back_as_they_were_measured() -> None:
    """Every shipped size of every table returns its own time, and no two tables claim the same group."""
    keys = [(curve.gpu_kind, curve.collective, curve.ranks) for curve in curves()]
    assert len(set(keys)) == len(keys)
    for curve in curves():
        kind = gpu_kinds()[curve.gpu_kind]
        times = domain_time_s(kind, curve.collective, curve.ranks, curve.message_bytes)
        np.testing.assert_allclose(times, curve.time_s, rtol=1e-9)


def test_an_h100_node_reduces_faster_in_its_switches_than_its_links() -> None:
    """8 ranks pass the 450 GB/s of the links (NVLS); 4 ranks stay below the nominal speed."""
    size = np.array([8 * 2**30])
    assert bus_bytes_per_s(H100, Collective.ALL_REDUCE, 8, size)[0] == pytest.approx(480e9, rel=0.01)
    assert bus_bytes_per_s(H100, Collective.ALL_REDUCE, 4, size)[0] < 450e9


@given(KINDS, st.sampled_from([c for c in Collective if c is not Collective.ALL_REDUCE]), st.integers(2, 72))
def test_only_all_reduce_passes_the_links(name: str, collective: Collective, ranks: int) -> None:
    """In-switch reduction is never borrowed by another collective, whatever the kind and the group."""
    kind = gpu_kinds()[name]
    bus = bus_bytes_per_s(kind, collective, ranks, np.array([1e6, 1e8, 1e10]))
    assert (bus < domain_nominal_bytes_per_s(kind, ranks)).all()


@given(KINDS, COLLECTIVES, st.integers(2, 72), SIZES)
def test_times_are_finite_and_never_below_zero(
    name: str, collective: Collective, ranks: int, message_bytes: float
) -> None:
    """Any kind, collective, group and size has a positive time."""
    time = domain_time_s(gpu_kinds()[name], collective, ranks, np.array([message_bytes]))
    assert np.isfinite(time).all()
    assert (time > 0).all()


@given(KINDS, COLLECTIVES, st.integers(2, 16))
def test_beyond_the_largest_size_bandwidth_stays(name: str, collective: Collective, ranks: int) -> None:
    """Twice a huge message takes at most twice as long, and nearly that."""
    one, two = domain_time_s(gpu_kinds()[name], collective, ranks, np.array([1e12, 2e12]))
    assert two / one == pytest.approx(2, rel=1e-3)


def test_tiny_messages_cost_latency() -> None:
    """Nothing to send costs the latency, which is the published 13 to 17 us of an H100 node."""
    latency = domain_latency_s(H100, Collective.ALL_REDUCE, 8)
    assert 12e-6 < latency < 18e-6
    assert domain_time_s(H100, Collective.ALL_REDUCE, 8, np.array([0.0]))[0] == pytest.approx(latency)


def test_two_gpus_of_a_mesh_share_one_link() -> None:
    """In an eight-way XGMI mesh two ranks have a seventh of the bandwidth of eight."""
    mi300x = gpu_kind("MI300X")
    assert domain_nominal_bytes_per_s(mi300x, 2) == pytest.approx(domain_nominal_bytes_per_s(mi300x, 8) / 7)


def test_a_board_of_four_has_no_switch() -> None:
    """Two of four H200 get a third of the links, all four as much as in a switch; other nodes stay as they are."""
    h200, size = gpu_kind("H200"), np.array([1e9])
    mesh = h200.in_domains_of(4)
    pair, switched = (domain_time_s(kind, Collective.ALL_GATHER, 2, size)[0] for kind in (mesh, h200))
    assert pair == pytest.approx(3 * switched, rel=0.01)
    four, all_links = (domain_time_s(kind, Collective.ALL_GATHER, 4, size)[0] for kind in (mesh, h200))
    assert four == pytest.approx(all_links)
    assert h200.in_domains_of(8) == h200
    assert mesh.in_domains_of(4) == mesh
    for other in ("GB200", "A100-PCIe-80GB", "MI300X", "T4"):
        assert gpu_kind(other).in_domains_of(4) == gpu_kind(other)


def test_a_bridge_joins_pairs_only() -> None:
    """Beyond the bridged pair a PCIe A100 talks over PCIe."""
    card = gpu_kind("A100-PCIe-80GB")
    assert domain_nominal_bytes_per_s(card, 2) == 300e9
    assert domain_nominal_bytes_per_s(card, 4) == pytest.approx(31.5e9, rel=1e-3)


def test_borrowed_figures_are_flagged() -> None:
    """Only a table of exactly the kind, collective and group counts as measured."""
    assert not domain_is_estimated(H100, Collective.ALL_REDUCE, 8)
    assert domain_is_estimated(H100, Collective.ALL_REDUCE, 2)
    assert domain_is_estimated(gpu_kind("H200"), Collective.ALL_GATHER, 8)


def test_half_the_link_speed_takes_twice_the_time_above_latency() -> None:
    """An H800 borrows the H100's curve on links of 200 instead of 450 GB/s."""
    h800 = gpu_kind("H800")
    size = np.array([2.0**30])
    ours, theirs = (domain_time_s(kind, Collective.ALL_GATHER, 8, size)[0] for kind in (h800, H100))
    alpha = domain_latency_s(H100, Collective.ALL_GATHER, 8)
    assert (ours - alpha) / (theirs - alpha) == pytest.approx(450 / 200, rel=1e-6)


def test_a_group_of_one_is_refused() -> None:
    """A collective of one rank is a mistake of the caller."""
    with pytest.raises(ValueError, match="at least 2 ranks"):
        bus_factor(Collective.ALL_GATHER, 1)
