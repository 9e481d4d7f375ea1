"""Pricing by floors: the same answer as with every candidate priced, and an honest one when time is up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster_models.cluster.gpus import Precision
from cluster_models.training.framework_choices import FreeSetting
from cluster_models.training.frameworks import frameworks
from cluster_models.training.mixed_lengths import MixedLengths, Packing
from cluster_models.training.placement_rules import KeepTogether, PlacementRules, RankGroup
from cluster_models.training.plan import Certificate, StopReason
from cluster_models.training.workload import Objective, Recompute, Sharding
from solver import search
from solver.candidates import joined_batches
from solver.check import check_plan
from solver.costs.calibration import calibration_of
from solver.costs.least_memory import least_bytes
from solver.degrees import promising
from solver.degrees.floors import family_floors, family_sizes, worlds
from solver.degrees.memory_mixes import NOTHING, with_mix
from solver.degrees.priced import PricedCandidates, enumeration_of, price_candidates, worlds_on
from solver.degrees.promising import price_fitting, price_promising
from solver.degrees.row_groups import count_of, groups
from solver.problem import PlanningProblem
from tests.cluster_models.clusters import host
from tests.remarks import codes
from tests.solver.problems import EXACT, SPARSE, fabrics_of, nodes, not_planned, planned, problem
from tests.solver.test_search import measured

WIDE: dict[str, Any] = {"recompute": tuple(Recompute), "sharding": tuple(Sharding)}
PROBLEMS: Mapping[str, PlanningProblem] = {
    "dense": problem(nodes(3, gpus=2, slowdown={"n1": 1.3}), measured(3, "5 40 20", 2), global_batch=12, **WIDE),
    "short of memory": problem(nodes(2, gpus=2), memory_headroom=0.85, **WIDE),
    "experts": problem(nodes(2, gpus=4), measured(2, "10", 4), model=SPARSE, **WIDE),
    "experts beside compute": problem(
        nodes(2, gpus=2, gpu="B200-SXM-180GB"),
        model=replace(SPARSE, layers=6),
        precision=Precision.MXFP8,
        framework=replace(frameworks()["megatron-bridge-26.02"], expert_overlap=True),
        global_batch=4,
        **WIDE,
    ),
    "domains of two nodes": problem(
        tuple(replace(n, nvlink_domain=f"d{i // 2}") for i, n in enumerate(nodes(4, gpus=2))), global_batch=16
    ),
    "documents padded to the longest": problem(
        nodes(2, gpus=1),
        model=SPARSE,
        framework=replace(frameworks()["megatron-core-0.12"], packings=tuple(Packing)),
        lengths=MixedLengths.log_normal(400, 1.0, Packing.LONGEST),
        global_batch=4,
        sharding=tuple(Sharding),
    ),
    "free settings": problem(
        nodes(2, gpus=2),
        global_batch=4,
        free_settings=(FreeSetting.OVERLAP_TENSOR, FreeSetting.CUDA_GRAPHS),
        memory_headroom=0.88,
        recompute=tuple(Recompute),
    ),
    "GPU time": problem(nodes(3, gpus=2), objective=Objective.GPU_TIME, global_batch=12),
    "cost of kinds": problem(
        (*nodes(2, gpus=2), host("a0", gpu="A100-SXM4-80GB", gpus=2, cards=2)), objective=Objective.COST
    ),
}


def every_price(asked: PlanningProblem) -> PricedCandidates:
    """All candidates on GPUs of one kind."""
    return price_candidates(asked, fabrics_of(asked))


def not_looked_at(proof: Certificate) -> int:
    """Candidates that are neither ruled out nor placed."""
    return proof.candidates_total - proof.candidates_infeasible - proof.candidates_pruned - proof.candidates_placed


def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let floors count from the first candidate on."""
    for name in ("WHOLE", "BLOCK", "SLICE"):
        monkeypatch.setattr(promising, name, 30)


