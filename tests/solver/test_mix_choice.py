"""Memory options by candidate: the quickest mix that fits, and nothing where nothing is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidWorkload
from cluster_models.model.architecture import Experts, LatentAttention
from cluster_models.remarks import remark
from cluster_models.training.frameworks import framework
from cluster_models.training.workload import Recompute, RecomputeModule
from solver.answer.coverage import limits
from solver.candidates import FloatArray, recomputation_of
from solver.check import check_plan
from solver.degrees.layout import Layout, chunk_layers
from solver.degrees.memory_mixes import mixes_of
from solver.degrees.mix_rivals import least_of
from solver.degrees.priced import price_candidates
from solver.degrees.pricing import optimistic_step_s
from solver.degrees.stage_costs import costs_of, excess_bytes_of, kind_rows, micro_batches_of
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem
from tests.solver.cost_cases import candidates
from tests.solver.naive import best_plan
from tests.solver.naive_mixes import every_mix
from tests.solver.problems import DENSE, EXACT, SPARSE, fabrics_of, nodes, planned, problem, row

LATENT = replace(
    DENSE,
    name="tiny-latent",
    layers=4,
    latent_attention=LatentAttention(256, 128, 32, 64, 64),
    experts=Experts(count=4, active=2, hidden=1408, shared_hidden=1408, dense_layers=1),
)
"""Like DeepSeek-V3: latent attention, a dense layer, then experts with a shared one."""
BRIDGE = framework("megatron-bridge-26.02")
ANY = {"recompute": tuple(Recompute)}
TIGHT: Mapping[str, PlanningProblem] = {
    "dense": problem(nodes(2, gpus=2), global_batch=4, memory_headroom=0.9, **ANY),
    "experts": problem(nodes(2, gpus=2), model=SPARSE, global_batch=4, memory_headroom=0.91, **ANY),
    "latent": problem(
        nodes(1, gpus=2),
        model=LATENT,
        global_batch=4,
        framework=BRIDGE,
        memory_headroom=0.91,
        pinned={"tensor": 1},
        **ANY,
    ),
    "beside compute": problem(
        nodes(1, gpus=4, gpu="B200-SXM-180GB"),
        model=LATENT,
        global_batch=4,
        framework=replace(BRIDGE, expert_overlap=True),
        precision=Precision.MXFP8,
        memory_headroom=0.96,
        **ANY,
    ),
    "modules alone": problem(
        nodes(1, gpus=2),
        model=LATENT,
        global_batch=4,
        framework=BRIDGE,
        memory_headroom=0.91,
        recompute=(Recompute.SELECTIVE,),
        recompute_modules=(RecomputeModule.MLP, RecomputeModule.MOE_ACTIVATION, RecomputeModule.LAYER_NORM),
    ),
    "other schedules": problem(
        nodes(1, gpus=2),
        global_batch=4,
        framework=framework("torchtitan-2025"),
        memory_headroom=0.88,
        pinned={"pipeline": 2},
        **ANY,
    ),
    "two layers of each chunk": problem(
        nodes(1, gpus=2), global_batch=4, memory_headroom=0.86, pinned={"recompute_layers": 2}, **ANY
    ),
}


def bounds_by_mix(asked: PlanningProblem, fabric: Fabric, codes: Mapping[str, int], layout: Layout) -> FloatArray:
    """Optimistic steps of a candidate under every recomputation that the checker allows and that fits."""
    every = candidates(*({**codes, **mix} for mix in every_mix(asked)))
    layers = chunk_layers(asked.architecture, layout, every.runs)
    excess = excess_bytes_of(asked, fabric.kinds, every, layers, kind_rows(every), domain=fabric.gpus_per_unit)
    batch = every.take(excess.max(axis=1) <= 0)
    if not len(batch):
        return np.empty(0)
    costs = costs_of(asked, fabric, batch, layers, kind_rows(batch))
    count = micro_batches_of(batch, asked.workload)
    return optimistic_step_s(batch, costs, count, fabric, kind_rows(batch), framework=asked.workload.framework)


@pytest.mark.parametrize("case", TIGHT)
def test_each_candidate_has_its_quickest_mix(case: str) -> None:
    """By trying all of them on it: none that fits is quicker, and where none does no row fits."""
    asked = TIGHT[case]
    usable = fabrics_of(asked)
    priced = price_candidates(asked, usable)
    chosen = {recomputation_of(priced.batch, index) for index in np.flatnonzero(priced.excess_bytes <= 0)}
    assert len(chosen) > 1 or case.startswith("two layers")
    for candidate in np.unique(priced.candidate)[::3]:
        rows = np.flatnonzero(priced.candidate == candidate)
        first = int(rows[0])
        codes = {name: int(getattr(row(priced.batch, first), name)[0]) for name in priced.batch.__slots__}
        every = bounds_by_mix(asked, usable[priced.fabric[first]], codes, priced.staging_of(first).layout)
        assert (priced.excess_bytes[rows] <= 0).all() == (len(every) > 0)
        if len(every):
            assert priced.bound_s[rows].min() == pytest.approx(every.min(), rel=1e-9)


@pytest.mark.parametrize("case", ["dense", "modules alone", "two layers of each chunk"])
def test_the_plan_is_the_best_of_all_mixes_and_hosts(case: str) -> None:
    """Equal to trying every degree, every recomputation and every order of hosts, and sound by the checker."""
    asked = TIGHT[case]
    found = planned(asked, EXACT)
    best, fitting = best_plan(asked)
    proof = found.certificate
    assert proof.objective == pytest.approx(best, rel=1e-9)
    assert proof.bound == pytest.approx(best, rel=1e-6)
    assert proof.candidates_total - proof.candidates_infeasible == fitting
    assert check_plan(found, asked) == ()


def test_nothing_is_recomputed_where_all_fits() -> None:
    """Every option costs time."""
    asked = problem(nodes(2, gpus=2), **ANY)
    priced = price_candidates(asked, fabrics_of(asked))
    assert not priced.batch.recompute.any()
    assert len(priced) == priced.total


def test_frameworks_are_offered_what_they_have() -> None:
    """Modules since Megatron-Core 0.12, shared experts since 0.14, and torchtitan's own choice."""

    def modules(name: str) -> set[frozenset[RecomputeModule]]:
        asked = problem(nodes(1), model=LATENT, framework=framework(name), recompute=(Recompute.SELECTIVE,))
        batch = [candidates({"recompute": mix.recompute, "modules": mix.modules}) for mix in mixes_of(asked)]
        return {recomputation_of(each)[1] for each in batch}

    assert modules("megatron-core-0.8") == modules("torchtitan-2025") == {frozenset()}
    named = frozenset.union(*modules("megatron-core-0.12"))
    assert named == frozenset(RecomputeModule) - {RecomputeModule.SHARED_EXPERTS}
    assert frozenset.union(*modules("megatron-bridge-26.02")) == frozenset(RecomputeModule)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"pinned_modules": (RecomputeModule.MLA_UP_PROJECTION,)}, "workload.pinned_modules"),
        ({"recompute": (Recompute.SELECTIVE,), "recompute_modules": ()}, "workload.recompute"),
        ({"recompute": (Recompute.NONE,), "pinned": {"recompute_layers": 2}}, "workload.recompute"),
    ],
)
def test_contradictions_name_their_field(changes: dict[str, object], field: str) -> None:
    """Modules that the model lacks, and rules that leave no recomputation."""
    with pytest.raises(InvalidWorkload) as refused:
        planned(problem(nodes(1), **changes))
    assert refused.value.field == field


