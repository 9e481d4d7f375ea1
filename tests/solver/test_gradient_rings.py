"""Gradients and sharded states once a step, as frameworks exchange them, and their cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.training.optimizer_states import optimizer_instances
from cluster_models.training.workload import Sharding
from solver.candidates import SHARDING_CODES
from solver.costs.calibration import Calibration
from solver.costs.data_parallel import ring_passes, tail_transfers
from solver.costs.nominal_links import NominalLinks, data_parallel_s, tensor_slowdown
from solver.costs.parameters import sharing_ranks
from tests.solver.cost_cases import H100, LLAMA_70B, behaviour, candidates, costs, memory

UNSHARDED = {"sharding": SHARDING_CODES.index(Sharding.NONE)}
BOTH = candidates({"data": 64, **UNSHARDED}, {"data": 64})
LINKS = NominalLinks(H100, 8, 8, gpu_bytes_per_s=40e9, flow_bytes_per_s=40e9, latency_s=10e-6)


def plain(**facts: Any) -> Calibration:
    """The default framework with facts changed; nothing of rings beyond their bytes."""
    return replace(behaviour(**facts), ring_decline=0.0, tail_collectives=0.0, shard_host_s=0.0)


def test_an_all_reduce_passes_its_ring_twice() -> None:
    """Sharded optimizers scatter once, unless the framework sums everywhere or shares out in smaller groups."""
    assert ring_passes(BOTH, plain(), 8)[0].tolist() == [2.0, 1.0]
    assert ring_passes(BOTH, plain(sharded_all_reduce=True), 8)[0].tolist() == [2.0, 2.0]
    assert ring_passes(BOTH, plain(sharding_ranks=8), 8)[0].tolist() == [2.0, 2.0]
    assert ring_passes(BOTH, plain(sharding_ranks=64), 8)[0].tolist() == [2.0, 1.0]


@given(st.floats(0.0, 1.0))
def test_rings_over_twice_the_domains_decline_by_the_same_share(decline: float) -> None:
    """Two domains are what links are measured on; each doubling adds the share."""
    known = replace(plain(), ring_decline=decline)
    rows = candidates(*({"data": ranks} for ranks in (8, 16, 32, 64)))
    assert ring_passes(rows, known, 8)[1] == pytest.approx([1.0, 1.0, 1.0 + decline, 1.0 + 2.0 * decline])


def test_latency_shows_only_where_a_ring_leaves_its_domain() -> None:
    """n-1 transfers of a gather and of a scatter, twice those of an all-reduce, by how many nothing hides."""
    known = replace(plain(), tail_collectives=3.0)
    rows = candidates({"data": 8}, {"data": 16}, {"data": 16, **UNSHARDED}, {"data": 8, "tensor": 2})
    assert tail_transfers(rows, known, 8).tolist() == [0.0, 3.0 * 30, 3.0 * 30, 3.0 * 14]
    grouped = replace(known, framework=replace(known.framework, sharding_ranks=8))
    assert tail_transfers(rows, grouped, 8)[1] == 3.0 * 30, "all-reduced over the nodes, gathered inside one"


def test_small_groups_keep_more_states_and_gather_inside_a_node() -> None:
    """Eight of 64 data ranks share states out: eight times the optimizer's bytes, no gather between nodes."""
    known = (plain(sharding_ranks=ranks, overlap_parameters=False) for ranks in (0, 8))
    whole, grouped = (costs(BOTH, calibration=each) for each in known)
    assert data_parallel_s(LINKS, BOTH, grouped)[1][1].sum() < data_parallel_s(LINKS, BOTH, whole)[1][1].sum()
    assert grouped.optimizer_s[1] > whole.optimizer_s[1]
    assert grouped.optimizer_s[0] == pytest.approx(whole.optimizer_s[0])


def test_reduction_hides_only_where_the_framework_overlaps_it() -> None:
    """Some frameworks overlap unsharded gradients alone."""
    hidden = costs(BOTH, calibration=plain(overlap_sharded_gradients=False)).reduce_hidden_s.sum(axis=1)
    assert hidden[0] > 0.0 == hidden[1]
    assert not costs(BOTH, calibration=plain(overlap_gradients=False)).reduce_hidden_s.any()


