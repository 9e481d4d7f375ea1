"""Optimizer states in the nodes' memory: published steps, sums by hand, and every share tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import Precision
from cluster_models.cluster.hosts import HostMemory, HostShare
from cluster_models.cluster.topology import Node
from cluster_models.errors import InvalidConfiguration, InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.model.catalogue import catalogue_model
from cluster_models.training.frameworks import framework
from cluster_models.training.workload import Offload, Recompute, Sharding, TrainingWorkload
from cluster_models.units import GBYTE, GIB
from solver.candidates import SHARDING_CODES
from solver.check import check_plan
from solver.check.configuration import configuration_violations
from solver.costs.host_offload import LINK_SHARE, UPDATE_SHARE, offload_s
from solver.degrees.layout import chunk_layers
from solver.degrees.priced import price_candidates
from solver.degrees.pricing import optimistic_step_s
from solver.degrees.stage_costs import costs_of, excess_bytes_of, kind_rows, micro_batches_of
from solver.predict import predict
from solver.problem import PlanningProblem
from tests.remarks import codes
from tests.solver.cost_cases import candidates, costs, memory
from tests.solver.naive_mixes import every_mix
from tests.solver.problems import DENSE, EXACT, fabrics_of, nodes, not_planned, planned, problem, row

ALLOWED = (Offload.NONE, Offload.OPTIMIZER)
BRIDGE, DEEPSPEED, TITAN = map(framework, ("megatron-bridge-26.02", "transformers-2025", "torchtitan-2025"))
DGX_2 = HostMemory(1536 * GIB, 255.9 * GBYTE, 15.75 * GBYTE)
GPT_10B = Architecture(
    name="gpt-10b",
    layers=50,
    hidden=4096,
    heads=32,
    kv_heads=32,
    head_size=128,
    mlp_hidden=16384,
    vocabulary=50304,
    gated_mlp=False,
    tied_embeddings=True,
    learned_positions=1024,
)
"""Arxiv 2101.06840, table 3."""


def on_hosts(count: int, host: HostMemory | None, **shape: Any) -> tuple[Node, ...]:
    """Equal nodes with stated memory and processors."""
    return tuple(replace(node, host=host) for node in nodes(count, **shape))


def offloading(share: int, **changes: Any) -> TrainingWorkload:
    """A workload of the framework that may offload."""
    workload = TrainingWorkload(sequence_length=4096, global_batch=8, framework=BRIDGE, offload=ALLOWED)
    return replace(workload, pinned={"optimizer_offload": share}, **changes)


def test_steps_of_qwen3_30b_take_as_much_longer_as_measured() -> None:
    """Megatron-Bridge, docs/training/cpu-offloading.md, 16 H100: 996 ms become 1,871 to 3,877 (100 %, overlapped).

    Each quarter of the states frees 3.8 GB of moments a GPU, beside the weights' FP32 copy.
    """
    model, shares = catalogue_model("qwen3-30b-a3b"), (25, 50, 75, 100)
    rows = [{"tensor": 2, "pipeline": 2, "data": 4, "expert": 4, "optimizer_offload": share} for share in shares]
    found = costs(candidates(*rows), model, offloading(100)).offload_s.max(axis=1)
    assert found == pytest.approx(np.array([1.871, 2.484, 3.187, 3.877]) - 0.996, rel=0.18)
    assert found[1:] == pytest.approx(np.array([2.484, 3.187, 3.877]) - 0.996, rel=0.03)
    plain = memory(candidates({**rows[0], "optimizer_offload": 0}), model, offloading(0))
    held = memory(candidates(*rows), model, offloading(100))
    moments = (plain.optimizer_bytes - held.optimizer_bytes).max(axis=1) * 8.0 / 12.0
    assert moments == pytest.approx(np.array([3.8, 7.6, 11.6, 15.3]) * GBYTE, rel=0.02)
    assert held.host_bytes[3] == pytest.approx(16.0 / 12.0 * plain.optimizer_bytes[0])


def test_one_v100_trains_ten_billion_parameters_as_zero_offload_does() -> None:
    """Arxiv 2101.06840: out of memory without; 2.57 s of Adam on a DGX-2; 40 TFLOP/s with 512 sequences."""
    asked = problem(
        on_hosts(1, DGX_2, gpus=1, gpu="V100-SXM2-32GB"),
        model=GPT_10B,
        framework=DEEPSPEED,
        precision=Precision.FP16,
        sharding=(Sharding.OPTIMIZER, Sharding.GRADIENTS),
        recompute=tuple(Recompute),
        global_batch=512,
        sequence_length=1024,
    )
    refused = not_planned(asked)
    assert "offload_optimizer" in {remedy.code for remedy in refused.remedies}
    allowed = replace(asked, workload=replace(asked.workload, offload=ALLOWED))
    found = planned(allowed)
    assert check_plan(found, allowed) == ()
    assert (found.configuration.optimizer_offload, found.configuration.sharding) == (100, Sharding.GRADIENTS)
    recomputing = 4.0 / 3.0
    assert found.model_flops_per_s_per_gpu * recomputing == pytest.approx(40e12, rel=0.15)
    share = HostShare(DGX_2.memory_bytes or 0, 255.9 * GBYTE, 1e15, "")  # a link that takes no time
    batch = candidates({"optimizer_offload": 100})
    timed = {"forward_s": np.zeros((1, 1)), "backward_s": np.zeros((1, 1)), "micro_batches": np.ones(1)}
    adam = offload_s(share, batch, allowed.workload, np.array([[10e9]]), **timed)
    assert adam[0, 0] == pytest.approx(2.57, rel=0.02)


def test_transfers_hide_beside_what_the_framework_runs_beside_them() -> None:
    """By hand, a link and a memory of 1 GB/s net and 1e9 parameters: what is copied when, and what hides it."""
    sharding = {each: SHARDING_CODES.index(each) for each in Sharding}

    def seconds(style: Any, name: Sharding, rounds: float, forward: float = 0.0, backward: float = 0.0) -> float:
        workload = replace(offloading(100), framework=style)
        own = style.optimizer_offload
        host = HostShare(GIB, GBYTE / UPDATE_SHARE[own], GBYTE / LINK_SHARE, "")
        row = candidates({"optimizer_offload": 100, "sharding": sharding[name], "data": 2})
        passes = (np.array([[each]]) for each in (forward, backward))
        found = offload_s(
            host,
            row,
            workload,
            np.array([[1e9]]),
            **dict(zip(("forward_s", "backward_s"), passes, strict=True)),
            micro_batches=np.array([rounds]),
        )
        return float(found[0, 0])

    slow_link = replace(BRIDGE, gradient_bytes=4.0)
    assert seconds(slow_link, Sharding.OPTIMIZER, 8) == pytest.approx(
        28.0
    )  # the update, beside 4 s and 2 s of copies
    assert seconds(DEEPSPEED, Sharding.OPTIMIZER, 8) == pytest.approx(2.0 + 28.0 + 2.0)
    assert seconds(DEEPSPEED, Sharding.OPTIMIZER, 8, backward=1.5) == pytest.approx(0.5 + 28.0 + 2.0)
    assert seconds(DEEPSPEED, Sharding.GRADIENTS, 3) == pytest.approx(
        5 * 2.0 + 28.0 + 2.0
    )  # out, in and out, again
    assert seconds(DEEPSPEED, Sharding.GRADIENTS, 3, backward=3.5) == pytest.approx(28.0 + 2.0)
    assert seconds(TITAN, Sharding.PARAMETERS, 3) == pytest.approx(3 * (4.0 + 4.0) + 28.0 + 12.0)
    assert seconds(TITAN, Sharding.PARAMETERS, 3, forward=4.0, backward=3.0) == pytest.approx(3 * 1.0 + 40.0)


def test_shards_of_parameters_and_gradients_leave_with_their_states() -> None:
    """FSDP: what is gathered stays, 16 bytes a parameter leave; DeepSpeed's second stage: 12 and gradients."""
    rows = [
        {"data": 64, "sharding": SHARDING_CODES.index(Sharding.PARAMETERS), "optimizer_offload": percent}
        for percent in (0, 100)
    ]
    plain, gone = (memory(candidates(each), workload=offloading(100, framework=TITAN)) for each in rows)
    owned = plain.optimizer_bytes / 8.0
    assert plain.total_bytes - gone.total_bytes == pytest.approx(16.0 * owned, rel=1e-3)
    assert gone.host_bytes == pytest.approx(16.0 * owned)
    second = {"data": 64, "sharding": SHARDING_CODES.index(Sharding.GRADIENTS)}
    workload = offloading(100, framework=DEEPSPEED)
    before, after = (memory(candidates({**second, "optimizer_offload": p}), workload=workload) for p in (0, 100))
    assert (after.optimizer_bytes == 0).all()
    assert before.gradients_bytes - after.gradients_bytes == pytest.approx(4.0 * before.optimizer_bytes / 12.0)


