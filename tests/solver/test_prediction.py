"""Multi-token prediction: a projection, a decoder layer and a head more on the last pipeline rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_models.model.architecture import Architecture
from cluster_models.training.schedules import PipelineSchedule
from solver.costs.memory import stage_memory
from solver.costs.step_costs import StepCosts, step_costs
from solver.degrees.layout import balanced_layout, chunk_layers
from tests.solver.cost_cases import H100, LLAMA_70B, MIXTRAL, WORKLOAD, candidates

SMALL = replace(LLAMA_70B, layers=8)
PIPELINE = {"pipeline": 4, "tensor": 2}
IN_TURN = PipelineSchedule.ONE_F_ONE_B
EVEN = ((2, 2, 2, 2),)


def priced(model: Architecture, row: dict[str, int]) -> StepCosts:
    """Costs of ``model`` on H100 nodes with even stages."""
    layers = chunk_layers(model, EVEN if row.get("pipeline") else ((8,),), IN_TURN)
    return step_costs(
        candidates(row),
        layers,
        architecture=model,
        workload=WORKLOAD,
        gpu=H100,
        gpus_per_domain=8,
        gpus_per_node=8,
    )


def test_it_adds_a_layer_like_the_last_to_the_last_chunk() -> None:
    """Dense or sparse as the last decoder layer is."""
    assert chunk_layers(replace(SMALL, prediction_layers=2), EVEN, IN_TURN)[-1].tolist() == [4]
    assert chunk_layers(replace(MIXTRAL, layers=8, prediction_layers=1), EVEN, IN_TURN)[-1].tolist() == [3]
    assert chunk_layers(replace(SMALL, prediction_layers=2), EVEN, IN_TURN)[:-1].tolist() == [[2]] * 3


def test_time_grows_by_more_than_a_layer_on_the_last_rank_only() -> None:
    """A layer, a head and a projection: the others keep their time."""
    without, with_one = (priced(replace(SMALL, prediction_layers=count), PIPELINE).forward_s[0] for count in (0, 1))
    np.testing.assert_allclose(with_one[:-1], without[:-1])
    one_layer = without[1] / 2
    head = without[-1] - without[1]
    assert with_one[-1] - without[-1] > one_layer + head
    assert with_one[-1] - without[-1] < 1.5 * (one_layer + head)


@pytest.mark.parametrize(("row", "copies"), [({}, 1), (PIPELINE, 2)])
def test_parameters_count_by_hand(row: dict[str, int], copies: int) -> None:
    """Layer, projection and norms; on the last of several ranks also the embedding, which the first one holds."""
    parts = []
    for count in (0, 1):
        model = replace(SMALL, prediction_layers=count)
        layers = chunk_layers(model, EVEN if row else ((8,),), IN_TURN)
        found = stage_memory(
            candidates(row),
            layers,
            architecture=model,
            workload=WORKLOAD,
            gpu=H100,
            micro_batches=np.array([8]),
        )
        parts.append(found)
    t, h = row.get("tensor", 1), 8192
    layer = (h * (64 * 2 + 8 * 2) * 128 + 3 * h * 28672) / t + 2 * h
    embedding = (copies - 1) * 128256 * h / t
    grown = parts[1].weights_bytes - parts[0].weights_bytes
    assert grown[0, -1] == pytest.approx(2 * (layer + 2 * h * h / t + 3 * h + embedding))
    assert parts[1].logits_bytes[0, -1] == 2 * parts[0].logits_bytes[0, -1]
    np.testing.assert_allclose(grown[0, :-1], 0.0)


def test_the_layout_makes_room_for_it() -> None:
    """The last of four ranks gives layers away."""
    plain, predicting = (
        balanced_layout(replace(LLAMA_70B, prediction_layers=count), 8192, 4, 1)[0][-1] for count in (0, 2)
    )
    assert predicting < plain
