"""Pools and jobs of a fleet, from snapshots, offers and documents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from app.documents.fleet import FleetLimits, OfferDocument
from app.serialization import make_snapshot
from app.services.field_paths import errors_under
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.catalogue import NodeKind, gpu_kind, node_kind
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster, Node
from cluster_models.errors import InvalidInput
from cluster_models.fleet.jobs import FleetJob, Pool
from cluster_models.model.architecture import Architecture
from cluster_models.training.workload import TrainingWorkload
from cluster_models.units import DAY


def own_pools(snapshot: ClusterSnapshot) -> tuple[Pool, ...]:
    """The usable nodes of a cluster by GPU kind and free GPUs: what is there costs nothing more."""
    sorts: dict[tuple[str, int], list[str]] = defaultdict(list)
    for node in snapshot.cluster.nodes:
        if node.usable:
            sorts[node.gpu_kind, len(node.free_gpus)].append(node.name)
    name = snapshot.cluster.name
    return tuple(
        Pool(f"{name} {kind}" if len(sorts) == 1 else f"{name} {kind} x{gpus}", snapshot, tuple(nodes), gpus, kind)
        for (kind, gpus), nodes in sorted(sorts.items())
    )


def offered_pools(offers: Sequence[OfferDocument]) -> tuple[Pool, ...]:
    """A pool for each offer, on nominal links; raises ``InvalidInput`` of an unknown kind or a missing price."""
    found = []
    for index, offer in enumerate(offers):
        with errors_under(f"offers[{index}]"):
            found.append(_offered(offer, index))
    return tuple(found)


def fleet_job(
    name: str,
    architecture: Architecture,
    workload: TrainingWorkload,
    limits: FleetLimits,
    fitted: FittedParameters | None,
) -> FleetJob:
    """The job of a fleet with its limits; raises ``InvalidInput``."""
    return FleetJob(
        name=name,
        architecture=architecture,
        workload=workload,
        weight=limits.weight,
        tokens=limits.tokens,
        deadline_s=None if limits.deadline_days is None else limits.deadline_days * DAY,
        budget_usd=limits.budget_usd,
        least_gpus=limits.least_gpus,
        most_gpus=limits.most_gpus,
        required=limits.required,
        fitted=fitted,
    )


def _offered(offer: OfferDocument, index: int) -> Pool:
    sold = node_kind(offer.node_kind, field="node_kind")
    kind = gpu_kind(_gpu_kind_of(offer, sold), field="gpu_kind")
    price = offer.usd_per_node_hour or sold.price_usd_per_hour
    if price is None:
        raise InvalidInput("usd_per_node_hour", None, f"{sold.name} has no list price", "give a price")
    name = f"offer {index + 1}: {sold.name}"
    together = max(1, sold.scale_up_domain_gpus // sold.gpu_count)
    nodes = tuple(
        Node(
            name=f"offer{index + 1}-{number + 1:03}",
            gpu_kind=kind.name,
            gpu_count=sold.gpu_count,
            nvlink_domain=f"offer{index + 1}-domain-{number // together + 1}",
            nics=sold.nics,
        )
        for number in range(offer.nodes)
    )
    snapshot = make_snapshot(Cluster(name, nodes, {kind.name: kind}, source=sold.source), ())
    names = tuple(node.name for node in nodes)
    return Pool(name, snapshot, names, sold.gpu_count, kind.name, price, is_rented=True)


def _gpu_kind_of(offer: OfferDocument, sold: NodeKind) -> str:
    if offer.gpu_kind is not None:
        return offer.gpu_kind
    if len(sold.gpu_kinds) > 1:
        remedy = f"give one of {', '.join(sold.gpu_kinds)}"
        raise InvalidInput("gpu_kind", None, f"is missing: {sold.name} is sold with several", remedy)
    return sold.gpu_kinds[0]
