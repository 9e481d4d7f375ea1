"""Plans whose stages run on GPUs of several kinds: splits, layouts, prices, placement, and what a plan says."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, product
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from app.documents.cluster import ClusterDocument
from app.serialization import make_snapshot
from cluster_models.calibration.training_run import NodeGroup, TrainingRun
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidConfiguration
from cluster_models.model.catalogue import catalogue_models
from cluster_models.training.placement_rules import PlacementRules, RankGroup, Spread
from cluster_models.training.plan import Configuration, Degrees, NoPlan, Plan, RankOrder
from cluster_models.training.workload import Choice, Objective, Recompute, Sharding, TrainingWorkload
from solver.check import check_plan
from solver.compiled_layout import lightest_layouts
from solver.degrees.floors import mixed_floor
from solver.degrees.priced import mixed_prices, price_candidates
from solver.degrees.promising import price_promising
from solver.placement.bounds import placement_bound_s
from solver.predict import predict
from solver.problem import PlanningProblem, SearchOptions
from solver.refine import prepare
from solver.runs import predict_run
from solver.search import plan
from tests.cluster_models.clusters import host
from tests.remarks import codes
from tests.solver.cost_cases import H100
from tests.solver.naive import best_placement, best_plan
from tests.solver.naive_mixed import best_mix, mixes_of
from tests.solver.problems import DENSE, EXACT, fabrics_of, planned, problem, row
from tests.solver.test_same_formula import RATE, WORKLOAD, a_cluster

A100, SMALL_A100 = "A100-SXM4-80GB", "A100-SXM4-40GB"
PLAIN = {"context": 1, "virtual_pipeline": 1}
EXAMPLE = Path(__file__).parents[2] / "examples" / "clusters" / "mixed-12-nodes.yaml"


def fast_and_slow(
    fast: int, slow: int, *, slow_kind: str = A100, gpus: int = 1, **changes: object
) -> PlanningProblem:
    """``fast`` H100 nodes and ``slow`` others with ``gpus`` GPUs each and a tiny model."""
    nodes = [host(f"h{i}", gpus=gpus, cards=gpus) for i in range(fast)]
    nodes += [host(f"a{i}", gpu=slow_kind, gpus=gpus, cards=gpus) for i in range(slow)]
    return problem(nodes, **changes)


@settings(max_examples=30)
@given(st.data())
def test_the_heaviest_chunk_is_the_lightest_of_all_layouts(data: st.DataObject) -> None:
    """Against every composition: of layers of one kind exactly, and never beyond what a chunk may hold."""
    layers, chunks = data.draw(st.integers(2, 8)), data.draw(st.integers(2, 4))
    times = st.lists(st.floats(0.1, 5.0), min_size=chunks, max_size=chunks)
    layer_s, extra_s = np.array(data.draw(times)), np.array(data.draw(times))
    most = data.draw(st.lists(st.integers(1, layers), min_size=chunks, max_size=chunks))
    seconds = np.stack([layer_s, extra_s])[None]
    found = lightest_layouts(np.arange(layers + 1)[:, None], seconds, np.array([most]), tolerance=0.0)[0]
    possible = [
        max(e + n * t for n, t, e in zip(counts, layer_s, extra_s, strict=True))
        for counts in product(*(range(1, limit + 1) for limit in most))
        if sum(counts) == layers
    ]
    if not possible:
        assert not found.any()
        return
    assert found.sum() == layers
    assert (found >= 1).all()
    assert (found <= most).all()
    assert (extra_s + found * layer_s).max() == pytest.approx(min(possible), rel=1e-9)


@pytest.mark.parametrize(
    "asked",
    [
        fast_and_slow(1, 3, global_batch=8, pinned=PLAIN),
        fast_and_slow(1, 1, gpus=2, global_batch=16, pinned=PLAIN),
    ],
    ids=["one and three", "two GPUs a node"],
)
def test_a_mix_that_pays_is_the_best_of_all_plans(asked: PlanningProblem) -> None:
    """Equal to trying all degrees, kinds and hosts; faster than what either kind can do alone."""
    (alike, fitting), (mixed, fitting_mixes) = best_plan(asked), best_mix(asked)
    assert mixed < alike
    found = planned(asked)
    assert found.time.step_s == pytest.approx(mixed, rel=1e-9)
    assert found.certificate.bound == pytest.approx(mixed, rel=1e-6)
    proof = found.certificate
    assert proof.candidates_total - proof.candidates_infeasible == fitting + fitting_mixes
    assert check_plan(found, asked) == ()


def test_bounds_of_mixes_lie_below_every_placement() -> None:
    """Prices and placement bounds of all mixes on three nodes, against all orders of hosts."""
    asked = fast_and_slow(1, 2, gpus=2, global_batch=4)
    fabrics = mixes_of(asked)
    priced = price_candidates(asked, fabrics)
    checked = 0
    for index in np.flatnonzero(priced.excess_bytes <= 0)[::5]:
        candidate = prepare(asked, fabrics[0], row(priced.batch, int(index)), *priced.staging_of(int(index)))
        best = best_placement(candidate)
        assert priced.bound_s[index] <= best * (1 + 1e-9)
        assert placement_bound_s(candidate.placement) <= best * (1 + 1e-9)
        checked += 1
    assert checked > 5


def test_layers_follow_memory_where_it_is_the_tighter_limit() -> None:
    """40 GB GPUs, as fast as those with 80 GB, hold as many layers as fit; the others hold the rest."""
    cluster = mixed_cluster(1, 1, fast_kind=A100, slow_kind=SMALL_A100)
    workload = TrainingWorkload(
        choice=Choice.FASTEST,
        sequence_length=2048,
        global_batch=64,
        pinned={"tensor": 1, "data": 8, "pipeline": 2, "micro_batch": 1, "virtual_pipeline": 1},
        recompute=(Recompute.NONE,),
        sharding=(Sharding.OPTIMIZER,),
    )
    asked = PlanningProblem(make_snapshot(cluster, ()), catalogue_models()["llama-3-8b"], workload)
    found = planned(asked)
    assert check_plan(found, asked) == ()
    small = [stage.gpu_kind for stage in found.stages].index(SMALL_A100)
    held = list(found.configuration.stage_layers[0])
    assert held[small] < 16
    held[small] += 1
    held[1 - small] -= 1
    fuller = replace(found.configuration, stage_layers=(tuple(held),))
    memory = predict(asked, fuller, hosts=found.placement.hosts).memory[small]
    assert memory.total_bytes > memory.limit_bytes


@pytest.mark.parametrize("headroom", [0.7, 0.8, 0.82, 0.84, 0.85, 0.86, 0.9])
def test_a_mix_fits_exactly_where_some_layout_fits(headroom: float) -> None:
    """Against every split of the layers over two stages, on GPUs of 80 and 40 GB with little of it left."""
    pinned = {"pipeline": 2, **PLAIN}
    asked = fast_and_slow(1, 1, slow_kind=SMALL_A100, global_batch=4, memory_headroom=headroom, pinned=pinned)
    fabrics = mixes_of(asked)
    priced = price_candidates(asked, fabrics)
    assert len(priced) > 0
    for index in range(len(priced)):
        kinds = priced.staging_of(index).kinds
        batch = row(priced.batch, index)
        possible = [
            prepare(asked, fabrics[0], batch, ((first, DENSE.layers - first),), kinds).memory
            for first in range(1, DENSE.layers)
        ]
        fits = any((memory.total_bytes <= memory.limit_bytes).all() for memory in possible)
        assert fits == (priced.excess_bytes[index] <= 0)


def layers_on(found: Plan, kind: str) -> int:
    """Layers that stages on GPUs of ``kind`` hold."""
    return sum(
        layers
        for chunk in found.configuration.stage_layers
        for layers, stage in zip(chunk, found.stages, strict=True)
        if stage.gpu_kind == kind
    )


def mixed_cluster(fast: int, slow: int, *, fast_kind: str = H100.name, slow_kind: str = A100) -> Cluster:
    """Nodes of one kind, H100 unless given, then of another, each with eight GPUs, on one InfiniBand."""
    ahead, behind = a_cluster(fast, gpu_kind(fast_kind)), a_cluster(slow, gpu_kind(slow_kind))
    nodes = tuple(replace(node, name=f"a{i}", nvlink_domain=f"a{i}") for i, node in enumerate(behind.nodes))
    return Cluster("mixed", (*ahead.nodes, *nodes), {**ahead.gpu_kinds, **behind.gpu_kinds}, source="made up")


@pytest.fixture(scope="module")
def example() -> tuple[PlanningProblem, Plan]:
    """The shipped cluster of two kinds with a 70B model, and its plan."""
    document = ClusterDocument.model_validate(yaml.safe_load(EXAMPLE.read_text("utf-8")))
    cluster = document.to_cluster()
    workload = TrainingWorkload(
        choice=Choice.FASTEST,
        sequence_length=4096,
        global_batch=64,
        pinned={"context": 1, "virtual_pipeline": 1, "tensor": 4},
        recompute=(Recompute.NONE, Recompute.SELECTIVE),
        sharding=(Sharding.OPTIMIZER,),
    )
    asked = PlanningProblem(
        make_snapshot(cluster, document.to_samples(cluster)), catalogue_models()["llama-3-70b"], workload
    )
    found = plan(asked, SearchOptions(gap=0.02))
    assert isinstance(found, Plan)
    return asked, found


def test_the_example_gains_by_mixing_and_its_layers_follow_speed(example: tuple[PlanningProblem, Plan]) -> None:
    """Both kinds work, H100 stages hold more than A100 ones, and neither kind alone comes near."""
    asked, found = example
    assert check_plan(found, asked) == ()
    kinds = [stage.gpu_kind for stage in found.stages]
    assert [kind for kind, _ in groupby(kinds)] in ([A100, H100.name], [H100.name, A100])
    per_stage = {kind: layers_on(found, kind) / kinds.count(kind) for kind in set(kinds)}
    assert 1.5 < per_stage[H100.name] / per_stage[A100] < 3.5
    busy = [stage.forward_s + stage.backward_s for stage in found.stages]
    assert max(busy) / min(busy) < 1.35
    for avoided in ("old", "new"):
        names = tuple(n.name for n in asked.snapshot.cluster.nodes if n.name.startswith(avoided))
        alone = plan(replace(asked, workload=replace(asked.workload, avoid_nodes=names)), SearchOptions(gap=0.02))
        if isinstance(alone, Plan):
            assert found.time.step_s < 0.8 * alone.time.step_s


def test_figures_of_a_mix_count_each_gpu_by_its_kind(example: tuple[PlanningProblem, Plan]) -> None:
    """MFU is of all peaks together, limits are each kind's own, and a warning tells what was never measured."""
    asked, found = example
    kinds = asked.snapshot.cluster.gpu_kinds
    by_name = {node.name: kinds[node.gpu_kind] for node in asked.snapshot.cluster.nodes}
    peak = sum(by_name[place.node].peak_flops[asked.workload.precision] for place in found.placement.ranks)
    assert found.mfu == pytest.approx(found.model_flops_per_s_per_gpu * found.configuration.degrees.gpus / peak)
    for place in found.placement.ranks:
        stage = found.stages[place.pipeline]
        assert by_name[place.node].name == stage.gpu_kind
        limit = kinds[stage.gpu_kind].memory_bytes * (1 - asked.workload.memory_headroom)
        assert found.memory[place.pipeline].limit_bytes == pytest.approx(limit)
    assert "uncalibrated_mix" in codes(found.warnings)
    assert "limit_mixes" in codes(found.certificate.limits)


