"""Settings of the framework that the planner chooses: those of all that make the fastest plan, at their price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidWorkload
from cluster_models.remarks import remark
from cluster_models.training.framework_choices import CudaGraphs, ExpertDispatch, FreeSetting
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK, framework
from cluster_models.training.free_settings import first_codes, offered, that_matter
from cluster_models.training.plan import Configuration, Degrees, RankOrder
from cluster_models.training.run_settings import VALUES, RunSettings, leaner, settings_of, switches
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import Recompute, Sharding
from solver.check.configuration import configuration_violations
from solver.costs.memory import StageMemoryParts
from solver.degrees.priced import price_candidates
from solver.problem import PlanningProblem
from tests.solver.cost_cases import LLAMA_70B, WORKLOAD, behaviour, candidates, memory
from tests.solver.problems import DENSE, SPARSE, fabrics_of, nodes, planned, problem

BRIDGE = framework("megatron-bridge-25.11")
ALL = tuple(FreeSetting)
ALONE = Configuration(
    Degrees(), 1, Recompute.NONE, Sharding.OPTIMIZER, RankOrder.DATA_BEFORE_PIPELINE, ((SPARSE.layers,),)
)
EVERYTHING = RunSettings(True, True, CudaGraphs.PARTIAL, ExpertDispatch.DEEPEP)
SPACES: Mapping[str, PlanningProblem] = {
    "tensor ranks": problem(
        nodes(2, gpus=2), global_batch=4, free_settings=(FreeSetting.OVERLAP_TENSOR,), recompute=tuple(Recompute)
    ),
    "short of memory": problem(
        nodes(1, gpus=4),
        global_batch=4,
        free_settings=(FreeSetting.OVERLAP_TENSOR, FreeSetting.CUDA_GRAPHS),
        recompute=tuple(Recompute),
        memory_headroom=0.88,
    ),
    "graphs larger than buffers": problem(
        nodes(1, gpus=4),
        model=replace(DENSE, layers=32),
        framework=framework("megatron-core-0.15"),
        sequence_length=8192,
        global_batch=4,
        free_settings=(FreeSetting.OVERLAP_TENSOR, FreeSetting.CUDA_GRAPHS),
        recompute=tuple(Recompute),
        memory_headroom=0.852,
        pinned={"tensor": 4, "pipeline": 1, "micro_batch": 1},
    ),
    "whole layers again": problem(
        nodes(1, gpus=2), global_batch=4, free_settings=(FreeSetting.CUDA_GRAPHS,), recompute=(Recompute.FULL,)
    ),
    "experts": problem(
        nodes(1, gpus=4, gpu="B200-SXM-180GB"),
        model=SPARSE,
        framework=BRIDGE,
        global_batch=4,
        free_settings=ALL,
        recompute=(Recompute.NONE, Recompute.FULL),
    ),
}


def as_given(asked: PlanningProblem) -> list[PlanningProblem]:
    """The problem once for each way to have the settings that it leaves free, none of them free any more."""
    offers = offered(asked.architecture, asked.workload)
    fixed = replace(asked, workload=replace(asked.workload, free_settings=()))
    chosen = (RunSettings(**dict(zip(offers, values, strict=True))) for values in product(*offers.values()))
    return [fixed.under(settings) for settings in chosen]


def fastest(asked: PlanningProblem) -> float:
    """Seconds that no candidate that fits goes below."""
    return float(price_candidates(asked, fabrics_of(asked)).bound_s.min())


@pytest.mark.parametrize("name", SPACES)
def test_the_planner_finds_what_the_best_of_all_settings_given_one_by_one_does(name: str) -> None:
    """Settings that spend memory are tried at their fastest first, others where that does not fit."""
    asked = SPACES[name]
    assert fastest(asked) == pytest.approx(min(map(fastest, as_given(asked))), rel=1e-12)


def test_a_candidate_counts_once_whatever_its_settings() -> None:
    """One that fits with leaner settings alone is not among those that do not fit."""
    asked = SPACES["graphs larger than buffers"]
    priced = price_candidates(asked, fabrics_of(asked))
    assert (priced.total, priced.infeasible) == (1, 0)
    assert len(priced) == 2


def test_a_choice_that_a_framework_lacks_is_not_made_for_memory() -> None:
    """Between graphs of the whole iteration and of parts of layers, none is not a choice."""
    only = replace(framework("megatron-bridge-26.06"), graph_captures=(CudaGraphs.PARTIAL,))
    found = leaner(RunSettings(cuda_graphs=CudaGraphs.FULL).code, only)
    assert [settings_of(code).cuda_graphs for code in found] == [CudaGraphs.PARTIAL]


def test_graphs_given_by_hand_may_be_left_for_whole_layers_again() -> None:
    """Full recomputation alone is not a contradiction where graphs of parts of layers are free to go."""
    known = replace(framework("megatron-core-0.15"), cuda_graphs=CudaGraphs.PARTIAL)
    asked = SPACES["whole layers again"]
    plan = planned(replace(asked, workload=replace(asked.workload, framework=known)))
    assert plan.configuration.settings == RunSettings(cuda_graphs=CudaGraphs.NONE)
    assert remark("limit_settings", framework=known.name, free=("cuda_graphs",)) in plan.certificate.limits


def test_where_memory_is_short_buffers_are_given_up_before_layers_run_again() -> None:
    """Some candidates fit without user buffers alone, and have a row for that."""
    asked = SPACES["short of memory"]
    priced = price_candidates(asked, fabrics_of(asked))
    fits = priced.excess_bytes <= 0
    off = np.array([settings_of(code).overlap_tensor is False for code in priced.batch.settings.tolist()])
    assert (fits & off & (priced.batch.recompute == 0)).any()
    assert not (off & (priced.batch.tensor == 1)).any()


@pytest.mark.parametrize(
    ("precision", "per_element"), [(Precision.BF16, 20.0), (Precision.FP8, 14.0), (Precision.NVFP4, 0.0)]
)
def test_user_buffers_hold_a_sequence_for_each_of_ten_products(precision: Precision, per_element: float) -> None:
    """Six of ten buffers have the format of the products; NVFP4 has none, a single tensor rank needs none."""
    work = replace(WORKLOAD, precision=precision)

    def held(on: bool, tensor: int) -> float:
        known = behaviour(overlap_tensor=on)
        return float(memory(candidates({"tensor": tensor}), LLAMA_70B, work, 4, known).communication_bytes[0, 0])

    assert held(True, 8) - held(False, 8) == pytest.approx(per_element * 8192 * 8192)
    assert held(True, 1) == held(False, 1)


def test_asynchronous_tensor_ranks_of_pytorch_take_two_shards() -> None:
    """Symmetric memory has a rank's part of a sequence twice."""
    plain, chunked = (
        memory(candidates({"tensor": 8}), calibration=behaviour(overlap_tensor=on, overlap_tensor_backward=False))
        for on in (False, True)
    )
    more = chunked.communication_bytes - plain.communication_bytes
    assert more == pytest.approx(2.0 * 2.0 * 8192 * 8192 / 8)