def test_pinned_modules_are_the_ones_that_run_again() -> None:
    """Nothing else is, though less would fit."""
    pinned = (RecomputeModule.MLP, RecomputeModule.CORE_ATTENTION)
    asked = problem(nodes(1), recompute=(Recompute.SELECTIVE,), pinned_modules=pinned)
    found = planned(asked)
    assert found.configuration.recompute_modules == frozenset(pinned)
    assert check_plan(found, asked) == ()


@given(st.integers(1, 3), st.integers(1, 6), st.data())
def test_what_no_other_adds_less_than(sizes: int, mixes: int, data: st.DataObject) -> None:
    """By comparing every pair: of equal mixes one stays, of others those that nothing beats."""
    values = st.lists(st.integers(0, 3), min_size=mixes, max_size=mixes)
    added = [np.array([data.draw(values)], dtype=np.float64) for _ in range(sizes)]
    fits = np.array([data.draw(st.lists(st.booleans(), min_size=mixes, max_size=mixes))])
    points = [tuple(each[0, mix] for each in added) for mix in range(mixes)]
    open_ = [mix for mix in range(mixes) if fits[0, mix]]

    def beats(a: int, b: int) -> bool:
        return a != b and all(x <= y for x, y in zip(points[a], points[b], strict=True)) and points[a] != points[b]

    expected = {points[mix] for mix in open_ if not any(beats(other, mix) for other in open_)}
    kept = np.flatnonzero(least_of(added, fits)[0]).tolist()
    assert sorted(points[mix] for mix in kept) == sorted(expected)


def test_the_proof_names_the_mixes() -> None:
    """How many there are, and full recomputation of some layers."""
    asked, plain = problem(nodes(1), **ANY), problem(nodes(1))
    mixes = len(mixes_of(asked)) - 1
    named = remark("limit_memory_options", mixes=mixes, some_layers=True, only_where_needed=True)
    assert named in limits(asked, fabrics_of(asked))
    nothing = remark("limit_memory_options", mixes=0, some_layers=False, only_where_needed=True)
    assert nothing in limits(plain, fabrics_of(plain))