TIGHT: Mapping[str, PlanningProblem] = {
    "shares": problem(
        nodes(2, gpus=2),
        global_batch=4,
        memory_headroom=0.91,
        recompute=tuple(Recompute),
        offload=ALLOWED,
        forbidden={"optimizer_offload": tuple(percent for percent in range(101) if percent % 20)},
    ),
    "states": problem(
        nodes(1, gpus=4),
        global_batch=8,
        memory_headroom=0.9,
        framework=DEEPSPEED,
        sharding=(Sharding.OPTIMIZER, Sharding.GRADIENTS),
        recompute=tuple(Recompute),
        offload=ALLOWED,
    ),
    "shards": problem(
        nodes(1, gpus=4),
        global_batch=8,
        memory_headroom=0.9,
        framework=TITAN,
        sharding=(Sharding.PARAMETERS,),
        recompute=tuple(Recompute),
        offload=ALLOWED,
    ),
}


@pytest.mark.parametrize("case", TIGHT)
def test_each_candidate_has_its_quickest_share_and_recomputation(case: str) -> None:
    """By trying every share beside every recomputation of all layers: none that fits has a lower bound."""
    asked = TIGHT[case]
    usable = fabrics_of(asked)
    priced = price_candidates(asked, usable)
    fitting = priced.batch.take(priced.excess_bytes <= 0)
    assert 0 in fitting.optimizer_offload
    assert (fitting.optimizer_offload > 0).any()
    mixes, shares = [mix for mix in every_mix(asked) if not mix["recompute_layers"]], _shares(asked)
    for candidate in np.unique(priced.candidate)[::5]:
        rows = np.flatnonzero(priced.candidate == candidate)
        first = int(rows[0])
        own = {name: int(getattr(row(priced.batch, first), name)[0]) for name in priced.batch.__slots__}
        every = candidates(
            *({**own, **mix, "optimizer_offload": share} for mix in mixes for share in shares[own["sharding"]])
        )
        fabric = usable[priced.fabric[first]]
        layers = chunk_layers(asked.architecture, priced.staging_of(first).layout, every.runs)
        kinds = kind_rows(every)
        excess = excess_bytes_of(asked, fabric.kinds, every, layers, kinds, domain=fabric.gpus_per_unit)
        tried = every.take(excess.max(axis=1) <= 0)
        assert (priced.excess_bytes[rows] <= 0).any() or not len(tried)
        if len(tried):
            step_costs = costs_of(asked, fabric, tried, layers, kind_rows(tried))
            rounds = micro_batches_of(tried, asked.workload)
            best = optimistic_step_s(
                tried, step_costs, rounds, fabric, kind_rows(tried), framework=asked.workload.framework
            ).min()
            assert priced.bound_s[rows].min() <= best * (1 + 1e-9)