def test_graphs_keep_inputs_and_outputs_of_each_layer_in_flight() -> None:
    """Ten layers a stage, eight micro-batches in flight on the first of eight: 160 parts of a sequence."""
    row = {"tensor": 4, "pipeline": 8}

    def account(graphs: CudaGraphs) -> StageMemoryParts:
        return memory(candidates(row), calibration=behaviour(cuda_graphs=graphs))

    more = account(CudaGraphs.PARTIAL).activations_bytes - account(CudaGraphs.NONE).activations_bytes
    assert more[0, 0] == pytest.approx(2 * 10 * 8 * 2.0 * 8192 * 8192 / 4)
    assert more[0, -1] == pytest.approx(more[0, 0] / 8)


def test_what_is_chosen_is_priced_as_if_the_framework_had_it() -> None:
    """A column of the table says the same as a fact of the framework."""
    chosen = RunSettings(overlap_tensor=True, cuda_graphs=CudaGraphs.PARTIAL)
    row = {"tensor": 8, "pipeline": 2}
    column = memory(candidates(row | {"settings": chosen.code}))
    fact = memory(candidates(row), calibration=behaviour(**chosen.chosen))
    assert np.array_equal(column.total_bytes, fact.total_bytes)


def test_codes_name_settings_and_the_leaner_ones() -> None:
    """Every code is that of its settings; overlapped expert exchange is no matter of memory."""
    for values in product(*((None, *each) for each in VALUES.values())):
        settings = RunSettings(**dict(zip(VALUES, values, strict=True)))
        assert settings_of(settings.code) == settings
    spends = RunSettings(overlap_tensor=True, expert_overlap=True, cuda_graphs=CudaGraphs.PARTIAL)
    found = {str(settings_of(code)) for code in leaner(spends.code, BRIDGE)}
    assert found == {
        "overlap_tensor:true+expert_overlap:true+cuda_graphs:none",
        "overlap_tensor:false+expert_overlap:true+cuda_graphs:partial",
        "overlap_tensor:false+expert_overlap:true+cuda_graphs:none",
    }


