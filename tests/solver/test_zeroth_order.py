"""Zeroth-order training (MeZO, arXiv 2305.17333): forward passes alone, and what passes over the weights take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidConfiguration, InvalidWorkload
from cluster_models.model.architecture import Architecture
from cluster_models.training.adapters import Adapters
from cluster_models.training.framework_choices import Optimizer
from cluster_models.training.frameworks import framework
from cluster_models.training.methods import TrainingMethod
from cluster_models.training.model_work import workload_flops_per_token
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.candidates import SHARDING_CODES
from solver.check import check_plan
from solver.costs.calibration import calibration_of
from solver.costs.compute import processor
from solver.costs.memory import stage_memory
from tests.app.exports.plans import export
from tests.solver.cost_cases import H100, LLAMA_70B, MIXTRAL, candidates, costs, even_layers, memory
from tests.solver.problems import DENSE, EXACT, nodes, planned, problem

TRANSFORMERS = framework("transformers-2025")
SGD = TrainingWorkload(sequence_length=2048, global_batch=16, framework=TRANSFORMERS, optimizer=Optimizer.SGD)
MEZO = replace(SGD, optimizer=Optimizer.ZEROTH_ORDER)
NONE = SHARDING_CODES.index(Sharding.NONE)


@pytest.mark.parametrize("model", [LLAMA_70B, MIXTRAL])
def test_a_step_is_two_forward_passes_and_four_over_the_weights(model: Any) -> None:
    """With the collectives of both, nothing backward and nothing reduced; 74 bytes a parameter pass memory."""
    expert = 8 if model is MIXTRAL else 1
    rows = candidates(
        {"tensor": 4, "data": 8, "expert": expert, "sharding": NONE},
        {"tensor": 4, "context": 4, "data": 4, "sharding": NONE},
    )
    sgd, mezo = costs(rows, model, SGD), costs(rows, model, MEZO)
    assert mezo.forward_s == pytest.approx(2.0 * sgd.forward_s)
    assert not mezo.backward_s.any()
    for traffic in ("context_traffic", "expert_traffic"):
        own, plain = getattr(mezo, traffic), getattr(sgd, traffic)
        assert own.forward_count == pytest.approx(2.0 * plain.forward_count)
        assert not own.backward_count.any()
    for part in (mezo.reduce_bytes, mezo.expert_reduce_bytes, mezo.gather_bytes, mezo.tail_transfers):
        assert not part.any()
    calibration = calibration_of(H100, TRANSFORMERS)
    chip = processor(H100, MEZO.precision, calibration)
    kernels = 18 * 6 * model.layers * calibration.kernel_s + calibration.step_overhead_s
    if model is LLAMA_70B:
        weights_s = 74.0 * model.parameters() / 4 / chip.memory_bytes_per_s
        assert mezo.optimizer_s[:, 0] == pytest.approx(weights_s + kernels, rel=0.01)


def test_memory_is_weights_and_one_forward_pass() -> None:
    """Two bytes a parameter, a layer's widest tensors, logits without their gradient, whatever the depth."""
    row = candidates({"sharding": NONE, "micro_batch": 2})
    held = memory(row, workload=MEZO)
    assert held.weights_bytes == pytest.approx(2.0 * LLAMA_70B.parameters(), rel=0.001)
    assert not held.gradients_bytes.any()
    tokens, wide = 2 * 2048, 3 * LLAMA_70B.mlp_hidden + 2 * LLAMA_70B.hidden
    assert held.activations_bytes[0, 0] == pytest.approx(2.0 * tokens * wide)
    assert held.logits_bytes[0, 0] == pytest.approx(10.0 * tokens * LLAMA_70B.vocabulary)
    assert held.optimizer_bytes[0, 0] == 0.0
    short = memory(row, workload=replace(MEZO, sequence_length=64))
    passing = short.activations_bytes + short.logits_bytes + short.fragmentation_bytes
    table = 6.0 * LLAMA_70B.vocabulary * LLAMA_70B.hidden  # a direction and two more of the largest tensor
    assert short.optimizer_bytes == pytest.approx(table - passing)