def _shares(asked: PlanningProblem) -> dict[int, list[int]]:
    """By code of sharding, the shares that the independent checker lets pass."""
    sample = planned(problem(nodes(1, gpus=1))).configuration
    tried = [
        replace(sample, sharding=sharding, optimizer_offload=percent)
        for sharding in asked.workload.sharding
        for percent in (0, 20, 40, 60, 80, 99, 100)
    ]
    found: dict[int, list[int]] = {}
    for each in tried:
        violations = configuration_violations(each, asked)
        if not any("offload" in violation for violation in violations):
            found.setdefault(SHARDING_CODES.index(each.sharding), []).append(each.optimizer_offload)
    return found


def test_plans_offload_no_more_than_nodes_have_room_for() -> None:
    """One GPU of 2.2e9 parameters, 35 GB in all: with room for it, with too little, and with none stated."""
    model = replace(DENSE, layers=40)
    changes: dict[str, Any] = {"model": model, "offload": ALLOWED, "memory_headroom": 0.65, "global_batch": 4}

    def asked(host: HostMemory | None) -> PlanningProblem:
        return problem(on_hosts(1, host, gpus=1), **changes)

    roomy = planned(asked(HostMemory(memory_bytes=256 * GIB)), EXACT)
    held = roomy.memory[0].host_bytes
    assert 0 < roomy.configuration.optimizer_offload < 100
    assert roomy.memory[0].total_bytes <= roomy.memory[0].limit_bytes
    assert held == pytest.approx(16.0 * model.parameters() * roomy.configuration.optimizer_offload / 100, rel=0.01)
    assert "estimated_host" in codes(roomy.warnings)  # bandwidth and link are not stated
    small = not_planned(asked(HostMemory(memory_bytes=held)))  # four fifths of it may be filled
    assert small.missing_bytes is not None
    stated = planned(asked(HostMemory(256 * GIB, 600 * GBYTE, 60 * GBYTE)))
    assert "estimated_host" not in codes(stated.warnings)
    assert stated.time.offload_s < roomy.time.offload_s


