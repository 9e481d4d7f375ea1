"""Quantised exchange of sharded parameters (DeepSpeed's ZeRO++, arXiv 2306.10209)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.exports.contract import check_files
from app.exports.launch_value import launch_of
from app.exports.options import Options
from cluster_models.errors import InvalidConfiguration, InvalidWorkload
from cluster_models.training.adapters import Adapters
from cluster_models.training.framework_choices import ShardedExchange
from cluster_models.training.frameworks import framework
from cluster_models.training.plan import Degrees
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.candidates import SHARDING_CODES
from solver.check import check_plan
from solver.costs.step_costs import StepCosts
from tests.app.exports.plans import export, shaped, under
from tests.solver.cost_cases import H100, LLAMA_70B, behaviour, candidates, costs
from tests.solver.problems import DENSE, EXACT, nodes, pair_samples, planned, problem, rates_of

DEEPSPEED = framework("transformers-2025")
PARAMETERS = SHARDING_CODES.index(Sharding.PARAMETERS)
PAPER = {"gradient_bytes": 2.0, "overlap_parameters": False, "overlap_gradients": False}
"""Gradients of 16 bits as in the paper, nothing hidden."""


def priced(exchange: ShardedExchange, data: int = 64, **facts: Any) -> StepCosts:
    """Llama 3 70B with parameters sharded over ``data`` ranks, 8 a node."""
    row = candidates({"data": data, "sharding": PARAMETERS, "sharding_ranks": facts.pop("group", 0)})
    own = replace(DEEPSPEED, **PAPER, sharded_exchange=exchange)
    calibration = replace(behaviour(), framework=own, **facts)
    workload = TrainingWorkload(
        sequence_length=8192, global_batch=data, framework=own, sharding=(Sharding.PARAMETERS,)
    )
    return costs(row, workload=workload, calibration=calibration)


def crossing(found: StepCosts) -> tuple[float, float]:
    """Bytes between nodes of both passes."""
    traffic = found.parameter_traffic
    passes = traffic.forward_count.sum(), traffic.backward_count.sum()
    return tuple(float(count * traffic.message_bytes[0]) for count in passes)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("exchange", "forward", "backward"),
    [("weights", 0.5, 1.5), ("gradients", 1.0, 1.25), ("both", 0.5, 0.75)],
)
def test_bytes_between_nodes_are_those_of_the_paper(exchange: str, forward: float, backward: float) -> None:
    """INT8 halves the M of each gather, INT4 quarters the M of the scatter (table 1)."""
    once = crossing(priced(ShardedExchange.PLAIN))
    assert once[1] == pytest.approx(2.0 * once[0])
    found = crossing(priced(ShardedExchange(exchange)))
    assert found == pytest.approx((forward * once[0], backward * once[0]))


def test_kernels_pass_three_bytes_a_parameter_through_memory() -> None:
    """Both gathers and the scatter, but for ranks that straggle; nothing on a single rank."""
    free = {"gather_contention": 0.0}
    plain, both = (priced(each, **free) for each in (ShardedExchange.PLAIN, ShardedExchange.BOTH))
    layers = LLAMA_70B.parameters() - 2 * LLAMA_70B.vocabulary * LLAMA_70B.hidden - LLAMA_70B.hidden
    kernels = 3 * 3.0 * layers / (H100.memory_bytes_per_s * behaviour().memory_share)
    assert (both.compute_s - plain.compute_s).sum() == pytest.approx(kernels, rel=0.03)
    alone = (priced(each, data=1, **free).compute_s for each in (ShardedExchange.PLAIN, ShardedExchange.BOTH))
    assert np.array_equal(*alone)


def test_groups_of_accelerate_quantise_nothing() -> None:
    """HSDP is PyTorch's, ZeRO++ is DeepSpeed's."""
    plain, both = (priced(each, group=8) for each in (ShardedExchange.PLAIN, ShardedExchange.BOTH))
    assert crossing(both) == crossing(plain)
    assert np.array_equal(both.compute_s, plain.compute_s)


def test_a_slow_network_gains_and_the_plan_is_sound() -> None:
    """Four ranks on two nodes: quantised, the same plan takes less time, and DeepSpeed is told."""

    def asked(exchange: ShardedExchange) -> Any:
        return problem(
            nodes(2, gpus=2),
            pair_samples(rates_of(2, [2.0]), flows=2),
            model=DENSE,
            framework=replace(DEEPSPEED, sharded_exchange=exchange),
            sharding=(Sharding.PARAMETERS,),
            recompute=(Recompute.NONE,),
            pinned={"tensor": 1, "data": 4, "sharding_ranks": 0},
        )

    plain, both = (planned(asked(each), EXACT) for each in (ShardedExchange.PLAIN, ShardedExchange.BOTH))
    assert both.time.step_s < 0.7 * plain.time.step_s
    assert check_plan(both, asked(ShardedExchange.BOTH)) == ()


@pytest.mark.parametrize("exchange", list(ShardedExchange))
def test_deepspeed_is_told_and_others_refuse(exchange: ShardedExchange) -> None:
    """Keys of its ``zero_optimization``, read back."""
    plan = under(shaped(Degrees(data=8), ((6,),), sharding=Sharding.PARAMETERS), "transformers-2025")
    own, other = (
        under(plan, "transformers-2025", sharded_exchange=each)
        for each in (
            exchange,
            ShardedExchange.WEIGHTS if exchange is ShardedExchange.PLAIN else ShardedExchange.PLAIN,
        )
    )
    files = export("deepspeed").files(own, Options())
    assert ("zero_quantized_weights" in files[0].text) == exchange.of_weights
    assert ("zero_quantized_gradients" in files[0].text) == exchange.of_gradients
    with pytest.raises(InvalidConfiguration, match="sharded_exchange"):
        check_files(export("deepspeed"), files, launch_of(other))
    if exchange is not ShardedExchange.PLAIN:
        with pytest.raises(InvalidConfiguration, match="sharded_exchange"):
            export("torchtitan").files(own)


def test_what_cannot_be_quantised_is_refused() -> None:
    """A framework without it, and adapters."""
    for name, changes, problem_named in (
        ("torchtitan-2025", {}, "does not quantise"),
        ("transformers-2025", {"adapters": Adapters(rank=8)}, "beside adapters"),
    ):
        own = replace(framework(name), sharded_exchange=ShardedExchange.BOTH)
        with pytest.raises(InvalidWorkload, match=problem_named):
            TrainingWorkload(sequence_length=8, global_batch=8, framework=own, **changes)
