"""Domain values survive storage, and snapshots are named by their content."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from pydantic import ValidationError

from app.serialization import ID_LENGTH, jsonable, load, make_snapshot, snapshot_id
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidConfiguration
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import Degrees, NoPlan, Plan
from solver.problem import Backend, PlanningProblem, Progress, SearchOptions
from tests.plans import (
    small_architecture,
    small_cluster,
    small_no_plan,
    small_plan,
    small_samples,
    small_workload,
)
from tests.serving_plans import split_phases


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Plan, small_plan()),
        (NoPlan, small_no_plan()),
        (ClusterSnapshot, make_snapshot(small_cluster(), small_samples())),
        (
            PlanningProblem,
            PlanningProblem(make_snapshot(small_cluster(), ()), small_architecture(), small_workload()),
        ),
        (SearchOptions, SearchOptions(time_limit_s=math.inf, backend=Backend.HIGHS)),
        (Progress, Progress(1.5, "search", 10, 3, 0.1 + 0.2, None, math.inf, "tp2")),
    ],
)
def test_values_survive_storage(kind: type, value: object) -> None:
    """A value read from JSON equals the one written, infinities and the last bit of a float included."""
    assert load(kind, json.loads(json.dumps(jsonable(value)))) == value


def test_facts_that_came_later_are_those_of_the_generation() -> None:
    """A plan of an older Meshwright loads; one that lacks anything else does not."""
    plain = jsonable(small_plan())
    older = plain["workload"]["framework"]
    del older["schedules"], older["packings"]
    assert load(Plan, plain) == small_plan()
    assert "schedules" not in older
    del plain["workload"]["sequence_length"]
    with pytest.raises(ValidationError, match="sequence_length"):
        load(Plan, plain)


def test_facts_of_engines_that_came_later_are_those_of_the_generation() -> None:
    """A plan of serving from an older Meshwright loads too."""
    plain = jsonable(split_phases())
    for served in plain["models"]:
        del served["workload"]["engine"]["held_steps"]
    assert load(ServingPlan, plain) == split_phases()
    del plain["models"][0]["workload"]["engine"]["name"]
    with pytest.raises(ValidationError, match="name"):
        load(ServingPlan, plain)


def test_stored_values_are_checked_again() -> None:
    """A stored value that somebody broke does not come back silently."""
    with pytest.raises(InvalidConfiguration):
        load(Degrees, {"tensor": 0})


def test_snapshot_id_follows_content_not_order() -> None:
    """The order of samples does not matter; any other difference does."""
    cluster, samples = small_cluster(), small_samples()
    name = snapshot_id(cluster, samples)
    assert len(name) == ID_LENGTH
    assert snapshot_id(cluster, samples[::-1]) == name
    assert snapshot_id(cluster, samples[:1]) != name
    assert snapshot_id(replace(cluster, name="other"), samples) != name
    assert make_snapshot(cluster, samples) == make_snapshot(cluster, samples[::-1])
