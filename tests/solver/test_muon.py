"""Muon: what it keeps of matrices and of all else, and the step that makes updates orthogonal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_models.errors import InvalidWorkload
from cluster_models.model.catalogue import catalogue_models
from cluster_models.training.framework_choices import Optimizer
from cluster_models.training.frameworks import framework
from cluster_models.training.workload import Sharding, TrainingWorkload
from solver.check import check_plan
from solver.costs.calibration import calibration_of
from solver.costs.layer_counts import all_layers
from solver.costs.local_sizes import local_sizes
from solver.costs.orthogonalisation import matrices_of, newton_schulz_s, orthogonalisation_s, orthogonalising
from solver.costs.parameters import sharing_ranks
from tests.solver.cost_cases import H100, LLAMA_70B, MIXTRAL, WORKLOAD, candidates, costs, memory
from tests.solver.problems import DENSE, EXACT, nodes, planned, problem

BRIDGE = framework("megatron-bridge-26.06")
ADAM = replace(WORKLOAD, framework=BRIDGE)
MUON = replace(ADAM, optimizer=Optimizer.MUON)
TABLE = LLAMA_70B.vocabulary * LLAMA_70B.hidden


def test_matrices_keep_one_moment_and_tables_two() -> None:
    """Four bytes less than Adam of every parameter outside embedding and head."""
    batch = candidates({"data": 8})
    adam, muon = (memory(batch, workload=each).optimizer_bytes[0, 0] for each in (ADAM, MUON))
    assert adam - muon == pytest.approx(4.0 * (LLAMA_70B.parameters() - 2 * TABLE) / 8)


def test_no_rank_owns_a_part_of_a_matrix() -> None:
    """On more ranks than matrices that of gate and up-projection stays, and its time."""
    many = candidates({"data": 512}, {"data": 4096})
    held = memory(many, workload=MUON).optimizer_bytes[:, 0]
    assert held == pytest.approx(8.0 * 2 * 8192 * 28672 + 4.0 * 2 * TABLE / np.array([512, 4096]))
    seconds = costs(many, workload=MUON).optimizer_s[:, 0]
    assert seconds[1] > 0.9 * newton_schulz_s(orthogonal(), 2.0 * 28672, 8192.0)


def test_lion_has_the_memory_of_muon_and_the_step_of_momentum() -> None:
    """Nothing is iterated; the bytes that a step moves are those of SGD, its matrices whole."""
    lion, sgd = (replace(ADAM, optimizer=each) for each in (Optimizer.LION, Optimizer.SGD))
    batch = candidates({"data": 8}, {"data": 4096})
    assert memory(batch, workload=lion).optimizer_bytes == pytest.approx(
        memory(batch, workload=MUON).optimizer_bytes
    )
    seconds = [costs(batch, workload=each).optimizer_s[:, 0] for each in (sgd, lion, MUON)]
    assert seconds[0][0] == pytest.approx(seconds[1][0])
    assert (seconds[1] < seconds[2]).all()


def test_adaptive_muon_has_the_memory_of_adam_and_scales_its_update() -> None:
    """Two moments everywhere; beside Muon's step 48 bytes of each parameter pass through memory."""
    batch = candidates({"data": 8})
    adaptive = replace(ADAM, optimizer=Optimizer.ADAPTIVE_MUON)
    held = [memory(batch, workload=each).optimizer_bytes[0, 0] for each in (adaptive, ADAM)]
    assert held[0] == pytest.approx(held[1])
    more = (costs(batch, workload=adaptive).optimizer_s - costs(batch, workload=MUON).optimizer_s)[0, 0]
    assert more == pytest.approx(48.0 * LLAMA_70B.parameters() / 8 / orthogonal().memory_bytes_per_s, rel=0.01)


def orthogonal():  # type: ignore[no-untyped-def] # noqa: ANN201
    return orthogonalising(H100, MUON.precision, calibration_of(H100, BRIDGE))


