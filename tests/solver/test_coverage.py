"""A certificate names every limit of the space that was searched, and no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.links.model import effective_links
from cluster_models.remarks import Remark, remark
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK, framework
from cluster_models.training.interleaving import Interleaving
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import Recompute, Sharding
from solver.answer import coverage
from solver.degrees import enumeration
from solver.degrees.enumeration import enumerate_candidates
from solver.placement.cluster_fabrics import mixed_fabrics
from solver.problem import PlanningProblem
from tests.cluster_models.clusters import host
from tests.remarks import codes
from tests.solver.problems import DENSE, SPARSE, fabrics_of, nodes, planned, problem


def limits(asked: PlanningProblem) -> list[Remark]:
    """Limits of the space that the certificate of ``asked`` covers."""
    return list(coverage.limits(asked, fabrics_of(asked)))


def test_long_schedules_are_named_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence stands exactly where the table leaves a schedule out, with the number that cuts it off."""
    asked = problem(nodes(2, gpus=1))

    def candidates() -> int:
        return len(enumerate_candidates(asked.architecture, asked.workload, gpus_per_node=1, nodes=2))

    every = candidates()
    for most, cut in ((2 * 8 * 8, False), (2 * 8 * 8 - 1, True)):
        for module in (coverage, enumeration):
            monkeypatch.setattr(module, "MOST_EVENTS", most)
        assert (candidates() < every) is cut
        assert (remark("limit_schedule_length", events=most) in limits(asked)) is cut


def test_sizes_have_no_other_limit_than_layers_batch_and_gpus() -> None:
    """As many virtual stages as layers allow, a whole batch at once."""
    asked = problem(
        nodes(1, gpus=2),
        model=replace(DENSE, layers=64),
        global_batch=64,
        framework=framework("megatron-core-0.15"),
    )
    found = enumerate_candidates(asked.architecture, asked.workload, gpus_per_node=2, nodes=1)
    assert set(found.virtual_pipeline[found.pipeline == 2].tolist()) == set(range(1, 33))
    assert set(found.micro_batch[found.data == 1].tolist()) == {1, 2, 4, 8, 16, 32, 64}


def test_limits_are_named_only_where_they_are_met() -> None:
    """Cut experts, sharded parameters and virtual stages."""
    dense = problem(nodes(2, gpus=2), pinned={"virtual_pipeline": 1})
    sparse = problem(nodes(2, gpus=2), model=SPARSE, sharding=tuple(Sharding), recompute=tuple(Recompute))
    for code in ("limit_expert_cuts", "limit_sharded_without_pipeline", "limit_groups_sized"):
        assert code not in codes(limits(dense))
        assert code in codes(limits(sparse))
    uncut = replace(sparse, workload=replace(sparse.workload, pinned={"expert_tensor": 1}))
    assert "limit_expert_cuts" not in codes(limits(uncut))


def test_groups_that_shard_parameters_are_named_unless_they_are_pinned() -> None:
    """Where the framework has them; a pinned size is searched as it is."""
    titan = problem(nodes(2, gpus=2), framework=framework("torchtitan-2025"), sharding=(Sharding.PARAMETERS,))
    assert "limit_sharding_groups" in codes(limits(titan))
    pinned = replace(titan, workload=replace(titan.workload, pinned={"sharding_ranks": 2}))
    other = replace(titan, workload=replace(titan.workload, framework=DEFAULT_FRAMEWORK))
    assert "limit_sharding_groups" not in codes([*limits(pinned), *limits(other)])


@pytest.mark.parametrize(
    ("interleaving", "release", "code"),
    [
        (Interleaving.MEGATRON, 12, "limit_groups_sized"),
        (Interleaving.MEGATRON, 9, "limit_groups_whole"),
        (Interleaving.PYTORCH, 0, "limit_groups_equal"),
        (Interleaving.NONE, 0, "limit_no_virtual_stages"),
    ],
)
def test_numbers_of_micro_batches_are_those_of_the_framework(
    interleaving: Interleaving, release: int, code: str
) -> None:
    """Micro-batch numbers under virtual stages, as each framework groups micro-batches."""
    known = replace(DEFAULT_FRAMEWORK, interleaving=interleaving, megatron_core=release)
    assert code in codes(limits(problem(nodes(2, gpus=2), framework=known)))


def test_the_plan_carries_it() -> None:
    """Terminal, page and documents word the same limits."""
    asked = problem(nodes(2, gpus=1))
    assert list(planned(asked).certificate.limits) == limits(asked)


def test_schedules_are_named_where_the_framework_has_several() -> None:
    """Those that were asked for, and what mixes of GPU kinds leave out of them."""
    titan = framework("torchtitan-2025")
    assert "limit_schedules" not in codes(limits(problem(nodes(2, gpus=2))))
    asked = problem(nodes(2, gpus=2), framework=titan, schedule=(PipelineSchedule.GPIPE, PipelineSchedule.ZB_V))
    assert remark("limit_schedules", schedules=("gpipe", "zb_v")) in limits(asked)
    two = [host("h"), host("a", gpu="A100-SXM4-80GB")]
    for asked, limited in ((problem(two, framework=titan), True), (problem(two), False)):
        mixed = mixed_fabrics(asked.snapshot, asked.workload, effective_links(asked.snapshot))
        assert ("limit_mixes_not_v_shaped" in codes(coverage.limits(asked, mixed))) == limited
