"""Preference training: pairs of sequences, and what a reference model beside the trained one costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.errors import InvalidWorkload
from cluster_models.training.frameworks import framework
from cluster_models.training.methods import TrainingMethod
from cluster_models.training.mixed_lengths import MixedLengths, Packing
from cluster_models.training.model_work import workload_flops_per_token
from cluster_models.training.roles import Roles
from cluster_models.training.workload import Offload, Recompute, Sharding, TrainingWorkload
from solver.candidates import SHARDING_CODES
from solver.check import check_plan
from solver.costs.calibration import calibration_of
from solver.costs.local_sizes import drawn_load, local_sizes, rank_load
from solver.costs.training_state import bytes_per_parameter
from tests.solver.cost_cases import LLAMA_70B, MIXTRAL, candidates, costs, memory
from tests.solver.naive_schedule import event_ends
from tests.solver.problems import DENSE, EXACT, SPARSE, nodes, planned, problem

TRL = framework("transformers-2025")
PLAIN = TrainingWorkload(sequence_length=8192, global_batch=128, framework=TRL)
DPO = replace(PLAIN, method=TrainingMethod.DPO)


@pytest.mark.parametrize("model", [LLAMA_70B, MIXTRAL])
def test_a_reference_model_runs_forward_once_more(model: Any) -> None:
    """With its collectives and what crosses nodes; backward passes, gradients and the optimizer stay."""
    expert = 16 if model is MIXTRAL else 1
    rows = candidates(
        {"tensor": 4, "data": 16, "expert": expert, "micro_batch": 2},
        {
            "tensor": 4,
            "context": 4,
            "data": 4,
            "micro_batch": 2,
            "sharding": SHARDING_CODES.index(Sharding.PARAMETERS),
        },
    )
    one, two = costs(rows, model, PLAIN), costs(rows, model, DPO)
    assert two.forward_s == pytest.approx(2.0 * one.forward_s)
    assert two.backward_s == pytest.approx(one.backward_s)
    for traffic in ("context_traffic", "expert_traffic", "parameter_traffic"):
        own, plain = getattr(two, traffic), getattr(one, traffic)
        assert own.forward_count == pytest.approx(2.0 * plain.forward_count)
        assert own.backward_count == pytest.approx(plain.backward_count)
    assert two.reduce_bytes == pytest.approx(one.reduce_bytes)
    assert two.optimizer_s == pytest.approx(one.optimizer_s)


def test_a_pass_of_its_own_takes_as_long() -> None:
    """The pipeline that runs the reference first, all micro-batches of a step, against one with it inside."""
    pipeline, count = 4, 12
    inside = event_ends(pipeline, 1, count, lambda *_: 2.0, lambda *_: 0.0)
    trained = event_ends(pipeline, 1, count, lambda kind, _: 2.0 if kind == "B" else 1.0, lambda *_: 0.0)
    reference = count + pipeline - 1.0
    assert max(inside.values()) == pytest.approx(reference + max(trained.values()))


@pytest.mark.parametrize("sharding", [Sharding.NONE, Sharding.PARAMETERS])
def test_a_reference_model_is_weights_alone(sharding: Sharding) -> None:
    """16-bit weights as often as the trained ones lie there: whole, or a shard of them."""
    row = candidates({"tensor": 8, "data": 8, "micro_batch": 2, "sharding": SHARDING_CODES.index(sharding)})
    one, two = memory(row, workload=PLAIN), memory(row, workload=DPO)
    ranks = 8 if sharding is Sharding.PARAMETERS else 1
    expected = 2.0 * LLAMA_70B.parameters() / 8 / ranks
    assert two.weights_bytes - one.weights_bytes == pytest.approx(np.array([[expected]]), rel=0.01)
    assert two.total_bytes - one.total_bytes == pytest.approx(two.weights_bytes - one.weights_bytes)
    weight, states = bytes_per_parameter(DPO, sharding)
    plain, same = bytes_per_parameter(PLAIN, sharding)
    assert (weight - plain, states) == (2.0, same)


def test_model_work_counts_the_reference() -> None:
    """Four passes of equal work instead of three."""
    stored = replace(PLAIN, method=TrainingMethod.DPO_STORED)
    assert workload_flops_per_token(DENSE, DPO) == pytest.approx(workload_flops_per_token(DENSE, PLAIN) * 4 / 3)
    assert workload_flops_per_token(DENSE, stored) == workload_flops_per_token(DENSE, PLAIN)


def test_plans_keep_pairs_together() -> None:
    """Even micro-batches, and the checker agrees; it finds an odd one."""
    asked = problem(nodes(1, gpus=2), model=SPARSE, framework=TRL, method=DPO.method, recompute=(Recompute.NONE,))
    found = planned(asked, EXACT)
    assert found.configuration.micro_batch % 2 == 0
    assert check_plan(found, asked) == ()
    odd = replace(found, configuration=replace(found.configuration, micro_batch=1))
    assert any("not make pairs" in each for each in check_plan(odd, asked))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"framework": framework("megatron-core-0.12")}, "does not train so"),
        ({"global_batch": 7}, "two for each pair"),
        ({"pinned": {"micro_batch": 3}}, "two for each pair"),
        ({"lengths": MixedLengths.of({700: 1.0}, Packing.WHOLE)}, "single documents only"),
    ],
)
def test_what_is_no_preference_training_is_refused(changes: dict[str, Any], reason: str) -> None:
    """Field and reason."""
    with pytest.raises(InvalidWorkload, match=reason):
        replace(DPO, **changes)


@pytest.mark.parametrize(("method", "more"), [(TrainingMethod.POLICY, 1), (TrainingMethod.POLICY_REFERENCE, 2)])
def test_a_policy_runs_forward_before_it_is_updated(method: TrainingMethod, more: int) -> None:
    """Once for its own log-probabilities and once in its reference; one copy of weights for the reference."""
    bridge = replace(PLAIN, framework=framework("megatron-bridge-26.02"))
    update = replace(bridge, method=method)
    row = candidates({"tensor": 8, "data": 8, "micro_batch": 1})
    one, two = costs(row, LLAMA_70B, bridge), costs(row, LLAMA_70B, update)
    assert two.forward_s == pytest.approx((1.0 + more) * one.forward_s)
    assert two.backward_s == pytest.approx(one.backward_s)
    assert workload_flops_per_token(DENSE, update) == pytest.approx(
        workload_flops_per_token(DENSE, bridge) * (1 + more / 3)
    )
    weight, _ = bytes_per_parameter(update, Sharding.OPTIMIZER)
    assert weight == 2.0 * more
    asked = problem(
        nodes(1, gpus=2), framework=bridge.framework, method=method, recompute=(Recompute.NONE,), global_batch=5
    )
    found = planned(asked, EXACT)
    assert check_plan(found, asked) == ()


PPO = Roles(critic=True, reward_model=True, epochs=3)


def test_the_mean_step_of_ppo_adds_up_to_all_of_its_passes() -> None:
    """Passes of a batch as pipelines of their own: four forward alone, then three epochs of policy and critic."""
    pipeline, count, method = 4, 12, TrainingMethod.POLICY_REFERENCE

    def ends_s(forward_s: float, backward_s: float) -> float:
        ends = event_ends(
            pipeline, 1, count, lambda kind, _: backward_s if kind == "B" else forward_s, lambda *_: 0.0
        )
        return float(max(ends.values()))

    forward_alone = count + pipeline - 1.0
    assert (PPO.steps, PPO.passes(method)) == (6, 4 / 6)
    whole = 4 * forward_alone + 6 * ends_s(1.0, 2.0)
    assert PPO.steps * ends_s(1.0 + PPO.passes(method), 2.0) == pytest.approx(whole)
    assert Roles().passes(method) == method.more_passes


@pytest.mark.parametrize("sharding", [Sharding.OPTIMIZER, Sharding.PARAMETERS])
def test_a_critic_has_all_that_the_policy_has_and_a_reward_model_weights(sharding: Sharding) -> None:
    """Weights, gradients and states twice; activations once, for both are trained in turns."""
    bridge = replace(PLAIN, framework=framework("megatron-bridge-26.02"), method=TrainingMethod.POLICY)
    row = candidates({"tensor": 8, "data": 8, "micro_batch": 1, "sharding": SHARDING_CODES.index(sharding)})
    one, critic, both = (memory(row, workload=replace(bridge, roles=each)) for each in (Roles(), Roles(True), PPO))
    assert critic.optimizer_bytes == pytest.approx(2.0 * one.optimizer_bytes, rel=0.05)
    assert critic.gradients_bytes == pytest.approx(2.0 * one.gradients_bytes)
    ranks = 8 if sharding is Sharding.PARAMETERS else 1
    weights = 2.0 * LLAMA_70B.parameters() / 8 / ranks
    for more, less in ((critic, one), (both, critic)):
        assert more.weights_bytes - less.weights_bytes == pytest.approx(np.array([[weights]]), rel=0.01)
    assert both.activations_bytes == pytest.approx(one.activations_bytes)


def test_roles_are_of_whole_policies_alone() -> None:
    """Named at their field, beside next tokens, adapters and states that leave the GPUs."""
    bridge = replace(PLAIN, framework=framework("megatron-bridge-26.02"), method=TrainingMethod.POLICY)
    for changes, remedy in (
        ({"method": TrainingMethod.LIKELIHOOD}, r"'epochs': .*use method: policy"),
        ({"offload": (Offload.NONE, Offload.OPTIMIZER)}, "leave adapters and offload out"),
        ({"roles": Roles(epochs=0)}, "epochs: must lie"),
    ):
        with pytest.raises(InvalidWorkload, match=rf"workload\.roles.*{remedy}"):
            replace(bridge, **{"roles": PPO} | changes)


def test_experts_of_a_policy_are_as_unbalanced_as_random_ones() -> None:
    """Loads of log-normal experts dealt to ranks at random, against the formula; other methods stay as calibrated.

    Eight experts on eight ranks are as Mixtral's counts have them.
    """
    random, count = np.random.default_rng(0), 256
    sigma = np.sqrt(np.log(1.0 + 0.95**2))
    loads = random.lognormal(0.0, sigma, (400, count))
    loads /= loads.mean(axis=1, keepdims=True)
    for ranks in (2, 4, 8):
        busiest = loads.reshape(400, ranks, -1).mean(axis=2).max(axis=1).mean()
        assert drawn_load(count, np.array([float(ranks)]))[0] == pytest.approx(busiest, rel=0.06)
    assert drawn_load(8, np.array([1.0, 8.0])) == pytest.approx([1.0, 1.31], abs=0.01)
    rows, experts = candidates({"data": 16, "expert": 8}), MIXTRAL.experts
    assert experts is not None
    policy = replace(PLAIN, framework=framework("megatron-bridge-26.02"), method=TrainingMethod.POLICY)
    calibration = calibration_of(gpu_kind("H100-SXM5-80GB", field="gpu_kind"), policy.framework)
    plain, kept = replace(policy, method=TrainingMethod.LIKELIHOOD), {"most": True}
    for workload, given, load in ((policy, {}, 1.31), (plain, {}, 1.05), (policy, kept, 1.05)):
        sizes = local_sizes(rows, workload, calibration, **given)
        assert rank_load(experts, sizes) == pytest.approx(load, abs=0.01)