@pytest.mark.parametrize(("rows", "columns"), [(8192, 28672), (28672, 8192), (4096, 4096)])
def test_iterations_are_three_products_of_the_shorter_side(rows: int, columns: int) -> None:
    """Five times 4 m^2 n + 2 m^3 FLOP, either way round, at the rate of FP32 products and no faster."""
    chip, short = orthogonal(), min(rows, columns)
    flops = 5 * (4 * short**2 * max(rows, columns) + 2 * short**3)
    assert 1.0 < newton_schulz_s(chip, float(rows), float(columns)) * chip.matmul_flops / flops < 1.5


@pytest.mark.parametrize("tensor", [1, 8])
def test_iterations_take_the_share_that_its_author_states(tensor: int) -> None:
    """No more than 5 m / B of a step's FLOP for matrices with a side of m and B tokens (Jordan et al. 2024).

    Counted in seconds of the faster 16-bit products; cut over tensor ranks, matrices are narrower.
    """
    model = replace(LLAMA_70B, kv_heads=64)
    batch = candidates({"tensor": tensor})
    adam, muon = (costs(batch, model, each) for each in (ADAM, MUON))
    extra = float((muon.optimizer_s - adam.optimizer_s).sum())
    work = float((adam.forward_s + adam.backward_s).sum()) * WORKLOAD.global_batch
    ratio = H100.peak_flops[MUON.precision] / 494.5e12 / calibration_of(H100, BRIDGE).fp32_share
    bound = ratio * 5 * 8192 / (WORKLOAD.sequence_length * WORKLOAD.global_batch)
    assert 0.2 / tensor * bound < extra / work < 1.2 * bound


def test_matrices_hold_the_parameters_of_every_model() -> None:
    """Those of layers make up all of a model but embedding, head and vectors, to 2 %; each takes time."""
    calibration = calibration_of(H100, BRIDGE)
    batch = candidates({})
    sizes = local_sizes(batch, MUON, calibration)
    for name, model in catalogue_models().items():
        held = 0.0
        for kind, count in zip(model.layer_kinds, all_layers(model).tolist(), strict=True):
            own, experts = matrices_of(model, kind, sizes)
            copies = model.experts.count if model.experts else 0
            held += count * sum(np.max(rows) * np.max(columns) for rows, columns in own)
            held += count * copies * sum(np.max(rows) * np.max(columns) for rows, columns in experts)
        tables = model.vocabulary * model.hidden * (2 - model.tied_embeddings)
        assert held == pytest.approx(model.parameters() - tables, rel=0.02), name
        seconds = orthogonalisation_s(
            orthogonal(),
            model,
            sizes,
            all_layers(model)[None],
            stages=1,
            sharing=sharing_ranks(batch, BRIDGE),
        )
        assert seconds[0, 0] > 4.0 * 6.0 * held / orthogonal().memory_bytes_per_s, name


def test_experts_are_orthogonal_one_by_one() -> None:
    """Eight experts on a rank take eight times as long as one; ranks that hold copies share them out."""
    one, two, copies = costs(
        candidates({"data": 8, "expert": 8}, {"data": 8, "expert": 4}, {"data": 16, "expert": 8}), MIXTRAL, MUON
    ).optimizer_s[:, 0]
    assert two == pytest.approx(one, rel=0.02)  # twice as many, in two copies
    assert copies < one


@pytest.mark.parametrize("optimizer", [Optimizer.MUON, Optimizer.LION, Optimizer.ADAPTIVE_MUON])
def test_plans_shard_whole_matrices_and_are_checked(optimizer: Optimizer) -> None:
    """Under Megatron-Core 0.18 with its layer-wise optimizer; other frameworks are refused, and too few bytes."""
    pinned = {"tensor": 1, "pipeline": 1}
    case = problem(nodes(1), model=DENSE, framework=BRIDGE, optimizer=optimizer, pinned=pinned)
    found = planned(case, EXACT)
    assert found.configuration.sharding is Sharding.OPTIMIZER
    assert check_plan(found, case) == ()
    memory = found.memory[0]
    less = replace(found, memory=(replace(memory, optimizer_bytes=0.4 * memory.optimizer_bytes), *found.memory[1:]))
    assert any("optimizer states" in each for each in check_plan(less, case))
    with pytest.raises(InvalidWorkload, match=r"workload\.optimizer.*does not train with it"):
        TrainingWorkload(sequence_length=8, global_batch=8, optimizer=optimizer)
