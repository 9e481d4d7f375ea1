"""Activations in the nodes' memory, layer by layer: sums by hand, a published recipe, every number tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.hosts import HostMemory
from cluster_models.errors import InvalidConfiguration, InvalidInput
from cluster_models.model.catalogue import catalogue_model
from cluster_models.training.frameworks import framework
from cluster_models.training.workload import Offload, Recompute, Sharding, TrainingWorkload
from cluster_models.units import GBYTE, GIB
from solver.candidates import SHARDING_CODES, select_rows
from solver.check import check_plan
from solver.check.configuration import configuration_violations
from solver.costs.host_offload import LINK_SHARE, waiting_activations_s
from solver.costs.memory import stage_memory
from solver.degrees.layout import chunk_layers
from solver.degrees.priced import price_candidates
from solver.degrees.stage_costs import excess_bytes_of, kind_rows
from solver.predict import predict
from solver.problem import PlanningProblem
from tests.solver.cost_cases import candidates, even_layers, memory
from tests.solver.problems import DENSE, EXACT, fabrics_of, nodes, planned, problem

BRIDGE = framework("megatron-bridge-26.02")
BOTH = (Offload.NONE, Offload.ACTIVATIONS)
PARAMETERS = SHARDING_CODES.index(Sharding.PARAMETERS)


def crowded(**changes: Any) -> PlanningProblem:
    """A micro-batch that does not fit on two GPUs with nothing run again, and what they may do about that."""
    hosts = [replace(node, host=HostMemory(512 * GIB, 1000 * GBYTE, 450 * GBYTE)) for node in nodes(1, gpus=2)]
    return problem(
        hosts,
        model=replace(DENSE, layers=6),
        **{
            "framework": BRIDGE,
            "offload": BOTH,
            "sequence_length": 4096,
            "memory_headroom": 0.85,
            "pinned": {"pipeline": 1, "tensor": 1, "context": 1, "micro_batch": 4},
        }
        | changes,
    )


def test_travel_is_hidden_by_the_passes_up_to_their_length() -> None:
    """8 GB over a link of 40 GB/s take 0.2 s each way: 0.05 s more than a forward of 0.15 s."""
    host = replace(gpu_kind("H100-SXM5-80GB").host_share, link_bytes_per_s=40 * GBYTE / LINK_SHARE)
    ways = {"forward_s": np.array([[0.15]]), "backward_s": np.array([[0.3]])}
    assert waiting_activations_s(host, np.array([[8.0 * GBYTE]]), **ways) == pytest.approx(0.05)


def test_layers_that_wait_leave_all_but_the_one_on_its_way() -> None:
    """With 40 of 80 layers waiting half of the bytes lie in the node, and 39 / 80 of them leave the GPU."""
    model, workload = catalogue_model("llama-3-70b"), TrainingWorkload(8192, 128, framework=BRIDGE)
    rows = [{"data": 64, "sharding": PARAMETERS, "offloaded_layers": count} for count in (0, 1, 40)]
    held = memory(candidates(*rows), model, workload)
    kept = held.activations_bytes[:, 0]
    layers = held.host_bytes[2, 0] / 40 * 80
    assert kept[0] == pytest.approx(kept[1])
    assert kept[0] - kept[2] == pytest.approx(39 / 80 * layers)
    assert kept[0] > layers > 0.9 * kept[0]


def test_a_published_recipe_fits_with_the_layers_that_it_offloads() -> None:
    """Megatron-Bridge trains Llama 3 70B on 64 GB300 by FSDP with micro-batch 2 and 30 layers offloaded."""
    model = catalogue_model("llama-3-70b")
    workload = TrainingWorkload(8192, 128, framework=BRIDGE, memory_headroom=0.0)
    rows = [
        {"data": 64, "micro_batch": 2, "sharding": PARAMETERS, "offloaded_layers": count} for count in (0, 20, 30)
    ]
    held = stage_memory(
        candidates(*rows),
        even_layers(model, 1),
        architecture=model,
        workload=workload,
        gpu=gpu_kind("GB300"),
        micro_batches=np.ones(len(rows), dtype=np.int64),
    )
    assert ((held.total_bytes - held.limit_bytes)[:, 0] <= 0).tolist() == [False, False, True]


def test_the_fewest_layers_with_which_a_candidate_fits_wait() -> None:
    """With one less it does not fit; what fits without offloads none, what fits with some has a row."""
    asked = crowded()
    (fabric,) = fabrics_of(asked)
    priced = price_candidates(asked, [fabric])
    layers = np.array([[asked.architecture.layers]])
    saved = 0
    for candidate in np.unique(priced.candidate).tolist():
        rows = np.flatnonzero(priced.candidate == candidate)
        plain = select_rows(priced.batch, rows[:1])
        zero = np.zeros(1, dtype=np.int64)
        plain = replace(plain, recompute=zero, modules=zero, recompute_layers=zero)
        fits = [
            np.max(
                excess_bytes_of(
                    asked,
                    fabric.kinds,
                    replace(plain, offloaded_layers=zero + count),
                    chunk_layers(asked.architecture, ((int(layers[0, 0]),),), plain.runs),
                    kind_rows(plain),
                    domain=fabric.gpus_per_unit,
                )
            )
            <= 0
            for count in range(asked.architecture.layers)
        ]
        least = fits.index(True) if any(fits) else 0
        found = priced.batch.offloaded_layers[rows]
        assert sorted(set(found.tolist()) - {0}) == [least] * (least > 0)
        saved += least > 0
    assert saved > 0


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"pinned": {"offloaded_layers": 2}}, {2}),
        ({"forbidden": {"offloaded_layers": (0, 1, 4)}}, {2, 5}),
        ({"forbidden": {"offloaded_layers": (0, 1, 2, 4)}}, {3, 5}),
        ({"pinned": {"offloaded_layers": 0}}, {0}),
    ],
)
def test_numbers_of_layers_are_pinned_and_forbidden(asked: dict[str, Any], found: set[int]) -> None:
    """The fewest of those allowed that fit, or the most where none does: also of what would fit without."""
    whole = crowded(**{"pinned": {}} | asked)
    rows = price_candidates(whole, fabrics_of(whole))
    assert set(rows.batch.offloaded_layers.tolist()) == found
    assert (rows.excess_bytes <= 0).any()
    if 0 not in found:
        assert (rows.batch.pipeline == 1).all()
        assert not rows.batch.recompute.any()
        assert len(np.unique(rows.candidate)) == len(rows)


def test_a_plan_keeps_the_number_that_is_pinned() -> None:
    """And passes the check, which refuses another."""
    pinned = {"pipeline": 1, "tensor": 1, "context": 1, "micro_batch": 1, "offloaded_layers": 3}
    asked = crowded(pinned=pinned)
    found = planned(asked, EXACT)
    assert found.configuration.offloaded_layers == 3
    assert check_plan(found, asked) == ()
    other = replace(found, configuration=replace(found.configuration, offloaded_layers=2))
    assert any("offloaded_layers is 2" in line for line in check_plan(other, asked))


@pytest.mark.parametrize(
    ("changes", "problem_found"),
    [
        ({"pinned": {"offloaded_layers": 6}}, "below the 6 layers"),
        ({"pinned": {"offloaded_layers": 1}, "offload": (Offload.NONE,)}, "offload activations"),
        ({"pinned": {"offloaded_layers": 1, "pipeline": 2}}, "pipeline 1"),
        ({"pinned": {"offloaded_layers": 1}, "recompute": (Recompute.FULL,)}, "recompute none"),
        (
            {"forbidden": {"offloaded_layers": (0,)}, "framework": framework("megatron-core-0.12")},
            "is not offered by",
        ),
    ],
)
def test_numbers_that_cannot_be_are_refused(changes: dict[str, Any], problem_found: str) -> None:
    """With the field, before anything is priced."""
    with pytest.raises(InvalidInput, match=problem_found) as caught:
        planned(crowded(**changes))
    assert "offloaded_layers" in str(caught.value)


def test_a_plan_offloads_where_that_is_faster_than_running_again() -> None:
    """It passes the check, costs no more than the best without, and is predicted as it was planned."""
    asked = crowded(recompute=(Recompute.NONE, Recompute.FULL))
    found = planned(asked, EXACT)
    assert found.configuration.offloaded_layers > 0
    assert found.configuration.recompute is Recompute.NONE
    assert min(memory.host_bytes for memory in found.memory) > 0
    assert check_plan(found, asked) == ()
    without = planned(replace(asked, workload=replace(asked.workload, offload=(Offload.NONE,))), EXACT)
    assert found.time.step_s < without.time.step_s
    again = predict(asked, found.configuration, hosts=found.placement.hosts, gpus_per_node=2)
    assert again.time.step_s == pytest.approx(found.time.step_s)
    told = replace(found, memory=tuple(replace(memory, host_bytes=1.0) for memory in found.memory))
    assert any("in the node's memory" in line for line in check_plan(told, asked))


def test_what_cannot_wait_is_refused() -> None:
    """A pipeline, recomputation, all layers, a framework without, and nothing beside."""
    asked = crowded()
    configuration = planned(asked, EXACT).configuration
    for wrong in ({"offloaded_layers": 6}, {"recompute": Recompute.FULL, "recompute_layers": 0}):
        with pytest.raises(InvalidConfiguration, match="offloaded_layers"):
            replace(configuration, **{"offloaded_layers": 1} | wrong)
    other = replace(asked, workload=replace(asked.workload, framework=framework("megatron-core-0.12")))
    offloading = replace(configuration, recompute=Recompute.NONE, recompute_modules=frozenset(), offloaded_layers=1)
    assert any("Activations" in line for line in configuration_violations(offloading, other))
    assert not price_candidates(other, fabrics_of(other)).batch.offloaded_layers.any()
    with pytest.raises(InvalidInput, match="add none"):
        planned(crowded(offload=(Offload.ACTIVATIONS,)))
