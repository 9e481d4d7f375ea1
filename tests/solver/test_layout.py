"""Stage layers: the heaviest chunk is as light as a contiguous split allows."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.errors import InvalidWorkload
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import Experts
from cluster_models.remarks import remark
from cluster_models.training.frameworks import framework
from cluster_models.training.layer_splits import can_launch
from cluster_models.training.plan import Configuration, Degrees, RankOrder
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.check import check_plan
from solver.check.configuration import layer_violations
from solver.degrees.enumeration import enumerate_candidates
from solver.degrees.layout import (
    EVEN_TOLERANCE,
    _split,
    balanced_layout,
    chunk_layers,
    filled_stages,
    launchable_layout,
    layer_flops,
)
from tests.solver.problems import DENSE, SPARSE, nodes, planned, problem

IN_TURN = PipelineSchedule.ONE_F_ONE_B
ANY = Configuration(Degrees(), 1, Recompute.NONE, Sharding.NONE, RankOrder.DATA_BEFORE_PIPELINE, ((1,),))

MODELS = st.builds(
    lambda layers, vocabulary, experts: replace(
        DENSE, name="any", layers=layers, vocabulary=vocabulary, experts=experts
    ),
    st.integers(2, 9),
    st.sampled_from([1000, 32000, 256000]),
    st.one_of(
        st.none(),
        st.builds(
            Experts,
            count=st.just(8),
            active=st.integers(1, 4),
            hidden=st.just(8192),
            dense_layers=st.integers(0, 1),
        ),
    ),
)


def heaviest(model: Architecture, counts: list[int]) -> float:
    """FLOP of the heaviest chunk."""
    weights, head = layer_flops(model, 2048)
    ends = np.concatenate([[0], np.cumsum(counts)])
    chunks = [weights[a:b].sum() for a, b in pairwise(ends)]
    return float(max([*chunks[:-1], chunks[-1] + head]))


def splits(layers: int, chunks: int) -> list[list[int]]:
    """Every way to cut ``layers`` into ``chunks`` non-empty runs."""
    return [[b - a for a, b in pairwise((0, *cuts, layers))] for cuts in combinations(range(1, layers), chunks - 1)]


@given(MODELS, st.data())
def test_no_split_is_lighter(model: Architecture, data: st.DataObject) -> None:
    """Brute force over all contiguous splits, within the tolerance for keeping an even one."""
    chunks = data.draw(st.integers(1, model.layers))
    counts = [count for row in balanced_layout(model, 2048, chunks, 1) for count in row]
    assert sum(counts) == model.layers
    assert min(counts) >= 1
    best = min(heaviest(model, split) for split in splits(model.layers, chunks))
    even = len(set(counts)) == 1
    assert heaviest(model, counts) <= best * (1 + EVEN_TOLERANCE if even else 1 + 1e-9)


@given(MODELS, st.sampled_from([8, 9, 11, 12]), st.integers(1, 5), st.integers(1, 4))
def test_no_split_that_can_be_launched_is_lighter(
    model: Architecture, release: int, pipeline: int, virtual: int
) -> None:
    """Brute force over all splits that a release before layouts can be told; where there is none, none is made."""
    older = replace(framework("megatron-core-0.12"), megatron_core=release)
    if pipeline * virtual > model.layers or (pipeline == 1 and virtual > 1):
        return
    every = [
        rows
        for counts in splits(model.layers, pipeline * virtual)
        for rows in [tuple(tuple(counts[v * pipeline : (v + 1) * pipeline]) for v in range(virtual))]
        if can_launch(older, rows)
    ]
    found = launchable_layout(model, 2048, pipeline, virtual, older)
    assert (found is None) == (not every)
    if found is not None:
        assert found in every
        best = min(heaviest(model, [count for row in rows for count in row]) for rows in every)
        assert heaviest(model, [count for row in found for count in row]) <= best * (1 + EVEN_TOLERANCE + 1e-6)


@given(MODELS, st.integers(1, 5))
def test_nanotron_fills_stages_by_itself(model: Architecture, pipeline: int) -> None:
    """The checker takes one only of all splits, empty stages among them: the one that is planned."""
    nanotron = framework("nanotron-0.5")
    asked = problem(nodes(1), model=model, framework=nanotron)
    every = [counts for counts in product(range(model.layers + 1), repeat=pipeline) if sum(counts) == model.layers]
    taken = [
        counts
        for counts in every
        if not list(
            layer_violations(replace(ANY, degrees=Degrees(pipeline=pipeline), stage_layers=(counts,)), asked)
        )
    ]
    assert len(taken) == 1
    assert filled_stages(model, pipeline) in (None, taken[0])
    assert launchable_layout(model, 2048, pipeline, 1, nanotron) in (None, (taken[0],))
    assert launchable_layout(model, 2048, pipeline, 2, nanotron) is None


def test_a_plan_for_nanotron_has_its_layers_and_no_virtual_stages() -> None:
    """Its head is worth two layers: the last of four stages gets two less, where we would give all but one."""
    model = replace(DENSE, layers=32, vocabulary=131072)
    asked = problem(nodes(1, gpus=4), model=model, framework=framework("nanotron-0.5"), pinned={"pipeline": 4})
    found = planned(asked)
    assert found.configuration.stage_layers == (filled_stages(model, 4),)
    assert check_plan(found, asked) == ()
    assert remark("limit_layers_filled", framework="nanotron-0.5") in found.certificate.limits
    assert remark("limit_no_virtual_stages", framework="nanotron-0.5") in found.certificate.limits
    with pytest.raises(InvalidWorkload, match="one stage only"):
        planned(problem(nodes(1, gpus=4), framework=framework("nanotron-0.5"), pinned={"virtual_pipeline": 2}))


def test_releases_with_layouts_take_the_lightest_split() -> None:
    """32 layers in ten stages: 0.12 has no arguments for it, and no such candidate."""
    older, newer = framework("megatron-core-0.12"), framework("megatron-core-0.15")
    model = replace(DENSE, layers=32)
    assert launchable_layout(model, 2048, 2, 5, older) is None
    assert launchable_layout(model, 2048, 2, 5, newer) == balanced_layout(model, 2048, 2, 5)
    for used, sizes in ((older, {1, 2, 4, 8, 16}), (newer, set(range(1, 17)))):
        workload = TrainingWorkload(2048, 64, framework=used, pinned={"pipeline": 2, "tensor": 1, "micro_batch": 1})
        batch = enumerate_candidates(model, workload, gpus_per_node=2, nodes=1)
        assert set(batch.virtual_pipeline.tolist()) == sizes


@given(st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=2, max_size=8), st.sampled_from([0.0, 4.0]), st.data())
def test_a_limit_is_met_exactly_when_some_split_meets_it(
    weights: list[float], head: float, data: st.DataObject
) -> None:
    """Fair shares never talk the chunks before them into more than they can carry."""
    chunks = data.draw(st.integers(1, len(weights)))
    ends = np.concatenate([[0.0], np.cumsum(weights)])
    loads = [
        max(sum(weights[a:b]) + head * (b == len(weights)) for a, b in pairwise(np.cumsum([0, *split])))
        for split in splits(len(weights), chunks)
    ]
    limit = data.draw(st.sampled_from([*loads, min(loads) - 0.5]))
    counts = _split(ends, head, chunks, limit)
    assert (counts is None) == (min(loads) > limit)
    if counts is not None:
        assert sum(counts) == len(weights)
        assert loads[splits(len(weights), chunks).index(counts)] <= limit


def test_an_even_split_stays_where_it_is_nearly_as_good() -> None:
    """A model without a heavy head keeps equal stages, which need no layout flags."""
    light = replace(DENSE, layers=64, vocabulary=64)
    assert balanced_layout(light, 2048, 4, 2) == ((8, 8, 8, 8), (8, 8, 8, 8))


def test_a_heavy_head_takes_layers_off_the_last_chunk() -> None:
    """The output head weighs several layers here."""
    counts = balanced_layout(replace(DENSE, vocabulary=256000), 2048, 4, 1)[0]
    assert counts[-1] < counts[0]


def test_chunks_count_dense_and_sparse_layers() -> None:
    """One leading dense layer of four, cut 2 + 2."""
    model = replace(SPARSE, mlp_hidden=5632, experts=Experts(count=4, active=2, hidden=2816, dense_layers=1))
    assert chunk_layers(model, ((2, 2),), IN_TURN).tolist() == [[1, 1], [0, 2]]


def test_windowed_layers_of_either_mlp_are_kinds_of_their_own() -> None:
    """Four layers, windowed but the second and fourth, dense but the last two: dense twice, then sparse twice."""
    model = replace(
        SPARSE,
        mlp_hidden=5632,
        experts=Experts(count=4, active=2, hidden=2816, dense_layers=2),
        sliding_window=64,
        window_period=2,
    )
    assert chunk_layers(model, ((1, 3),), IN_TURN).tolist() == [[1, 0, 0, 0], [0, 1, 1, 1]]


@pytest.mark.parametrize("virtual", [1, 2, 4])
def test_rows_are_virtual_stages(virtual: int) -> None:
    """One row a virtual stage, one column a pipeline rank."""
    layout = balanced_layout(DENSE, 2048, 2, virtual)
    assert (len(layout), len(layout[0])) == (virtual, 2)
