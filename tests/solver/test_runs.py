"""Runs on nominal links: batches, mixed GPUs, and the schedule cut short."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.calibration.training_run import NodeGroup, TrainingRun
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.errors import InvalidConfiguration
from cluster_models.model.catalogue import catalogue_models
from cluster_models.training.framework_choices import ExpertDispatch
from cluster_models.training.frameworks import framework
from cluster_models.training.plan import Configuration, Degrees, RankOrder
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.costs.nominal_links import NominalLinks, hops_s
from solver.degrees.layout import balanced_layout
from solver.pipeline.schedule import build_schedule
from solver.pipeline.simulation import simulate
from solver.pipeline.uniform import rank_ends
from solver.runs import predict_run, predict_runs
from tests.solver.cost_cases import H100, LLAMA_70B, WORKLOAD, candidates

H200 = gpu_kind("H200-SXM-141GB")
A100 = gpu_kind("A100-SXM4-80GB")


def a_run(degrees: Degrees, *, micro_batch: int = 1, recompute: Recompute = Recompute.NONE) -> TrainingRun:
    """LLAMA_70B on H100 nodes of eight, layers spread evenly."""
    share = LLAMA_70B.layers // (degrees.pipeline * degrees.virtual_pipeline)
    layout = ((share,) * degrees.pipeline,) * degrees.virtual_pipeline
    configuration = Configuration(
        degrees, micro_batch, recompute, Sharding.OPTIMIZER, RankOrder.DATA_BEFORE_PIPELINE, layout
    )
    return TrainingRun("run", LLAMA_70B, WORKLOAD, configuration, H100, 8, 8, 50e9)


RUNS = [
    a_run(Degrees(tensor=8, pipeline=4, data=2)),
    a_run(Degrees(tensor=4, pipeline=4, data=4), micro_batch=2, recompute=Recompute.FULL),
    a_run(Degrees(tensor=8, pipeline=4, data=2, virtual_pipeline=5)),
    a_run(Degrees(tensor=8, data=8)),
    a_run(Degrees(tensor=4, pipeline=4, data=2, context=2)),
]
FOUR_GPU_NODES = replace(RUNS[0], gpus_per_node=4, gpus_per_domain=4, network_bytes_per_s=1e9)


def test_runs_priced_together_are_priced_as_alone() -> None:
    """Order is kept and no run sees another one."""
    assert predict_runs(RUNS) == [predict_run(run) for run in RUNS]


@pytest.mark.parametrize("run", RUNS)
def test_the_parts_of_a_step_add_up(run: TrainingRun) -> None:
    """Pipeline, exposed data traffic and optimizer are the step, and the bubble is never negative."""
    found = predict_run(run)
    assert found.step_s == pytest.approx(found.pipeline_s + found.exposed_data_s + found.optimizer_s)
    assert 0 <= found.bubble_s < found.pipeline_s


def test_a_faster_network_is_never_slower() -> None:
    """Only traffic between nodes depends on it, and there is some."""
    slow = [predict_run(replace(run, network_bytes_per_s=5e9)).step_s for run in RUNS]
    fast = [predict_run(run).step_s for run in RUNS]
    assert all(a > b for a, b in zip(slow, fast, strict=True))


def test_one_kind_in_several_groups_is_one_kind() -> None:
    """Naming the groups of alike GPUs changes nothing."""
    run = RUNS[0]
    assert predict_run(replace(run, groups=(NodeGroup(H100, 24), NodeGroup(H100, 40)))) == predict_run(run)


def test_a_slow_group_under_one_stage_slows_the_step_less_than_slow_gpus_everywhere() -> None:
    """The step lies between those of fast and of slow GPUs, near the slow: its stage paces the pipeline."""
    run = RUNS[0]
    mixed = predict_run(replace(run, groups=(NodeGroup(H100, 48), NodeGroup(A100, 16)))).step_s
    fast, slow = predict_run(run).step_s, predict_run(replace(run, gpu=A100)).step_s
    assert fast < mixed < slow
    assert mixed > 0.75 * slow


def test_a_replica_on_slow_gpus_paces_all() -> None:
    """Without a pipeline, one data rank on slow GPUs computes no faster than all on slow GPUs."""
    run = RUNS[3]
    mixed = predict_run(replace(run, groups=(NodeGroup(H100, 56), NodeGroup(A100, 8))))
    slow = predict_run(replace(run, gpu=A100))
    assert mixed.pipeline_s == pytest.approx(slow.pipeline_s)
    assert mixed.step_s >= slow.step_s


def test_groups_must_hold_the_configuration() -> None:
    """Too few GPUs are an error that prints the numbers."""
    with pytest.raises(InvalidConfiguration, match="64 GPUs"):
        replace(RUNS[0], groups=(NodeGroup(H100, 8), NodeGroup(H200, 8)))


@given(
    pipeline=st.integers(2, 6),
    virtual=st.integers(1, 3),
    rounds=st.integers(1, 16),
    seed=st.integers(0, 1000),
)
def test_a_schedule_cut_short_ends_when_the_whole_one_does(
    pipeline: int, virtual: int, rounds: int, seed: int
) -> None:
    """Prolonging settled rounds by their period agrees with simulating all, within two per cent."""
    draw = np.random.default_rng(seed)
    chunks, micro_batches = pipeline * virtual, rounds * pipeline
    forward, backward = 1.0 + 0.3 * draw.random(chunks), 2.0 + 0.3 * draw.random(chunks)
    delay = 0.1 * draw.random(pipeline)
    schedule = build_schedule(pipeline, virtual, micro_batches)
    whole = simulate(schedule, np.stack([forward, backward]), np.stack([delay, np.roll(delay, 1)]))[schedule.last]
    short = rank_ends([forward, backward], delay, micro_batches=micro_batches)
    assert short == pytest.approx(whole, rel=0.02)


def test_ranks_that_wait_for_their_sends_lose_each_transfer_twice() -> None:
    """A middle rank spends a transfer with either neighbour per micro-batch.

    As pure delays, the longest loop of waits holds 2 (p - 1) of them for p micro-batches.
    """
    forward, backward, delay = np.ones(4), 2 * np.ones(4), 0.5 * np.ones(4)
    periods = []
    for blocking in (False, True):
        ends = [
            rank_ends([forward, backward], delay, micro_batches=count, blocking=blocking).max()
            for count in (40, 80)
        ]
        periods.append((ends[1] - ends[0]) / 40)
    assert periods == pytest.approx([3.0 + 0.5 * 6 / 4, 4.0])


def test_one_stage_runs_its_micro_batches_one_after_the_other() -> None:
    """Nothing else can happen without a pipeline."""
    ends = rank_ends([np.array([1.0]), np.array([2.0])], np.array([9.0]), micro_batches=7)
    assert ends == pytest.approx([21.0])


def test_micro_batches_that_do_not_fill_a_round_cost_their_share() -> None:
    """Interleaving five micro-batches on four ranks takes longer than four and less than eight."""
    forward, backward, delay = np.ones(8), 2 * np.ones(8), np.zeros(4)
    four, five, eight = (
        float(rank_ends([forward, backward], delay, micro_batches=count).max()) for count in (4, 5, 8)
    )
    assert four < five < eight


def test_neighbouring_stages_on_one_node_do_not_use_the_network() -> None:
    """Two-GPU stages on nodes of four: every second hop crosses, and the way back from the last stage."""
    links = NominalLinks.of(FOUR_GPU_NODES, H100)
    hops = hops_s(links, candidates({"tensor": 2, "pipeline": 4}), np.array([1e9]))[0]
    assert hops[1] > 10 * hops[0]
    assert hops[[1, 3]] == pytest.approx([hops[1]] * 2)
    assert hops[[0, 2]] == pytest.approx([hops[0]] * 2)


def test_gpus_that_send_at_once_share_the_cards_of_their_node() -> None:
    """A single flow gets a card to itself, four share it."""
    links = NominalLinks.of(replace(FOUR_GPU_NODES, flow_bytes_per_s=4e9, network_measured=True), H100)
    one, four = (
        hops_s(links, candidates({"tensor": tensor, "pipeline": 8}), np.array([1e9]))[0, 3] for tensor in (1, 4)
    )
    assert four - links.latency_s == pytest.approx(4 * (one - links.latency_s))


def test_sockets_do_not_fill_fast_cards() -> None:
    """A node sends 2.5 GB/s at most over TCP, however fast its cards are; under InfiniBand they send more."""
    slow, fast = (
        NominalLinks.of(replace(FOUR_GPU_NODES, network_bytes_per_s=1e10, fabric=fabric), H100)
        for fabric in ("tcp", "infiniband")
    )
    assert 4 * slow.gpu_bytes_per_s == pytest.approx(2.5e9)
    assert fast.gpu_bytes_per_s > 5e9


def test_experts_over_nodes_beat_tensor_ranks_inside_one_as_measured() -> None:
    """Qwen3-235B on 256 H100: EP8, TP4 took 29.0 s, EP32 over four nodes, TP2 19.7 (Megatron-MoE-ModelZoo)."""
    deepep = replace(framework("megatron-core-0.15"), expert_dispatch=ExpertDispatch.DEEPEP)
    model = catalogue_models()["qwen3-235b-a22b"]
    workload = TrainingWorkload(sequence_length=4096, global_batch=2048, framework=deepep)
    layout = balanced_layout(model, 4096, 8, 4)

    def step_s(degrees: Degrees) -> float:
        configuration = Configuration(
            degrees, 1, Recompute.NONE, Sharding.OPTIMIZER, RankOrder.DATA_BEFORE_PIPELINE, layout
        )
        return predict_run(TrainingRun("run", model, workload, configuration, H100, 8, 8, 50e9)).step_s

    inside = step_s(Degrees(tensor=4, pipeline=8, data=8, expert=8, virtual_pipeline=4))
    over = step_s(Degrees(tensor=2, pipeline=8, data=16, expert=32, virtual_pipeline=4))
    assert inside / over == pytest.approx(29.0 / 19.7, rel=0.15)