def test_the_least_of_a_kinds_nodes_counts_for_each_gpu() -> None:
    """Memory and its bandwidth are shared by GPUs, links are not; what one node leaves out is estimated."""
    usual = gpu_kind("H100-SXM5-80GB").host_share
    assert (usual.memory_bytes, usual.is_estimated) == (2048 * GIB / 8, True)
    large, small = HostMemory(800 * GIB, 80 * GBYTE, 50 * GBYTE), HostMemory(400 * GIB, 160 * GBYTE)
    hosts = [(large, 8), (small, 4)]
    found = usual.as_stated(hosts)
    assert (found.memory_bytes, found.memory_bytes_per_s) == (100 * GIB, 10 * GBYTE)
    assert (found.link_bytes_per_s, found.is_estimated) == (usual.link_bytes_per_s, True)
    cluster = problem(on_hosts(2, large)).snapshot.cluster
    assert not cluster.gpu_kinds["H100-SXM5-80GB"].host_share.is_estimated
    silent = replace(cluster, nodes=nodes(2))
    assert silent.gpu_kinds["H100-SXM5-80GB"].host_share == usual


def test_configurations_that_offload_are_predicted_whatever_the_search_may_do() -> None:
    """As the plan that has them; refused in words where the framework cannot, with a warning where nodes cannot."""
    pinned = {"offload": ALLOWED, "pinned": {"optimizer_offload": 40}}
    asked, plain = problem(nodes(1), **pinned), problem(nodes(1))
    found = planned(asked)
    assert predict(plain, found.configuration, hosts=found.placement.hosts).time == found.time
    small = problem(on_hosts(1, HostMemory(memory_bytes=GIB)))
    assert "host_too_small" in codes(predict(small, found.configuration).warnings)
    for changes, words in (
        ({"framework": framework("nanotron-0.5")}, "does not offload"),
        ({"framework": DEEPSPEED}, "all optimizer states or none"),
        ({"framework": TITAN}, "with sharding optimizer"),
    ):
        with pytest.raises(InvalidConfiguration, match=words):
            predict(problem(nodes(1), **changes), found.configuration)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"pinned": {"optimizer_offload": 101}}, "in percent"),
        ({"pinned": {"optimizer_offload": 50}, "offload": (Offload.NONE,)}, "add optimizer"),
        ({"offload": (Offload.OPTIMIZER,), "framework": framework("nanotron-0.5")}, "does not offload"),
        ({"offload": (Offload.OPTIMIZER,), "precision": Precision.FP8}, "16-bit weights"),
        ({"offload": (Offload.OPTIMIZER,), "sharding": (Sharding.NONE,)}, "allow optimizer"),
        ({"pinned": {"optimizer_offload": 50}, "framework": DEEPSPEED}, "all optimizer states or none"),
        ({"offload": ()}, "allows nothing"),
    ],
)
def test_what_cannot_be_offloaded_is_refused_at_its_field(changes: dict[str, Any], match: str) -> None:
    """Pinned or the only choice; beside others it is not tried."""
    with pytest.raises(InvalidInput, match=match):
        planned(problem(nodes(1), **{"offload": ALLOWED, **changes}))


def test_the_checker_knows_what_is_offloaded() -> None:
    """Shares that the framework lacks, bytes that are not there, and time below that of the update's bytes."""
    asked = problem(nodes(1), offload=ALLOWED, pinned={"optimizer_offload": 40})
    found = planned(asked)
    assert check_plan(found, asked) == ()
    other = replace(found, configuration=replace(found.configuration, optimizer_offload=80))
    assert any("bytes of optimizer states" in violation for violation in check_plan(other, asked))
    nowhere = replace(found, memory=tuple(replace(each, host_bytes=0.0) for each in found.memory))
    assert any("in the node's memory, not" in violation for violation in check_plan(nowhere, asked))
    hasty = replace(found, time=replace(found.time, offload_s=0.0))
    assert any("takes 0 s" in violation for violation in check_plan(hasty, asked))
    lacking = replace(asked, workload=replace(asked.workload, framework=framework("nanotron-0.5")))
    assert any("does not offload" in violation for violation in check_plan(found, lacking))
    with pytest.raises(InvalidConfiguration, match="percent"):
        replace(found.configuration, optimizer_offload=101)
