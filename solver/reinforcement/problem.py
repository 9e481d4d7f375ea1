"""Inputs of the planner of reinforcement learning."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Node
from cluster_models.model.architecture import Architecture
from cluster_models.reinforcement.workload import Arrangement, ReinforcementWorkload
from cluster_models.serving.engines import MemoryShare


@dataclass(frozen=True, slots=True)
class ReinforcementProblem:
    """A snapshot of a cluster, a policy and the steps in which it learns; ``fitted`` as of a training."""

    snapshot: ClusterSnapshot
    architecture: Architecture
    workload: ReinforcementWorkload
    fitted: FittedParameters | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes that both parts may have."""
        avoided = set(self.workload.avoid_nodes)
        nodes = self.snapshot.cluster.nodes
        return tuple(node for node in nodes if node.usable and node.free_gpus and node.name not in avoided)

    @property
    def gpus_per_node(self) -> int:
        """GPUs of each of them."""
        return len(self.nodes[0].free_gpus)

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        """Arrangements allowed that nodes and engine have."""
        has = {Arrangement.SEPARATE: len(self.nodes) > 1, Arrangement.COLOCATED: self._sleeps}
        return tuple(each for each in self.workload.arrangements if has[each])

    @property
    def _sleeps(self) -> bool:
        """Whether the engine can be told how much of a GPU is its own beside what the trainer leaves there."""
        return self.workload.rollout.engine.fraction_of is not MemoryShare.FREE
