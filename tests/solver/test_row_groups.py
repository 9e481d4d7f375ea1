"""Groups of candidates that are priced at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from cluster_models.training.frameworks import framework
from cluster_models.training.workload import Recompute
from solver.candidates import names_of
from solver.degrees import row_groups
from solver.degrees.priced import price_candidates
from solver.problem import PlanningProblem
from tests.solver.problems import SPARSE, fabrics_of, nodes, problem

TIGHT: Mapping[str, PlanningProblem] = {
    "dense": problem(nodes(2, gpus=2), global_batch=8, memory_headroom=0.9, recompute=tuple(Recompute)),
    "all forwards first": problem(
        nodes(2, gpus=2), global_batch=4, memory_headroom=0.9, framework=framework("megatron-core-0.8")
    ),
    "outputs kept": problem(
        nodes(2, gpus=2),
        global_batch=8,
        memory_headroom=0.8,
        framework=replace(framework("megatron-core-0.15"), keeps_stage_outputs=True),
        recompute=tuple(Recompute),
    ),
    "experts": problem(
        nodes(2, gpus=2),
        model=replace(SPARSE, layers=8, prediction_layers=1),
        global_batch=8,
        memory_headroom=0.8,
    ),
}


@pytest.mark.parametrize("case", TIGHT)
def test_candidates_cost_the_same_beside_others_with_more_virtual_stages(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prices and memory of groups of several virtual sizes are those of each size alone."""
    usable = fabrics_of(TIGHT[case])
    joined = price_candidates(TIGHT[case], usable)
    monkeypatch.setattr(row_groups, "MOST_JOINED_CELLS", 0)
    apart = price_candidates(TIGHT[case], usable)
    assert 0 < joined.infeasible < joined.total
    assert len(set(joined.batch.virtual_pipeline[joined.excess_bytes <= 0].tolist())) > 1
    for name in names_of(type(joined.batch)):
        assert np.array_equal(getattr(joined.batch, name), getattr(apart.batch, name)), name
    assert np.array_equal(joined.excess_bytes, apart.excess_bytes)
    assert joined.bound_s == pytest.approx(apart.bound_s, rel=1e-12)
    held = [joined.staging_of(index) for index in range(len(joined))]
    assert held == [apart.staging_of(index) for index in range(len(apart))]


def test_one_group_has_all_virtual_sizes_of_a_pipeline() -> None:
    """Rows on two nodes with four GPUs together: pipelines of 1, 2 and 4."""
    batch = price_candidates(asked := TIGHT["dense"], fabrics_of(asked)).batch
    (bundle,) = row_groups.bundles(batch)
    sizes = [(set(batch.pipeline[rows].tolist()), set(batch.virtual_pipeline[rows].tolist())) for rows in bundle]
    assert sizes == [({1}, {1}), ({2}, {1, 2, 4}), ({4}, {1, 2})]