def test_clipping_every_gradient_reads_and_writes_them_all() -> None:
    """A norm reads, scaling reads and writes what a rank holds, however many ranks share the states."""
    once, every = (costs(BOTH, calibration=plain(clips_all_gradients=clips)) for clips in (False, True))
    longer = (every.optimizer_s - once.optimizer_s)[:, 0]
    assert longer[0] == pytest.approx(longer[1])
    assert longer[0] > 0.0


def test_copying_shards_costs_the_host_for_each_tensor_and_rank() -> None:
    """Twice the data ranks, twice the copies; without sharding there are none."""
    rows = candidates({"data": 64, **UNSHARDED}, {"data": 32}, {"data": 64})
    calibration = replace(plain(), shard_host_s=1e-5)
    longer = (costs(rows, calibration=calibration).optimizer_s - costs(rows, calibration=plain()).optimizer_s)[:, 0]
    assert longer == pytest.approx([0.0, 32 * 6 * 80 * 1e-5, 64 * 6 * 80 * 1e-5])


def test_gradients_of_a_micro_batch_lie_beside_the_sum() -> None:
    """BF16 gradients of PyTorch beside an FP32 buffer: 6 bytes a parameter instead of 4."""
    row = candidates({"tensor": 8})
    both = memory(row, calibration=behaviour(own_gradient_bytes=2.0)).gradients_bytes
    assert both == pytest.approx(1.5 * memory(row, calibration=behaviour()).gradients_bytes)


def test_kept_gathers_are_whole_sequences() -> None:
    """Two of a dense layer in either pass, whatever the tensor degree; one rank gathers nothing."""
    rows = candidates({"tensor": 1}, {"tensor": 2}, {"tensor": 8})
    calibration = replace(behaviour(keeps_gathered_inputs=True), layer_host_s=0.0, tensor_host_s=0.0)
    model = replace(LLAMA_70B, layers=2)
    kept = memory(rows, model, calibration=calibration).activations_bytes
    dropped = memory(rows, model, calibration=behaviour()).activations_bytes
    sequences = 2 * 2 * 2 * 2 * LLAMA_70B.hidden * 8192
    assert (kept - dropped)[:, 0] == pytest.approx([0.0, sequences, sequences])


@given(st.sampled_from([16, 32, 64]), st.floats(1e3, 1e9))
def test_tensor_rings_over_nodes_take_a_transfer_a_step(ranks: int, message: float) -> None:
    """No faster than the latencies of n-1 steps; inside a domain nothing is longer."""
    rows = candidates({"tensor": 8}, {"tensor": ranks})
    factors = tensor_slowdown(LINKS, rows, np.full(2, message))
    assert factors[0] == 1.0
    assert factors[1] >= 1.0
    slower = replace(LINKS, latency_s=2.0 * LINKS.latency_s)
    assert tensor_slowdown(slower, rows, np.full(2, message))[1] >= factors[1]


@given(st.integers(1, 96), st.integers(0, 100))
def test_instances_are_equal_groups_no_larger_than_asked(ranks: int, most: int) -> None:
    """As few copies as that takes; one where nothing is asked."""
    copies = optimizer_instances(ranks, most)
    assert ranks % copies == 0
    assert ranks // copies <= (most or ranks)
    larger = [size for size in range(ranks // copies + 1, ranks + 1) if ranks % size == 0]
    assert all(size > (most or ranks) for size in larger)


def test_experts_have_as_many_copies_as_the_rest() -> None:
    """Two instances over 16 ranks: experts on four of 16 have four copies, which share their states in pairs."""
    rows = candidates({"data": 16, "expert": 4}, {"data": 6})
    common, routed = sharing_ranks(rows, plain(sharding_ranks=8).framework)
    assert common.tolist() == [8.0, 6.0]
    assert routed.tolist() == [2.0, 6.0]
