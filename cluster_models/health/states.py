"""Severity of states of health, and the state of a node that follows from each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cluster_models.cluster.topology import NodeState
from cluster_models.health.events import HealthState

SEVERITY: Final[Mapping[HealthState, int]] = {
    HealthState.RECOVERED: 0,
    HealthState.SUSPECTED: 1,
    HealthState.DEGRADED: 2,
    HealthState.DRAINING: 3,
    HealthState.FAILED: 4,
}
NODE_STATES: Final[Mapping[HealthState, NodeState]] = {
    HealthState.RECOVERED: NodeState.READY,
    HealthState.SUSPECTED: NodeState.UNKNOWN,
    HealthState.DEGRADED: NodeState.DEGRADED,
    HealthState.DRAINING: NodeState.DRAINING,
    HealthState.FAILED: NodeState.FAILED,
}
"""Jobs stay on suspected nodes, and no new rank is placed there: ``UNKNOWN``."""


def worst(*states: HealthState) -> HealthState:
    """The most severe of the states, the first of equals."""
    return max(states, key=SEVERITY.__getitem__)