@pytest.mark.parametrize("case", PROBLEMS)
def test_floors_leave_the_best_plan_and_its_proof(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objective and bound are those of a search that prices every candidate, and all are counted."""
    asked = PROBLEMS[case]
    whole = planned(asked).certificate
    few_at_once(monkeypatch)
    found = planned(asked)
    assert found.certificate.objective == pytest.approx(whole.objective, rel=1e-9)
    assert found.certificate.bound == pytest.approx(whole.bound, rel=1e-9)
    assert found.certificate.candidates_total == whole.candidates_total
    assert not_looked_at(found.certificate) == 0
    assert check_plan(found, asked) == ()


def test_floors_spare_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most candidates are never priced where one plan is far better than the rest."""
    asked = PROBLEMS["dense"]
    few_at_once(monkeypatch)
    space = search.promising_space(asked, fabrics_of(asked)[0].links, EXACT)
    assert space.priced.total == len(every_price(asked))
    assert len(space.priced) < space.priced.total / 2
    assert space.priced.left.pruned > space.priced.total / 2


@pytest.mark.parametrize("case", PROBLEMS)
def test_no_price_is_below_its_floors(case: str) -> None:
    """Floors of world and family, which runs nothing again; and the memory that a grid holds at least."""
    asked = PROBLEMS[case]
    usable, priced = fabrics_of(asked), every_price(asked)
    batch = priced.batch
    gpus = batch.tensor * batch.context * batch.data * batch.pipeline
    floor_of = {(world.fabric, world.gpus): world.floor for world in worlds(asked, usable)}
    objective = priced.bound_s * priced.weight * (1 + 1e-9)
    for index, fabric in enumerate(usable):
        own = np.flatnonzero(priced.fabric == index)
        rows = batch.take(own)
        assert (objective[own] >= [floor_of[index, int(size)] for size in gpus[own]]).all()
        assert (objective[own] >= family_floors(asked, fabric, with_mix(rows, NOTHING))).all()
        limit = fabric.gpu.memory_bytes * (1 - asked.workload.memory_headroom)
        for part in groups(rows):
            held = least_bytes(
                rows.take(part),
                architecture=asked.architecture,
                workload=asked.workload,
                calibration=calibration_of(fabric.gpu, asked.workload.framework),
            )
            assert (held - limit <= priced.excess_bytes[own[part]] + 1.0).all()


@pytest.mark.parametrize("case", ["dense", "short of memory", "free settings", "domains of two nodes"])
def test_all_that_fit_are_priced_the_same(case: str) -> None:
    """Without a limit the table has every candidate that fits, and its prices."""
    asked = PROBLEMS[case]
    every, fitting = every_price(asked), price_fitting(asked, fabrics_of(asked))
    fits = every.excess_bytes <= 0
    assert len(fitting) == fits.sum()
    assert count_of(fitting.candidate) == every.total - fitting.left.infeasible
    assert np.sort(fitting.bound_s) == pytest.approx(np.sort(every.bound_s[fits]))


@pytest.mark.parametrize("case", PROBLEMS)
def test_families_have_every_candidate(case: str) -> None:
    """Their sizes add up, with schedules that are too long left out."""
    asked = PROBLEMS[case]
    for fabric in fabrics_of(asked):
        sizes = worlds_on(asked, fabric)
        families = joined_batches([enumeration_of(asked, fabric, families=True).on(size) for size in sizes])
        assert family_sizes(asked, families).sum() == len(enumeration_of(asked, fabric).over(sizes))


@pytest.mark.parametrize(
    ("case", "ticks"), [*(("dense", ticks) for ticks in (0, 1, 3, 10)), ("free settings", 1), ("free settings", 3)]
)
def test_a_bound_holds_for_what_there_was_no_time_for(
    case: str, ticks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped at any moment, table and rest have every candidate listed, and none of all is below the bound."""
    asked = PROBLEMS[case]
    few_at_once(monkeypatch)
    left = iter(range(ticks))
    found = price_promising(
        asked, fabrics_of(asked), limit_of=lambda _: np.inf, is_time_up=lambda: next(left, None) is None
    )
    every = every_price(asked)
    lowest = float((every.bound_s * every.weight).min())
    assert found.total == every.total or (found.left.worlds > 0 and found.total < every.total)
    assert found.left.unpriced + found.left.worlds > 0
    assert min(found.left.bound, float((found.bound_s * found.weight).min())) <= lowest * (1 + 1e-9)
    assert (found.excess_bytes <= 0).all()


def test_a_plan_without_time_says_what_it_did_not_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its counts and its gap."""
    asked = PROBLEMS["dense"]
    best = planned(asked).certificate.objective
    few_at_once(monkeypatch)
    found = planned(asked, replace(EXACT, time_limit_s=0.0))
    proof = found.certificate
    assert proof.stopped_by is StopReason.TIME_LIMIT
    assert proof.unpriced == not_looked_at(proof)
    assert proof.unlisted > 0
    assert proof.bound <= best * (1 + 1e-9) <= proof.objective * (1 + 2e-9)
    assert check_plan(found, asked) == ()


def test_rules_that_no_priced_candidate_keeps_may_be_kept_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without time only plans on all nodes are priced, and none of these lies on one."""
    asked = PROBLEMS["dense"]
    rules = PlacementRules(keep_together=(KeepTogether(RankGroup.JOB, "node"),))
    asked = replace(asked, workload=replace(asked.workload, placement=rules))
    few_at_once(monkeypatch)
    found = not_planned(asked, replace(EXACT, time_limit_s=0.0))
    assert codes(found.reasons) == ["rules_search_ended"]
    assert not found.is_proven
    assert planned(asked)
