"""Peaks of measured runs: counters, watched ranks, GPUs of several sizes, experts cut over tensor ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.published_memory import (
    memory_is_known,
    read_counter,
    read_expert_tensor,
    read_measured_stage,
    read_modules,
    read_offloaded_layers,
)
from cluster_models.calibration.training_run import MemoryCounter, NodeGroup, TrainingRun
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.model.architecture import Architecture
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK, framework
from cluster_models.training.plan import Configuration, Degrees, RankOrder
from cluster_models.training.workload import Recompute, RecomputeModule, Sharding
from solver.costs.calibration import calibration_of
from solver.run_memory import predict_counted_memory, predict_fits, predict_peak_memory
from tests.solver.cost_cases import H100, LLAMA_70B, MIXTRAL, WORKLOAD

NORM_AND_ACTIVATION = frozenset({RecomputeModule.LAYER_NORM, RecomputeModule.MOE_ACTIVATION})
ROW = {"source": "a page", "notes": "", "recompute": "", "tp": "2", "etp": "", "experts": "", "layers": "80"}


def run(degrees: Degrees, model: Architecture = LLAMA_70B) -> TrainingRun:
    """A run on H100 nodes with equal stages."""
    share = model.layers // degrees.pipeline
    return TrainingRun(
        name="run",
        architecture=model,
        workload=WORKLOAD,
        configuration=Configuration(
            degrees=degrees,
            micro_batch=1,
            recompute=Recompute.FULL,
            sharding=Sharding.OPTIMIZER,
            rank_order=RankOrder.DATA_BEFORE_PIPELINE,
            stage_layers=((share,) * degrees.pipeline,),
        ),
        gpu=H100,
        gpus_per_node=8,
        gpus_per_domain=8,
        network_bytes_per_s=50e9,
    )


def test_counters_differ_by_what_they_do_not_see() -> None:
    """The driver sees context and communicators, the allocator its fragments, tensors only themselves."""
    base = run(Degrees(tensor=8, pipeline=4, data=2))
    driver, reserved, allocated, formula = (
        predict_counted_memory(replace(base, memory_counter=counter))
        for counter in (
            MemoryCounter.DRIVER,
            MemoryCounter.RESERVED,
            MemoryCounter.ALLOCATED,
            MemoryCounter.FORMULA,
        )
    )
    calibration = calibration_of(H100, WORKLOAD.framework)
    assert driver == predict_peak_memory(base)
    assert driver - reserved == pytest.approx(calibration.runtime_bytes + 3 * calibration.group_bytes)
    assert formula < allocated < reserved


def test_a_watched_rank_shows_its_own_peak() -> None:
    """The fullest of them unless one is named, counted from the end where negative; later ones hold less."""
    base = run(Degrees(tensor=8, pipeline=4, data=2))
    peaks = [predict_counted_memory(replace(base, memory_stage=stage)) for stage in range(4)]
    assert predict_counted_memory(base) == max(peaks)
    assert predict_counted_memory(replace(base, memory_stage=-2)) == peaks[2] < peaks[1]


def test_every_gpu_kind_must_hold_the_rank_that_sits_on_it() -> None:
    """A stage that fits 80 GB does not fit the 16 GB of a T4 under the other stage."""
    base = run(Degrees(tensor=8, pipeline=2, data=1, context=2))
    assert predict_fits(base)
    mixed = replace(base, groups=(NodeGroup(H100, 16), NodeGroup(gpu_kind("T4"), 16)))
    assert not predict_fits(mixed)


def test_experts_cut_over_tensor_ranks_weigh_less() -> None:
    """Half of each expert's weights and gradients (6 bytes a parameter); their optimizer was shared out before."""
    whole, cut = (
        predict_counted_memory(replace(each, memory_counter=MemoryCounter.FORMULA, memory_stage=1))
        for each in (
            run(Degrees(tensor=2, pipeline=4, data=8, expert=4, expert_tensor=size), MIXTRAL) for size in (1, 2)
        )
    )
    assert whole - cut == pytest.approx(6 * 8 * MIXTRAL.expert_parameters())


@pytest.mark.parametrize(
    ("cells", "counter", "stage"),
    [
        ({}, MemoryCounter.DRIVER, None),
        ({"notes": "max_allocated (GiB) on the logging rank"}, MemoryCounter.ALLOCATED, -1),
        ({"notes": "ANALYTICAL in the paper (formula, first pipeline stage)"}, MemoryCounter.FORMULA, 0),
        ({"source": "pytorch/torchtitan benchmarks"}, MemoryCounter.RESERVED, None),
        ({"source": "functional_tests golden values"}, MemoryCounter.ALLOCATED, -1),
    ],
)
def test_the_counter_is_read_from_source_and_notes(
    cells: dict[str, str], counter: MemoryCounter, stage: int | None
) -> None:
    """And the rank that it watched."""
    assert (read_counter(ROW | cells), read_measured_stage(ROW | cells)) == (counter, stage)


@pytest.mark.parametrize(
    ("cells", "modules", "offloaded", "known"),
    [
        ({"recompute": "full"}, frozenset(), 0, True),
        ({"recompute": ""}, frozenset(), 0, False),
        ({"recompute": "selective:sometimes"}, frozenset(), 0, False),
        ({"recompute": "selective:layernorm+moe_act"}, NORM_AND_ACTIVATION, 0, True),
        ({"recompute": "selective:norm+act"}, NORM_AND_ACTIVATION, 0, True),
        ({"recompute": "none", "notes": "activation CPU offload of 20 layers; fast"}, frozenset(), 20, True),
        ({"recompute": "full", "notes": "CPU checkpointing variants"}, frozenset(), 80, True),
    ],
)
def test_recomputed_modules_and_offloaded_layers_are_read(
    cells: dict[str, str], modules: frozenset[RecomputeModule], offloaded: int, known: bool
) -> None:
    """A policy that is not understood cannot be judged."""
    assert (read_modules(ROW | cells), read_offloaded_layers(ROW | cells)) == (modules, offloaded)
    assert memory_is_known(ROW | cells) is known


def test_megatron_cuts_experts_as_the_rest_unless_told() -> None:
    """Its scripts' default; NVIDIA's recipes state 1, and dense models have nothing to cut."""
    sparse = ROW | {"experts": "8"}
    assert read_expert_tensor(sparse, DEFAULT_FRAMEWORK) == 2
    assert read_expert_tensor(sparse | {"etp": "1"}, DEFAULT_FRAMEWORK) == 1
    assert read_expert_tensor(sparse, framework("megatron-bridge-26.02")) == 1
    assert read_expert_tensor(ROW, DEFAULT_FRAMEWORK) == 1
