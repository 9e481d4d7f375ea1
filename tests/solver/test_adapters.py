"""Low-rank adapters: what is trained, what frozen weights leave out, and what the adapters add."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import Precision
from cluster_models.cluster.measurements import Collective
from cluster_models.errors import InvalidWorkload
from cluster_models.model.catalogue import catalogue_model
from cluster_models.training.adapters import (
    NF4_BYTES,
    AdapterModule,
    Adapters,
    FrozenFormat,
    adapter_parameters,
)
from cluster_models.training.frameworks import framework
from cluster_models.training.methods import TrainingMethod
from cluster_models.training.model_work import workload_flops_per_token
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.candidates import RECOMPUTE_CODES, SHARDING_CODES
from solver.check import check_plan
from solver.check.adapters import adapter_parameters as counted_again
from solver.costs.adapters import trained_parameters
from solver.costs.calibration import calibration_of
from solver.costs.collectives import domain_collective_s
from solver.costs.compute import linear_s, matmul_s, processor
from solver.costs.memory import stage_memory
from solver.costs.parameters import local_parameters
from solver.degrees.floors import floors_s
from tests.solver.cost_cases import H100, LLAMA_70B, MIXTRAL, candidates, costs, even_layers, memory
from tests.solver.problems import DENSE, EXACT, SPARSE, nodes, planned, problem

TRL, BRIDGE = framework("transformers-2025"), framework("megatron-bridge-26.02")
PLAIN = TrainingWorkload(sequence_length=4096, global_batch=128, framework=TRL)
LORA = replace(PLAIN, adapters=Adapters(16))
QLORA = replace(PLAIN, adapters=Adapters(16, frozen_weights=FrozenFormat.NF4))
LLAMA_2_7B = replace(
    LLAMA_70B, name="llama-2-7b", layers=32, hidden=4096, heads=32, kv_heads=32, mlp_hidden=11008, vocabulary=32000
)
LLAMA_3_8B = replace(LLAMA_70B, name="llama-3-8b", layers=32, hidden=4096, heads=32, kv_heads=8, mlp_hidden=14336)
LLAMA_65B = replace(
    LLAMA_70B, name="llama-65b", layers=80, hidden=8192, heads=64, kv_heads=64, mlp_hidden=22016, vocabulary=32000
)


@pytest.mark.parametrize(("model", "published"), [(LLAMA_2_7B, 39_976_960), (LLAMA_3_8B, 41_943_040)])
def test_trained_parameters_are_those_that_peft_prints(model: Any, published: int) -> None:
    """Rank 16 beside all seven linear layers of a Llama layer."""
    kind = model.layer_kinds[0]
    assert model.layers * adapter_parameters(model, kind, Adapters(16), fused=False) == published
    low, high = counted_again(model, 0, Adapters(16))
    assert model.layers * high == published
    assert low == adapter_parameters(model, kind, Adapters(16), fused=True)


def test_rank_sharing_cuts_every_adapter() -> None:
    """Tensor ranks share out both matrices; embedding, head, norms and experts are not trained."""
    rows = candidates({"tensor": 4, "data": 2}, {"tensor": 1, "data": 8})
    for model in (LLAMA_70B, MIXTRAL):
        layers = even_layers(model, 1)
        held = local_parameters(rows, layers, model)
        trained = trained_parameters(rows, layers, model, LORA, held)
        whole = model.layers * adapter_parameters(model, model.layer_kinds[0], Adapters(16), fused=False)
        assert trained.common[:, 0] == pytest.approx([whole / 4, whole])
        assert not trained.routed.any()
        assert not trained.tables.any()
        assert trained_parameters(rows, layers, model, PLAIN, held) is held


def test_frozen_products_have_no_weight_gradient() -> None:
    """Two products of three; quantised weights are read in 4 bits and written in 16 before each."""
    one = np.array([4096.0])
    calibration = calibration_of(H100, TRL)
    frozen = processor(H100, Precision.BF16, calibration, frozen=FrozenFormat.UNQUANTISED)
    found = linear_s(frozen, one, 8192.0, 28672.0)
    assert found.forward == matmul_s(frozen, one, 8192.0, 28672.0)
    assert found.backward == matmul_s(frozen, one, 28672.0, 8192.0)
    narrow = linear_s(processor(H100, Precision.BF16, calibration, frozen=FrozenFormat.NF4), one, 8192.0, 28672.0)
    passes = calibration.unfused_passes  # eager kernels
    widening = passes * (NF4_BYTES + 2.0) * 8192 * 28672 / frozen.memory_bytes_per_s + calibration.kernel_s
    assert narrow.forward - found.forward == pytest.approx(widening)
    assert narrow.backward - found.backward == pytest.approx(widening)


def test_adapters_alone_are_reduced_and_stepped() -> None:
    """Gradients and gathered weights of the data ranks shrink to the share of trained parameters."""
    row = candidates({"tensor": 4, "data": 16})
    full, lora = costs(row, workload=PLAIN), costs(row, workload=LORA)
    layers = even_layers(LLAMA_70B, 1)
    held = local_parameters(row, layers, LLAMA_70B)
    share = trained_parameters(row, layers, LLAMA_70B, LORA, held).common / held.common
    assert lora.reduce_bytes == pytest.approx(full.reduce_bytes * share)
    assert lora.gather_bytes == pytest.approx(full.gather_bytes * share)
    constant = calibration_of(H100, TRL).step_overhead_s
    assert lora.optimizer_s - constant < 0.1 * (full.optimizer_s - constant)
    assert lora.backward_s < 0.8 * full.backward_s
    assert lora.forward_s > full.forward_s


def test_sharded_parameters_are_gathered_whole_and_scattered_as_adapters() -> None:
    """Frozen layers travel twice, in four bits if they lie so; gradients of adapters alone come back."""
    row = candidates({"data": 64, "sharding": SHARDING_CODES.index(Sharding.PARAMETERS)})
    full, lora, narrow = (costs(row, workload=each).parameter_traffic for each in (PLAIN, LORA, QLORA))
    share = adapter_parameters(LLAMA_70B, LLAMA_70B.layer_kinds[0], Adapters(16), fused=False) / 855654400
    assert lora.message_bytes == pytest.approx(full.message_bytes * (1 + share))
    assert narrow.message_bytes == pytest.approx(full.message_bytes * (NF4_BYTES / 2 + share), rel=1e-3)
    assert lora.forward_count == full.forward_count
    scattered = TRL.gradient_bytes / 2 * share / (1 + share)
    assert lora.backward_count == pytest.approx(full.forward_count * (1 + scattered), rel=1e-3)


def test_tensor_ranks_gather_what_adapters_of_outputs_make() -> None:
    """Two wide gathers more a pass beside frozen layers, and sums as wide as the rank (Megatron-Bridge)."""
    row = candidates({"tensor": 8, "data": 8})
    plain = replace(PLAIN, framework=BRIDGE)
    inner, outer = (AdapterModule.QUERY_KEY_VALUE, AdapterModule.MLP_IN), tuple(AdapterModule)
    narrow, wide = (
        costs(row, workload=replace(plain, adapters=Adapters(16, modules))).tensor_s for modules in (inner, outer)
    )
    ranks, nbytes = np.array([8.0]), np.array([2.0 * LLAMA_70B.hidden * 4096])
    calibration = calibration_of(H100, BRIDGE)
    gathers = 4.0 * domain_collective_s(H100, Collective.ALL_GATHER, ranks, nbytes) / calibration.domain_share
    sums = 2.0 * domain_collective_s(H100, Collective.ALL_REDUCE, ranks, nbytes * 16 / LLAMA_70B.hidden)
    waits = 8.0 * calibration.collective_skew_s * 3.0
    expected = LLAMA_70B.layers * (gathers + 2.0 * sums / calibration.domain_share + waits)
    assert (wide - narrow)[0] == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("workload", [LORA, QLORA])
@pytest.mark.parametrize("sharding", [Sharding.OPTIMIZER, Sharding.PARAMETERS])
def test_frozen_weights_have_no_gradients_and_states(workload: TrainingWorkload, sharding: Sharding) -> None:
    """16 bits or NF4 for each, and a trained share of less than a hundredth with everything else."""
    row = candidates({"tensor": 8, "data": 8, "sharding": SHARDING_CODES.index(sharding)})
    full, lora = memory(row, workload=PLAIN), memory(row, workload=workload)
    assert lora.gradients_bytes < 0.01 * full.gradients_bytes
    assert lora.optimizer_bytes < 0.01 * full.optimizer_bytes
    tables = 2 * LLAMA_70B.vocabulary * LLAMA_70B.hidden
    width = 2.0 if workload is LORA else NF4_BYTES
    matrix = 0 if workload is LORA else 2.0 * LLAMA_70B.hidden * LLAMA_70B.mlp_hidden / 8
    ranks = 8 if sharding is Sharding.PARAMETERS else 1
    held = (width * (LLAMA_70B.parameters() - tables) + 2.0 * tables) / 8 / ranks
    if sharding is Sharding.PARAMETERS:  # two layers and the tables gathered
        held += (width * 2 * 855654400 + 2.0 * tables) / 8
    assert lora.weights_bytes == pytest.approx(np.array([[held + matrix]]), rel=0.02)


def test_activations_stay_where_an_adapter_reads_them() -> None:
    """Beside attention alone the inputs of MLPs go; the outputs of A stay with all inputs."""
    row = candidates({"data": 8})
    attention = (AdapterModule.QUERY_KEY_VALUE, AdapterModule.ATTENTION_OUTPUT)
    full, all_of_them, some = (
        memory(row, workload=replace(PLAIN, adapters=adapters)).activations_bytes
        for adapters in (None, Adapters(16), Adapters(16, attention))
    )
    per_token = LLAMA_70B.layers * 4096
    assert all_of_them - full == pytest.approx(2.0 * 16 * 7 * per_token)
    inputs = 2.0 * (LLAMA_70B.hidden + LLAMA_70B.mlp_hidden) * per_token
    assert all_of_them - some == pytest.approx(inputs + 2.0 * 16 * 3 * per_token)


def test_a_65b_model_is_tuned_on_one_gpu_of_48_gb() -> None:
    """As in the QLoRA paper (arXiv 2305.14314, abstract), where 16-bit weights and full tuning (780 GB) cannot.

    Its adapters had rank 64 and their optimizer states in the host's memory; these have rank 16.
    """
    gpu = replace(gpu_kind("A100-SXM4-80GB"), memory_bytes=48e9)
    row = candidates({"recompute": RECOMPUTE_CODES.index(Recompute.FULL)})

    def needed(workload: TrainingWorkload) -> float:
        asked = replace(workload, sequence_length=512, global_batch=16, memory_headroom=0.0)
        parts = stage_memory(
            row,
            even_layers(LLAMA_65B, 1),
            architecture=LLAMA_65B,
            workload=asked,
            gpu=gpu,
            micro_batches=np.array([16]),
        )
        return float(parts.total_bytes[0, 0])

    assert 34e9 < needed(QLORA) < 48e9
    assert needed(LORA) > 130e9
    assert needed(PLAIN) > 780e9


def test_model_work_leaves_out_gradients_of_frozen_weights() -> None:
    """4 FLOPs a frozen parameter and token, 6 an adapter's; a reference model adds a forward pass."""
    full, lora = workload_flops_per_token(DENSE, PLAIN), workload_flops_per_token(DENSE, LORA)
    own = DENSE.layers * adapter_parameters(DENSE, DENSE.layer_kinds[0], Adapters(16), fused=False)
    h, kv = DENSE.hidden, DENSE.kv_heads * DENSE.head_size
    layer = 2 * h * DENSE.heads * DENSE.head_size + 2 * h * kv + DENSE.mlp_matrices * h * DENSE.mlp_hidden
    assert full - lora == pytest.approx(2.0 * (DENSE.layers * layer + h * DENSE.vocabulary) - 6.0 * own)
    compared = replace(LORA, method=TrainingMethod.DPO)
    assert workload_flops_per_token(DENSE, compared) == pytest.approx(lora + full / 3)
    same, lora_memory = (memory(candidates({}), workload=each) for each in (compared, LORA))
    assert same.weights_bytes == lora_memory.weights_bytes


