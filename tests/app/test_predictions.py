"""Configurations given in full, without the layers of their stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.documents.configuration import ConfigurationDocument, DegreesDocument
from app.serialization import make_snapshot
from app.services.planning.predictions import predict_configuration
from cluster_models.errors import InvalidConfiguration
from cluster_models.training.frameworks import framework
from cluster_models.training.methods import TrainingMethod
from cluster_models.training.roles import Roles
from cluster_models.training.workload import Objective
from solver.degrees.layout import filled_stages
from solver.problem import PlanningProblem
from tests.plans import small_architecture, small_cluster, small_samples, small_workload

MODEL = replace(small_architecture(), layers=12, vocabulary=128_000)
DEGREES = DegreesDocument(tensor=2, pipeline=2, data=2)


def _problem(name: str) -> PlanningProblem:
    workload = replace(small_workload(), framework=framework(name))
    return PlanningProblem(make_snapshot(small_cluster(), small_samples()), MODEL, workload)


def test_layers_left_out_are_those_that_the_framework_gives() -> None:
    """Nanotron fills the first stage with more than half of the layers, for the head counts on the last."""
    asked = _problem("nanotron-0.5")
    found = predict_configuration(asked, document=ConfigurationDocument(degrees=DEGREES)).plan
    assert found.configuration.stage_layers == (filled_stages(MODEL, 2),)
    assert found.configuration.stage_layers[0][0] > 6
    even = predict_configuration(_problem("megatron-core-0.12"), document=ConfigurationDocument(degrees=DEGREES))
    assert even.plan.configuration.stage_layers == ((6, 6),)


def test_other_layers_than_the_framework_gives_are_refused() -> None:
    """It has no option for any."""
    document = ConfigurationDocument(degrees=DEGREES, stage_layers=[[6, 6]])
    with pytest.raises(InvalidConfiguration, match="would give it more before it goes on"):
        predict_configuration(_problem("nanotron-0.5"), document=document)


def test_virtual_stages_need_a_framework_that_has_them() -> None:
    """DeepSpeed's pipeline gives each rank one run of layers."""
    degrees = DegreesDocument(tensor=2, pipeline=2, data=2, virtual_pipeline=2)
    with pytest.raises(InvalidConfiguration, match="has no interleaving"):
        predict_configuration(_problem("megatron-deepspeed-2024"), document=ConfigurationDocument(degrees=degrees))


def test_a_node_to_avoid_is_neither_used_nor_missed() -> None:
    """Under a workload that avoids one of three nodes the others carry the configuration."""
    asked = _problem("megatron-core-0.12")
    asked = replace(asked, workload=replace(asked.workload, avoid_nodes=("a",)))
    found = predict_configuration(asked, document=ConfigurationDocument(degrees=DEGREES)).plan
    assert sorted(found.placement.hosts) == ["b", "c"]
    assert found.unused_nodes == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"choose_power_caps": True, "objective": Objective.ENERGY},
        {"method": TrainingMethod.POLICY, "roles": Roles(critic=True, epochs=2)},
    ],
)
def test_what_only_a_search_chooses_is_predicted_as_given(changes: dict[str, Any]) -> None:
    """Without a power cap, and with the states of a policy and its critic on the GPUs."""
    asked = _problem("megatron-core-0.12")
    asked = replace(asked, workload=replace(asked.workload, **changes))
    found = predict_configuration(asked, document=ConfigurationDocument(degrees=DEGREES)).plan
    assert found.workload == replace(asked.workload, choose_power_caps=False)
