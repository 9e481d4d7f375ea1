"""Activations that a layer keeps under each policy, module by module, against the tensors counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.gpus import Precision
from cluster_models.model.architecture import Architecture
from cluster_models.model.mixers import LatentAttention
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK, Framework, framework
from cluster_models.training.recompute import default_modules
from cluster_models.training.workload import Recompute, RecomputeModule
from solver.candidates import RECOMPUTE_CODES, module_code
from solver.costs.activations import LayerActivations, kept_activations, layer_tensors
from solver.costs.calibration import calibration_of
from solver.costs.local_sizes import local_sizes
from solver.costs.memory import stage_memory
from solver.costs.recomputation import RecomputePolicies
from tests.solver.cost_cases import H100, LLAMA_70B, MIXTRAL, WORKLOAD, candidates, even_layers

TOKENS = WORKLOAD.sequence_length
DEEPSEEK_LIKE = replace(
    MIXTRAL,
    latent_attention=LatentAttention(
        query_rank=1536, key_value_rank=512, rope_head_size=64, nope_head_size=128, value_head_size=128
    ),
)


def activations(
    architecture: Architecture = LLAMA_70B,
    recompute: Recompute = Recompute.NONE,
    modules: frozenset[RecomputeModule] = frozenset(),
    precision: Precision = Precision.BF16,
    generation: Framework = DEFAULT_FRAMEWORK,
) -> LayerActivations:
    """Bytes of one layer on one GPU, micro-batch 1; ``modules`` make recomputation selective."""
    calibration = calibration_of(H100, generation)
    policy = Recompute.SELECTIVE if modules else recompute
    batch = candidates({"recompute": RECOMPUTE_CODES.index(policy), "modules": module_code(modules)})
    sizes = local_sizes(batch, replace(WORKLOAD, precision=precision, framework=generation), calibration)
    tensors = layer_tensors(architecture, sizes, calibration)
    return kept_activations(architecture, sizes, calibration, tensors, RecomputePolicies.of(batch, generation))


def test_a_llama_layer_keeps_what_its_tensors_take() -> None:
    """Two norms in and out, queries, keys, values, attention output, log-sum-exp; gate, up and their product."""
    per_token = 2 * (4 * 8192 + 8192 + 2 * 1024 + 8192 + 3 * 28672) + 4 * 64
    assert activations().layers[0, 0] == pytest.approx(per_token * TOKENS)


def test_norms_that_keep_their_output_share_it_with_the_product_behind_them() -> None:
    """Both inputs of norms fall away, unless the product keeps a narrower copy of its own."""
    frugal = replace(DEFAULT_FRAMEWORK, keeps_norm_outputs=True)
    freed = activations().layers - activations(generation=frugal).layers
    assert freed[0, 0] == pytest.approx(2 * 2 * 8192 * TOKENS)
    usual, kept = (activations(precision=Precision.FP8, generation=each) for each in (DEFAULT_FRAMEWORK, frugal))
    assert kept.layers == pytest.approx(usual.layers)


def test_eight_bit_training_keeps_inputs_of_products_in_one_byte() -> None:
    """Norm outputs and the MLP's product; the attention output in both widths."""
    per_token = 3 * 2 * 8192 + 2 * (8192 + 2 * 1024) + 3 * 8192 + (2 * 2 + 1) * 28672 + 4 * 64
    assert activations(precision=Precision.FP8).layers[0, 0] == pytest.approx(per_token * TOKENS)


def test_fp32_training_keeps_twice_the_bytes() -> None:
    """All but the log-sum-exp, which is FP32 anyway."""
    wide, usual = activations(precision=Precision.FP32).layers[0, 0], activations().layers[0, 0]
    assert wide == pytest.approx(2 * usual - 4 * 64 * TOKENS)


