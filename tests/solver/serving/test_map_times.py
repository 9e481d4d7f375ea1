"""The busiest expert rank in the steps of serving: as a workload says, and as a map leaves it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.model.catalogue import catalogue_model
from cluster_models.serving.figures import StepShares
from cluster_models.serving.goal import ServedModel
from cluster_models.serving.replicas import Phase
from cluster_models.serving.workload import ServingWorkload, WeightFormat, Worker
from solver.serving import cases
from solver.serving.loads import WorkerLinks
from solver.serving.map_times import MapCrossing, map_times
from solver.serving.predict import ServingPrediction, predict_serving
from tests.serving_plans import replica
from tests.solver.serving.cases import case

WIDE = Worker(attention_data=16, expert=16)
LOAD = ServingWorkload(1024, 1024, concurrency=256, weights=WeightFormat.FP8)
STEP = StepShares(0.004, 0.006, 0.002, 0.001, 0.003)


def _predicted(worker: Worker = WIDE, **imbalance: float) -> ServingPrediction:
    return predict_serving(case("deepseek-v3", worker=worker, workload=replace(LOAD, **imbalance)))


def test_a_balanced_map_shortens_the_steps_of_its_phase() -> None:
    """Twice the mean at the busiest of many ranks nearly doubles the experts' part, and lengthens each token."""
    even, uneven = (_predicted(decode_imbalance=value) for value in (0.0, 1.0))
    assert uneven.decode.expert_s / even.decode.expert_s == pytest.approx(1.0 + 15 / 16, rel=0.03)
    assert uneven.token_s.value > even.token_s.value
    assert (
        _predicted(prefill_imbalance=1.0).first_token_s.value
        > _predicted(prefill_imbalance=0.0).first_token_s.value
    )


def test_one_group_of_experts_has_no_busiest_rank() -> None:
    """Experts that all GPUs slice are even whatever the map."""
    sliced = Worker(tensor=16)
    assert _predicted(sliced, decode_imbalance=0.0) == _predicted(sliced, decode_imbalance=1.0)


def test_steps_with_a_map_are_those_of_a_plan_with_its_imbalance() -> None:
    """The experts' part by the busiest rank, all else as planned; both phases where a replica does both."""
    load = replace(LOAD, decode_imbalance=0.4)
    planned = replace(
        replica(0, Worker(attention_data=4, expert=4), [("a", (0, 1, 2, 3))]), prefill=STEP, decode=STEP
    )
    prefill, decode = map_times(ServedModel(catalogue_model("deepseek-v3"), load), planned, 1.15)
    assert (prefill.phase, decode.phase) == (Phase.PREFILL, Phase.DECODE)
    assert decode.imbalance == pytest.approx(0.2)
    assert decode.planned_s == STEP.total_s
    assert decode.mapped_experts_s == pytest.approx(STEP.expert_s * 1.15 / 1.3)
    assert decode.mapped_s == pytest.approx(STEP.total_s - STEP.expert_s * 0.15 / 1.3)


@pytest.mark.parametrize("needed", [0.4, 1.0])
def test_steps_with_a_map_have_its_tokens_between_nodes(needed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their collectives are those of a prediction in which as many tokens cross."""
    links = WorkerLinks(8, 450e9, 20e9, 1e-5)
    asked = case("deepseek-v3", worker=WIDE, workload=LOAD, links=links)
    planned = predict_serving(asked)
    with monkeypatch.context() as patch:
        patch.setattr(cases, "even_crossing", lambda *_: needed)
        mapped = predict_serving(asked)
    places = [("a", tuple(range(8))), ("b", tuple(range(8)))]
    placed = replace(replica(0, WIDE, places), prefill=planned.prefill, decode=planned.decode)
    crossing = MapCrossing(needed, links.cross_bytes_per_s, 2, planned.decoding / 16)
    model = ServedModel(asked.architecture, LOAD)
    pairs = zip(map_times(model, placed, 1.0, crossing), map_times(model, placed, 1.0), strict=True)
    for (new, old), name in zip(pairs, ("prefill", "decode"), strict=True):
        longer = getattr(mapped, name).collective_s - getattr(planned, name).collective_s
        assert new.mapped_s - old.mapped_s == pytest.approx(longer, rel=0.05)  # other batches decode at once
        assert (new.mapped_crossing, old.mapped_crossing) == (needed, None)
