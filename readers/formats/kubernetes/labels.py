"""GPUs and place of a Kubernetes node, from its labels.

Keys as written by NVIDIA's GPU feature discovery, AMD's node labeller, the cloud providers and topograph (those of
CoreWeave are the levels of its Kueue topologies: fabric, superpod, leafgroup, nvlink.domain); every value is text.
A label that is empty, or that says "unknown", says nothing: nodes that share it share no switch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from readers.frame.facts import Name, NameKind
from readers.frame.numbers import whole

HOST_NAME: Final = "kubernetes.io/hostname"
_NOTHING: Final = frozenset(
    {"", ".", "none", "null", "n/a", "na", "unknown", "no-imds-data", "<none>", "<no value>"}
)
_AWS_LAYER: Final = re.compile(r"topology\.k8s\.aws/network-node-layer-(\d{1,2})")
_TIER: Final = re.compile(r"fabric\.topograph\.run/tier-(\d{1,2})")
_LADDERS: Final = (
    (
        "oci.oraclecloud.com/rdma.local_block_id",
        "oci.oraclecloud.com/rdma.network_block_id",
        "oci.oraclecloud.com/rdma.hpc_island_id",
    ),
    ("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"),
    ("network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine", "network.topology.nvidia.com/core"),
    (
        "network.topology.nvidia.com/block",
        "network.topology.nvidia.com/spine",
        "network.topology.nvidia.com/datacenter",
    ),
    ("backend.coreweave.cloud/leafgroup", "backend.coreweave.cloud/superpod", "backend.coreweave.cloud/fabric"),
    ("ib.coreweave.cloud/leafgroup", "ib.coreweave.cloud/superpod", "ib.coreweave.cloud/fabric"),
)
"""Levels of the fabric, from the host up."""
_ZONES: Final = (
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.k8s.aws/zone-id",
)
_DOMAINS: Final = (
    "nvidia.com/gpu.clique",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "ds.coreweave.com/nvlink.domain",
)
_PRODUCTS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "gpu.nvidia.com/model",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "eks.amazonaws.com/instance-gpu-name",
)
_COUNTS: Final = (
    "nvidia.com/gpu.count",
    "gpu.nvidia.com/count",
    "cloud.google.com/gke-accelerator-count",
    "karpenter.k8s.aws/instance-gpu-count",
    "eks.amazonaws.com/instance-gpu-count",
)
_MEMORY_MIB: Final = (
    "nvidia.com/gpu.memory",
    "karpenter.k8s.aws/instance-gpu-memory",
    "eks.amazonaws.com/instance-gpu-memory",
)
_INSTANCES: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_PLAIN: Final = {
    "rack": "rack",
    "leaf": "leaf",
    "block": "block",
    "topology-rack": "rack",
    "topology-block": "block",
}
"""Last words of keys that sites choose themselves ("example.com/rack")."""
_SLICE: Final = re.compile(r"-MIG-\d+g\.\d+gb\S*$", re.IGNORECASE)
_PREFIXES: Final = (
    "nvidia.com/",
    "amd.com/",
    "beta.amd.com/",
    "oci.oraclecloud.com/",
    "topology.k8s.aws/",
    "topology.kubernetes.io/",
    "cloud.google.com/gce-topology-",
    "network.topology.nvidia.com/",
    "fabric.topograph.run/",
    "accelerator.topograph.run/",
    "backend.coreweave.cloud/",
    "ib.coreweave.cloud/",
    HOST_NAME,
)


COLUMN_KEYS: Final[Mapping[str, str]] = {
    key.rpartition("/")[2].upper(): key
    for key in (
        *(key for ladder in reversed(_LADDERS) for key in reversed(ladder)),
        *(f"topology.k8s.aws/network-node-layer-{layer}" for layer in range(9, 0, -1)),
        *reversed((*_ZONES, *_DOMAINS, *_PRODUCTS, *_COUNTS, *_MEMORY_MIB, *_INSTANCES)),
    )
}
"""Heading of a label's column in ``kubectl get nodes -L``: the end of its key; the first of equal ends counts."""


@dataclass(frozen=True, slots=True)
class LabelNote:
    """A doubt about labels, without its line."""

    code: str
    sentence: str
    remedy: str


@dataclass(frozen=True, slots=True)
class LabelsSay:
    """The labels of one node, in our words; ``count`` is of whole GPUs, ``None`` where it may be of slices."""

    names: tuple[Name, ...]
    product: str | None
    count: int | None
    in_slices: bool
    replicas: int
    domain: str | None
    place: Mapping[str, str]
    instance_type: str
    notes: tuple[LabelNote, ...]

    @property
    def gpus(self) -> bool:
        """Whether any label speaks of GPUs."""
        return self.product is not None or self.count is not None or self.in_slices