OPT = Architecture(
    name="opt-2.7b",
    layers=32,
    hidden=2560,
    heads=32,
    kv_heads=32,
    head_size=80,
    mlp_hidden=10240,
    vocabulary=50272,
    gated_mlp=False,
    tied_embeddings=True,
    learned_positions=2050,
)
OPT_7B = replace(OPT, hidden=4096, head_size=128, mlp_hidden=16384)
OPT_30B = replace(OPT, layers=48, hidden=7168, heads=56, kv_heads=56, head_size=128, mlp_hidden=28672)
OPT_66B = replace(OPT, layers=64, hidden=9216, heads=72, kv_heads=72, head_size=128, mlp_hidden=36864)
A100 = gpu_kind("A100-SXM4-80GB")


@pytest.mark.parametrize(
    ("optimizer", "fits", "not_any_more"),
    [(Optimizer.ZEROTH_ORDER, OPT_30B, OPT_66B), (Optimizer.ADAM, OPT, OPT_7B)],
)
def test_one_gpu_trains_what_was_published(
    optimizer: Optimizer, fits: Architecture, not_any_more: Architecture
) -> None:
    """80 GB of an A100 hold 30 billion parameters, with Adam 2.7 billion (abstract), and no larger OPT."""
    workload = replace(MEZO, sequence_length=400, optimizer=optimizer, memory_headroom=0.0)
    for model, inside in ((fits, True), (not_any_more, False)):
        shape: dict[str, Any] = {"architecture": model, "workload": workload, "gpu": A100}
        row = candidates({"sharding": NONE})
        held = stage_memory(row, even_layers(model, 1), micro_batches=np.array([1]), **shape)
        assert bool(held.total_bytes[0, 0] <= held.limit_bytes[0, 0]) is inside


def asked(**changes: Any) -> Any:
    """A model on two nodes of two GPUs."""
    settings: dict[str, Any] = {
        "model": DENSE,
        "framework": TRANSFORMERS,
        "optimizer": Optimizer.ZEROTH_ORDER,
        "sharding": MEZO.sharding,
        "sequence_length": 2048,
        "global_batch": 16,
    }
    return problem(nodes(2), **settings | changes)


def test_plans_have_no_backward_pass_and_are_checked() -> None:
    """Data ranks send each other nothing; the checker finds a backward pass, states, and work of three passes."""
    case = asked()
    found = planned(case, EXACT)
    assert check_plan(found, case) == ()
    assert found.configuration.degrees.data == 4
    assert found.time.data_exposed_s == 0.0
    assert found.time.optimizer_s > 0.0
    assert any(each.code == "unmeasured_zeroth_order" for each in found.warnings)
    assert workload_flops_per_token(DENSE, MEZO) == pytest.approx(workload_flops_per_token(DENSE, SGD) * 2 / 3)
    memory, stage, table = found.memory[0], found.stages[0], 6.0 * DENSE.vocabulary * DENSE.hidden
    for wrong, said in (
        ({"memory": (replace(memory, gradients_bytes=1e9), *found.memory[1:])}, "gradients"),
        ({"memory": (replace(memory, optimizer_bytes=2.0 * table), *found.memory[1:])}, "optimizer states"),
        ({"stages": (replace(stage, backward_s=0.1), *found.stages[1:])}, "backward pass"),
        ({"configuration": replace(found.configuration, sharding=Sharding.OPTIMIZER)}, "forward passes alone"),
        ({"model_flops_per_s_per_gpu": 1.5 * found.model_flops_per_s_per_gpu}, "model FLOP/s"),
    ):
        assert any(said in each for each in check_plan(replace(found, **wrong), case)), said
    for name in ("deepspeed", "torchtitan"):
        with pytest.raises(InvalidConfiguration, match="zeroth_order"):
            export(name).files(found)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"method": TrainingMethod.DPO}, "method"),
        ({"adapters": Adapters(16)}, "adapters"),
        ({"precision": Precision.FP8}, "precision"),
        ({"recompute": (Recompute.FULL,)}, "recompute"),
        ({"sharding": (Sharding.OPTIMIZER, Sharding.PARAMETERS)}, "sharding"),
        ({"pinned": {"pipeline": 2}}, "pinned.pipeline"),
        ({"forbidden": {"pipeline": (1,)}}, "forbidden.pipeline"),
        ({"framework": replace(TRANSFORMERS, stream_tokens=64)}, "framework_settings.stream_tokens"),
        ({"framework": framework("megatron-core-0.15")}, "optimizer"),
    ],
)
def test_what_needs_gradients_is_refused(changes: dict[str, Any], field: str) -> None:
    """At its field."""
    with pytest.raises(InvalidWorkload, match=rf"workload\.{field}"):
        replace(MEZO, **changes)
