"""A plan that was carried out, as a measured run that parameters can be fitted to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from cluster_models.calibration.fitted import FittedParameters
from cluster_models.calibration.training_run import MemoryCounter, NodeGroup, TrainingRun
from cluster_models.cluster.power import capped
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidConfiguration
from cluster_models.training.plan import Plan
from solver.runs import predict_run


def run_of_plan(
    plan: Plan,
    cluster: Cluster,
    *,
    name: str,
    step_s: float | None = None,
    peak_memory_bytes: float | None = None,
    memory_counter: MemoryCounter = MemoryCounter.DRIVER,
    fitted: FittedParameters | None = None,
) -> TrainingRun:
    """The run of ``plan`` on its nodes of ``cluster``.

    Runs are priced on nominal links and plans on measured ones, so the step is scaled by what the predictions
    differ in: the run is as far from its prediction as the measured step from the plan's.  ``fitted``: parameters
    that the plan was priced with.  Raises ``InvalidConfiguration`` where the plan does not say its model and
    workload, or names a node that the cluster does not have.
    """
    if plan.architecture is None or plan.workload is None:
        raise InvalidConfiguration("plan", plan.model, "does not say which model and workload it is for")
    nodes = {node.name: node for node in cluster.nodes}
    if missing := [host for host in plan.placement.hosts if host not in nodes]:
        raise InvalidConfiguration("plan.hosts", missing[0], f"is not a node of the cluster {cluster.name!r}")
    hosts, per_node = [nodes[host] for host in plan.placement.hosts], plan.placement.gpus_per_node
    kinds = [capped(cluster.gpu_kinds[node.gpu_kind], plan.workload.gpu_power_cap_watts) for node in hosts]
    usual = Counter(kind.name for kind in kinds).most_common(1)[0][0]
    first = next(node for node in hosts if node.gpu_kind == usual)
    mixed = len({kind.name for kind in kinds}) > 1
    run = TrainingRun(
        name=name,
        architecture=plan.architecture,
        workload=plan.workload,
        configuration=plan.configuration,
        gpu=next(kind for kind in kinds if kind.name == usual),
        gpus_per_node=per_node,
        gpus_per_domain=max(per_node, cluster.domain_gpus()[first.nvlink_domain]),
        network_bytes_per_s=first.nics.count * first.nics.bytes_per_s / first.gpu_count,
        fabric="infiniband" if first.nics.fabric == "unknown" else first.nics.fabric,
        groups=tuple(NodeGroup(kind, per_node) for kind in kinds) if mixed else (),
        peak_memory_bytes=peak_memory_bytes,
        memory_counter=memory_counter,
    )
    if step_s is None:
        return run
    return replace(run, step_s=step_s * predict_run(run, fitted).step_s / plan.time.step_s)


def node_pairs(plan: Plan) -> frozenset[tuple[str, str]]:
    """Pairs of nodes that the plan joins: consecutive stages, and neighbours on rings of data ranks."""
    return frozenset(
        (min(one, other), max(one, other))
        for chain in _chains(plan)
        for one, other in pairwise(chain)
        if one != other
    )


def _chains(plan: Plan) -> Iterator[list[str]]:
    """Nodes along each pipeline, and along each ring of data ranks back to its first."""
    pipelines: dict[tuple[int, int, int], list[tuple[int, str]]] = {}
    rings: dict[tuple[int, int, int], list[tuple[int, str]]] = {}
    for place in plan.placement.ranks:
        pipelines.setdefault((place.tensor, place.context, place.data), []).append((place.pipeline, place.node))
        rings.setdefault((place.tensor, place.context, place.pipeline), []).append((place.data, place.node))
    yield from ([node for _, node in sorted(chain)] for chain in pipelines.values())
    for ring in rings.values():
        nodes = [node for _, node in sorted(ring)]
        yield [*nodes, nodes[0]]