def test_model_work_is_what_automodel_publishes() -> None:
    """176 TFLOP/s at 608.42 tokens a second: Llama 3 70B with adapters (its performance summary, October 2025)."""
    workload = replace(LORA, framework=framework("automodel-2025"), adapters=Adapters(16))
    assert workload_flops_per_token(LLAMA_70B, workload) * 608.42 == pytest.approx(176e12, rel=0.03)


@pytest.mark.parametrize("model", [DENSE, SPARSE])
@pytest.mark.parametrize("frozen", list(FrozenFormat))
def test_plans_hold_before_the_checker(model: Any, frozen: FrozenFormat) -> None:
    """Its own count of weights, states and FLOPs agrees, and no step is below the floor of its products."""
    asked = problem(
        nodes(1, gpus=2),
        model=model,
        framework=TRL,
        adapters=Adapters(8, frozen_weights=frozen),
        recompute=(Recompute.NONE,),
    )
    found = planned(asked, EXACT)
    assert check_plan(found, asked) == ()
    assert any(each.code == "unmeasured_adapters" for each in found.warnings)
    kind = asked.snapshot.cluster.gpu_kinds[asked.snapshot.cluster.nodes[0].gpu_kind]
    assert floors_s(asked, kind, np.array([2]), 2)[0] <= found.time.step_s
    trained = replace(asked, workload=replace(asked.workload, adapters=None))
    assert any("optimizer states" in each for each in check_plan(found, trained))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"framework": framework("megatron-core-0.12")}, "trains no adapters"),
        ({"framework": BRIDGE}, "does not keep them so"),
        ({"precision": Precision.FP8}, "widened to 16 bits"),
    ],
)
def test_adapters_that_a_framework_lacks_are_refused(changes: dict[str, Any], reason: str) -> None:
    """Field and reason."""
    with pytest.raises(InvalidWorkload, match=reason):
        replace(QLORA, **changes)


@pytest.mark.parametrize(
    ("model", "adapters", "pinned", "field"),
    [
        (catalogue_model("deepseek-v3"), Adapters(8), {}, "workload.adapters"),
        (SPARSE, Adapters(8, (AdapterModule.MLP_IN,)), {}, "workload.adapters.modules"),
        (DENSE, Adapters(3), {"tensor": 2}, "workload.adapters.rank"),
    ],
)
def test_adapters_that_a_model_lacks_are_refused(
    model: Any, adapters: Adapters, pinned: dict[str, int], field: str
) -> None:
    """Latent attention, routed experts alone, and a rank that tensor ranks cannot cut."""
    asked = problem(nodes(1, gpus=2), model=model, framework=TRL, adapters=adapters, pinned=pinned)
    with pytest.raises(InvalidWorkload) as refused:
        planned(asked, EXACT)
    assert refused.value.field == field


@pytest.mark.parametrize(("rank", "modules"), [(0, tuple(AdapterModule)), (8, ())])
def test_adapters_have_a_rank_and_a_place(rank: int, modules: tuple[AdapterModule, ...]) -> None:
    """Nothing to train is not an adapter."""
    with pytest.raises(InvalidWorkload):
        Adapters(rank, modules)
