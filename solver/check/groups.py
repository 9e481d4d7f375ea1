"""Whether groups of data ranks may share out what a plan says they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cluster_models.training.plan import Configuration
from cluster_models.training.workload import TrainingWorkload

_INSTANCES_SINCE: Final = 10
"""Minor number of the first Megatron-Core with several instances of its distributed optimizer."""


def group_rules(configuration: Configuration, workload: TrainingWorkload) -> Iterator[str]:
    """Groups that share out parameters, or states and those of experts alike, where they may."""
    size, sharding, framework = configuration.sharding_ranks, str(configuration.sharding), workload.framework
    if not size:
        return
    has_instances = framework.megatron_core >= _INSTANCES_SINCE
    if not (framework.hybrid_sharding if sharding == "parameters" else has_instances):
        yield f"{framework.name} does not shard {sharding} in groups of {size}."
    if sharding == "parameters":
        return
    if "sharding_ranks" not in map(str, workload.free_settings) and workload.pinned.get("sharding_ranks") != size:
        yield "Groups that share optimizer states out are neither left free nor pinned."
    degrees = configuration.degrees
    holders = degrees.tensor * degrees.data * degrees.context // (degrees.expert * degrees.expert_tensor)
    if holders % (degrees.data * degrees.context // size):
        yield f"{holders} ranks with the same experts are not as many groups of equal size."
