"""Candidates: every one is legal by the independent checker, and no legal one is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.training.frameworks import DEFAULT_FRAMEWORK
from cluster_models.training.interleaving import Interleaving
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.answer.assemble import configuration_of
from solver.check.configuration import configuration_violations, layer_violations
from solver.degrees.enumeration import enumerate_candidates
from solver.problem import PlanningProblem
from tests.solver.naive import legal_degrees
from tests.solver.problems import DENSE, SPARSE, every_candidate, nodes, problem

WORKLOADS = st.builds(
    TrainingWorkload,
    sequence_length=st.sampled_from([2048, 1536, 24, 12]),
    global_batch=st.sampled_from([4, 6, 12, 16]),
    recompute=st.just((Recompute.NONE, Recompute.FULL)),
    sharding=st.sampled_from(
        [
            (Sharding.NONE,),
            (Sharding.OPTIMIZER,),
            (Sharding.PARAMETERS,),
            (Sharding.NONE, Sharding.OPTIMIZER),
            tuple(Sharding),
        ]
    ),
    pinned=st.sampled_from([{}, {"tensor": 2}, {"pipeline": 2}, {"micro_batch": 2}, {"virtual_pipeline": 2}]),
    forbidden=st.sampled_from([{}, {"context": (2, 4)}, {"expert": (1,), "micro_batch": (1,)}]),
    max_gpus=st.sampled_from([None, 4, 5]),
    framework=st.sampled_from(
        [
            DEFAULT_FRAMEWORK,
            replace(DEFAULT_FRAMEWORK, fills_pipeline=True),
            *(replace(DEFAULT_FRAMEWORK, megatron_core=0, interleaving=kind) for kind in Interleaving),
        ]
    ),
)
SHAPES = st.sampled_from([(1, 1), (3, 1), (3, 2), (2, 3), (2, 4)])


def rows(asked: PlanningProblem, count: int, gpus: int) -> list[tuple[int, ...]]:
    """All candidates of one fabric as tuples."""
    batch = enumerate_candidates(asked.architecture, asked.workload, gpus_per_node=gpus, nodes=count)
    return sorted(zip(*(getattr(batch, name).tolist() for name in batch.__slots__), strict=True))


@settings(max_examples=30)
@given(SHAPES, WORKLOADS, st.sampled_from([DENSE, SPARSE, replace(DENSE, heads=12, kv_heads=3)]))
def test_nothing_legal_is_missing_and_nothing_comes_twice(
    shape: tuple[int, int], workload: TrainingWorkload, model: object
) -> None:
    """The table equals what trying every combination leaves."""
    count, gpus = shape
    asked = replace(problem(nodes(count, gpus=gpus), model=model), workload=workload)  # type: ignore[arg-type]  # sampled
    names = list(asked_names(asked, gpus, count))
    expected = sorted(
        tuple(degrees.get(name, 0) for name in names)
        for degrees in legal_degrees(asked.architecture, workload, gpus_per_node=gpus, nodes=count)
    )
    found = rows(asked, count, gpus)
    assert len(found) == len(set(found))
    if not _one_of_equal_shardings(workload):
        assert found == expected
    assert len(found) == len(expected)


def asked_names(asked: PlanningProblem, gpus: int, count: int) -> tuple[str, ...]:
    """Columns of a batch in order."""
    batch = enumerate_candidates(asked.architecture, asked.workload, gpus_per_node=gpus, nodes=count)
    return tuple(type(batch).__slots__)


def _one_of_equal_shardings(workload: TrainingWorkload) -> bool:
    """Where several shardings come to the same, which of them stands in the table is free."""
    return len(workload.sharding) > 1


@settings(max_examples=12)
@given(SHAPES, WORKLOADS, st.sampled_from([DENSE, SPARSE]))
def test_every_candidate_passes_the_independent_checker(
    shape: tuple[int, int], workload: TrainingWorkload, model: object
) -> None:
    """Degrees, batch, limits and layers of each."""
    count, gpus = shape
    asked = replace(problem(nodes(count, gpus=gpus), model=model), workload=workload)  # type: ignore[arg-type]  # sampled
    for candidate in every_candidate(asked, step=5).values():
        configuration = configuration_of(candidate)
        assert list(configuration_violations(configuration, asked)) == []
        assert list(layer_violations(configuration, asked)) == []


def test_optimizer_sharding_alone_does_not_rule_out_single_replicas() -> None:
    """A pipeline over all GPUs with data size 1 stays legal where only the distributed optimizer is allowed."""
    asked = problem(nodes(4, gpus=1))
    batch = enumerate_candidates(asked.architecture, asked.workload, gpus_per_node=1, nodes=4)
    assert ((batch.pipeline == 4) & (batch.data == 1)).any()


def test_parameter_sharding_comes_without_a_pipeline() -> None:
    """Megatron's FSDP knows no pipeline."""
    asked = problem(nodes(2, gpus=2), sharding=(Sharding.PARAMETERS,))
    batch = enumerate_candidates(asked.architecture, asked.workload, gpus_per_node=2, nodes=2)
    assert len(batch) > 0
    assert (batch.pipeline == 1).all()


@pytest.mark.parametrize("gpus", [1, 3, 6, 8])
def test_worlds_are_whole_nodes_or_a_divisor_of_one(gpus: int) -> None:
    """Nothing is left over on a node unless the plan has one node only."""
    asked = problem(nodes(3, gpus=gpus), global_batch=12)
    batch = enumerate_candidates(asked.architecture, asked.workload, gpus_per_node=gpus, nodes=3)
    worlds = set((batch.tensor * batch.context * batch.data * batch.pipeline).tolist())
    assert all(world % gpus == 0 or gpus % world == 0 for world in worlds)