def test_the_check_refuses_a_rank_on_a_gpu_of_another_kind(example: tuple[PlanningProblem, Plan]) -> None:
    """Two hosts of different kinds changed over break the kinds of their stages and their memory limits."""
    asked, found = example
    names = {
        found.placement.hosts[0]: found.placement.hosts[-1],
        found.placement.hosts[-1]: found.placement.hosts[0],
    }
    hosts = tuple(names.get(host, host) for host in found.placement.hosts)
    ranks = tuple(replace(place, node=names.get(place.node, place.node)) for place in found.placement.ranks)
    broken = replace(found, placement=replace(found.placement, hosts=hosts, ranks=ranks))
    sentences = check_plan(broken, asked)
    assert any("Stage 0 is said to run on" in sentence for sentence in sentences)


@pytest.mark.parametrize(
    ("model", "degrees", "layers", "fast"),
    [
        ("llama-3-70b", Degrees(tensor=8, pipeline=4), ((26, 26, 14, 14),), 2),
        ("llama-3-70b", Degrees(tensor=4, pipeline=4, data=4), ((26, 26, 14, 14),), 4),
        ("llama-3-8b", Degrees(tensor=2, pipeline=2, data=8), ((23, 9),), 2),
        ("llama-3-70b", Degrees(tensor=4, pipeline=4, data=2, virtual_pipeline=2), ((13, 13, 7, 7),) * 2, 2),
        ("mixtral-8x7b", Degrees(pipeline=4, data=8, expert=8), ((10, 10, 6, 6),), 2),
    ],
)
def test_a_mixed_plan_takes_what_the_scored_formula_says(
    model: str, degrees: Degrees, layers: tuple[tuple[int, ...], ...], fast: int
) -> None:
    """So the errors found on measured runs of V100 and T4 are those of mixed plans."""
    architecture = catalogue_models()[model]
    configuration = Configuration(
        degrees, 1, Recompute.NONE, Sharding.OPTIMIZER, RankOrder.DATA_BEFORE_PIPELINE, layers
    )
    cluster = mixed_cluster(fast, degrees.gpus // 8 - fast)
    asked = PlanningProblem(make_snapshot(cluster, ()), architecture, WORKLOAD)
    found = predict(asked, configuration, hosts=[node.name for node in cluster.nodes])
    groups = (NodeGroup(H100, 8 * fast), NodeGroup(gpu_kind(A100), degrees.gpus - 8 * fast))
    run = TrainingRun("run", architecture, WORKLOAD, configuration, H100, 8, 8, RATE, groups=groups)
    assert found.time.step_s == pytest.approx(predict_run(run).step_s, rel=0.01)


def test_hosts_of_several_kinds_are_chosen_where_one_kind_has_too_few() -> None:
    """The many layers come to lie on the H100, whichever stage holds them."""
    asked = PlanningProblem(make_snapshot(mixed_cluster(1, 1), ()), catalogue_models()["llama-3-8b"], WORKLOAD)
    for layers, kinds in (((23, 9), [H100.name, A100]), ((9, 23), [A100, H100.name])):
        configuration = Configuration(
            Degrees(tensor=8, pipeline=2),
            1,
            Recompute.NONE,
            Sharding.OPTIMIZER,
            RankOrder.DATA_BEFORE_PIPELINE,
            (layers,),
        )
        found = predict(asked, configuration)
        assert [stage.gpu_kind for stage in found.stages] == kinds


def test_replicas_of_a_stage_on_two_kinds_are_refused() -> None:
    """The message names the stage and both kinds."""
    asked = PlanningProblem(make_snapshot(mixed_cluster(1, 1), ()), catalogue_models()["llama-3-8b"], WORKLOAD)
    configuration = Configuration(
        Degrees(tensor=8, data=2), 1, Recompute.NONE, Sharding.OPTIMIZER, RankOrder.DATA_BEFORE_PIPELINE, ((32,),)
    )
    with pytest.raises(InvalidConfiguration, match=r"stage 0 would run on A100.* and H100"):
        predict(asked, configuration, hosts=["n0", "a0"])


def test_a_cluster_of_one_kind_has_no_mixes() -> None:
    """So its candidates and its plan are what they were."""
    assert mixes_of(fast_and_slow(3, 0)) == ()


def test_kinds_that_cannot_compute_in_the_precision_are_not_mixed_in() -> None:
    """V100 have no BF16: a plan in it leaves them out and says so."""
    asked = fast_and_slow(1, 2, slow_kind="V100-SXM2-32GB", global_batch=4)
    assert mixes_of(asked) == ()
    found = planned(asked, EXACT)
    assert {stage.gpu_kind for stage in found.stages} == {H100.name}


@pytest.mark.parametrize(("group", "kept"), [(RankGroup.DATA, False), (RankGroup.PIPELINE, True)])
def test_no_stage_reaches_two_leaves_that_hold_a_kind_each(*, group: RankGroup, kept: bool) -> None:
    """Told by counting: replicas of a stage stay on one kind, and so under one leaf; a pipeline does not."""
    cluster = ClusterDocument.model_validate(yaml.safe_load(EXAMPLE.read_text("utf-8"))).to_cluster()
    workload = replace(
        WORKLOAD,
        pinned={"tensor": 8, "context": 1, "micro_batch": 1, "virtual_pipeline": 1},
        placement=PlacementRules(spread=(Spread(group, "leaf", 2),)),
    )
    asked = PlanningProblem(make_snapshot(cluster, ()), catalogue_models()["llama-3-8b"], workload)
    # Whether there is a plan is asked here, not how good it can be shown to be.
    found = plan(asked, SearchOptions(time_limit_s=60, gap=0.5))
    assert isinstance(found, Plan if kept else NoPlan)
    assert isinstance(found, Plan) or codes(found.reasons) == ["rules_by_counting"]


@pytest.mark.parametrize("objective", list(Objective))
def test_no_mix_beats_its_floor(objective: Objective) -> None:
    """Mixes left when time is up are bounded by a floor below every priced mix."""
    asked = fast_and_slow(2, 2, objective=objective)
    for index, fabric in enumerate(mixes_of(asked)):
        priced = [one for one in mixed_prices(asked, fabric, index) if (one.excess_bytes <= 0).any()]
        assert priced
        lowest = min(float((one.bound_s * one.weight).min()) for one in priced)
        assert 0 < mixed_floor(asked, fabric) <= lowest


def test_mixes_are_left_when_time_is_up() -> None:
    """Once something fits no mix is priced, and the bound holds for those that were not."""
    asked = fast_and_slow(2, 2)
    best = planned(asked).certificate.objective
    left = price_promising(
        asked, (*fabrics_of(asked), *mixes_of(asked)), limit_of=lambda _: np.inf, is_time_up=lambda: True
    )
    assert left.left.worlds > 0
    assert left.left.bound <= best