def test_settings_that_change_nothing_are_left_to_the_framework() -> None:
    """One tensor rank overlaps nothing, one expert rank dispatches nothing."""
    offers = offered(SPARSE, replace(WORKLOAD, framework=BRIDGE, free_settings=ALL))
    (single,) = map(settings_of, first_codes(offers, expert=1))
    alone = replace(ALONE, settings=single)
    assert str(that_matter(alone)) == "cuda_graphs:partial"
    assert str(that_matter(replace(alone, settings=EVERYTHING))) == "cuda_graphs:partial"
    several = replace(alone, degrees=Degrees(tensor=2, data=2, expert=2), settings=EVERYTHING)
    assert that_matter(several) == EVERYTHING
    assert that_matter(replace(several, recompute=Recompute.FULL)).expert_overlap is None
    assert that_matter(replace(several, schedule=PipelineSchedule.ZB_V)).overlap_tensor is None
    assert len(first_codes(offers, expert=2)) == 2 * len(ExpertDispatch)


def test_a_framework_without_the_switch_refuses() -> None:
    """The message names the setting and what the framework has."""
    with pytest.raises(InvalidWorkload, match=r"leaves no choice there .*expert_overlap.*; it has overlap_tensor"):
        replace(WORKLOAD, framework=DEFAULT_FRAMEWORK, free_settings=(FreeSetting.EXPERT_OVERLAP,))
    assert not switches(framework("nanotron-0.5"))


def test_a_plan_says_what_was_chosen_and_the_checker_agrees() -> None:
    """The plan of a space with free settings is sound; the same was not free to choose where nothing is."""
    asked = SPACES["tensor ranks"]
    pinned = replace(asked.workload, pinned={"tensor": 2})
    plan = planned(replace(asked, workload=pinned))
    assert plan.configuration.settings == RunSettings(overlap_tensor=True)
    bound = replace(asked, workload=replace(asked.workload, free_settings=()))
    assert any("not free" in each for each in configuration_violations(plan.configuration, bound))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"expert_overlap": True}, "no expert_overlap true to choose"),
        ({"cuda_graphs": CudaGraphs.FULL}, "no cuda_graphs full to choose"),
        ({"overlap_tensor": True}, "split a sequence"),
        ({"expert_dispatch": ExpertDispatch.DEEPEP}, "No tokens travel"),
    ],
)
def test_the_checker_knows_what_cannot_be_chosen(settings: dict[str, Any], words: str) -> None:
    """Switches that the framework lacks, and those that a single tensor rank has no use for."""
    asked = SPACES["tensor ranks"]
    plan = planned(replace(asked, workload=replace(asked.workload, pinned={"tensor": 1})))
    chosen = replace(plan.configuration, settings=RunSettings(**settings))
    assert any(words in each for each in configuration_violations(chosen, asked))