def telling(labels: Mapping[str, str]) -> bool:
    """Whether these keys are of labels that say something of GPUs or of the place."""
    return any(key.startswith(_PREFIXES) for key in labels)


def read_labels(labels: Mapping[str, str]) -> LabelsSay:
    """Facts in the labels of one node."""
    product = _first(labels, _PRODUCTS)
    sliced = _sliced(labels, product)
    place, unknown = _place(labels)
    notes = [_MIG] if sliced else []
    if unknown:
        notes.append(
            LabelNote(
                "unknown-place",
                f"{', '.join(unknown)} say nothing: nodes with this value are not taken as neighbours",
                "ask the provider for the topology, or give the leaf of the node in the cluster document",
            )
        )
    name = _known(labels.get(HOST_NAME, ""))
    return LabelsSay(
        names=(Name(NameKind.HOST, name),) if name else (),
        product=_whole_product(product),
        count=None if sliced else _count(_first(labels, _COUNTS)),
        in_slices=sliced,
        replicas=max(1, _count(labels.get("nvidia.com/gpu.replicas")) or 1),
        domain=_domain(labels),
        place=place,
        instance_type=_first(labels, _INSTANCES) or "",
        notes=tuple(notes),
    )


_MIG: Final = LabelNote(
    "mig",
    "the GPUs are cut into slices (MIG), or about to be: the count of GPUs is not taken",
    "give the number of whole GPUs in the cluster document, or send the labels without MIG",
)


def _sliced(labels: Mapping[str, str], product: str | None) -> bool:
    """Whether counts may be of slices: a MIG product, slices announced, or a partition asked for."""
    config = _known(labels.get("nvidia.com/mig.config", ""))
    asked = config not in {"", "all-disabled"}
    announced = any(
        key.startswith("nvidia.com/mig-") and key.endswith(".count") and (_count(value) or 0) > 0
        for key, value in labels.items()
    )
    return asked or announced or (product is not None and _SLICE.search(product) is not None)


def _whole_product(product: str | None) -> str | None:
    return None if product is None else _SLICE.sub("", product).removesuffix("-SHARED")


def _domain(labels: Mapping[str, str]) -> str | None:
    """The scale-up domain; ``ClusterUUID.CliqueID`` of zeros, or half empty, is not a domain."""
    for key in _DOMAINS:
        value = _known(labels.get(key, ""))
        if value and (key != _DOMAINS[0] or _is_clique(value)):
            return value
    return None


def _is_clique(value: str) -> bool:
    cluster, _, clique = value.rpartition(".")
    return clique.isdecimal() and cluster.strip("0-") != ""


def _place(labels: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The place in our words, and the keys whose values say nothing."""
    place: dict[str, str] = {}
    unknown: list[str] = []
    for key, value in labels.items():
        word = _PLAIN.get(key.rpartition("/")[2].casefold())
        if word is not None and _known(value) and not key.startswith(_PREFIXES):
            place.setdefault(word, _known(value))
    for ladder in _ladders(labels):
        steps = [_known(labels.get(key, "")) for key in ladder]
        unknown += [key for key, step in zip(ladder, steps, strict=True) if key in labels and not step]
        if any(steps) and not any(word.startswith("level") for word in place):
            place |= {f"level{number}": step for number, step in enumerate(steps, start=1) if step}
            if steps[0]:
                place["leaf"] = steps[0]
    zone = _first(labels, _ZONES)
    if zone:
        place["zone"] = zone
    block = _known(labels.get("accelerator.topograph.run/sub-domain", ""))
    if block:
        place.setdefault("block", block)
    return place, tuple(unknown)


def _ladders(labels: Mapping[str, str]) -> list[Sequence[str]]:
    """The levels of each provider that the labels name, each from the host up: at most nine."""
    layers = sorted(((int(found[1]), key) for key in labels if (found := _AWS_LAYER.fullmatch(key))), reverse=True)
    tiers = sorted((int(found[1]), key) for key in labels if (found := _TIER.fullmatch(key)))
    counted = [[key for _, key in steps][:9] for steps in (layers, tiers) if steps]
    return [*counted, *(ladder for ladder in _LADDERS if any(key in labels for key in ladder))]


def _known(value: str) -> str:
    value = value.strip()
    return "" if value.casefold() in _NOTHING else value


def _first(labels: Mapping[str, str], keys: Sequence[str]) -> str | None:
    return next((value for key in keys if (value := _known(labels.get(key, "")))), None)


def _count(text: str | None) -> int | None:
    return whole((text or "").strip(), 9)