def test_torchtitan_s_selective_policy_keeps_every_second_product() -> None:
    """Layer input, queries, values, attention output, gate and MLP output; in 8 bits no product at all."""
    titan = framework("torchtitan-2025")
    kept = activations(recompute=Recompute.SELECTIVE, generation=titan).layers[0, 0]
    assert kept == pytest.approx((2 * (8192 + 8192 + 1024 + 8192 + 28672 + 8192) + 4 * 64) * TOKENS)
    low = activations(recompute=Recompute.SELECTIVE, generation=titan, precision=Precision.FP8).layers[0, 0]
    assert low == pytest.approx((2 * (8192 + 8192) + 4 * 64) * TOKENS)


@pytest.mark.parametrize(
    ("model", "module", "freed_per_token"),
    [
        (LLAMA_70B, RecomputeModule.LAYER_NORM, 0),  # part of the linear layers behind them
        (LLAMA_70B, RecomputeModule.MLP, 2 * (8192 + 3 * 28672)),
        (LLAMA_70B, RecomputeModule.CORE_ATTENTION, 4 * 64),
        (MIXTRAL, RecomputeModule.LAYER_NORM, 2 * 4096),
        (DEEPSEEK_LIKE, RecomputeModule.LAYER_NORM, 2 * 2 * 4096),
        (MIXTRAL, RecomputeModule.MOE_ACTIVATION, 2 * 2 * 14336),
        (DEEPSEEK_LIKE, RecomputeModule.MLA_UP_PROJECTION, 2 * 32 * (192 + 192 + 128)),
    ],
)
def test_a_module_frees_its_own_tensors(
    model: Architecture, module: RecomputeModule, freed_per_token: float
) -> None:
    """One layer's worth, which is at work again while the layer runs backward."""
    whole, less = activations(model), activations(model, modules=frozenset({module}))
    freed = whole.layers[0, 0] - less.layers[0, 0]
    assert freed == pytest.approx(freed_per_token * TOKENS)
    assert less.working[0] - whole.working[0] == pytest.approx(freed)


@settings(max_examples=20)
@given(
    st.sampled_from([LLAMA_70B, MIXTRAL, DEEPSEEK_LIKE]),
    st.frozensets(st.sampled_from(sorted(RecomputeModule)), min_size=1),
    st.sampled_from(sorted(RecomputeModule)),
    st.sampled_from([Precision.BF16, Precision.FP8, Precision.FP32]),
    st.sampled_from([DEFAULT_FRAMEWORK, framework("torchtitan-2025"), framework("megatron-lm-3")]),
)
def test_policies_and_modules_only_ever_free(
    model: Architecture,
    modules: frozenset[RecomputeModule],
    another: RecomputeModule,
    precision: Precision,
    generation: Framework,
) -> None:
    """Full <= selective <= none, another module never keeps more, and the layer's input always stays."""
    none, selective, full = (
        activations(model, policy, precision=precision, generation=generation)
        for policy in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
    )
    some, more = (
        activations(model, modules=each, precision=precision, generation=generation)
        for each in (modules, modules | {another})
    )
    named = [(full, more, some, none)] if default_modules(generation) else []
    for policies in ((full, selective, none), *named):
        kept = [each.layers[0, 0] for each in policies]
        assert kept == sorted(kept)
    assert full.layers[0, 0] == pytest.approx(precision.activation_bytes * model.hidden * TOKENS)


def test_offloaded_layers_leave_the_gpu() -> None:
    """Twenty of eighty layers take a quarter of what is kept; more layers than there are take all of it."""

    def kept(offloaded_layers: int) -> float:
        parts = stage_memory(
            candidates({}),
            even_layers(LLAMA_70B, 1),
            architecture=LLAMA_70B,
            workload=WORKLOAD,
            gpu=H100,
            micro_batches=np.array([8]),
            offloaded_layers=offloaded_layers,
        )
        return float(parts.activations_bytes[0, 0])

    layers = 80 * activations().layers[0, 0]
    assert kept(0) - kept(20) == pytest.approx(layers / 4)
    assert kept(100) == pytest.approx(activations().working[0])
