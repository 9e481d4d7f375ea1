"""Nodes of Kubernetes: lists as JSON or YAML, and the topology that the clouds dump beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cluster_models.cluster.topology import NodeState
from cluster_models.health.kubernetes import (
    GPU_RESOURCES,
    Condition,
    NodeStatus,
    Taint,
    Verdict,
    gpus_in,
    verdicts,
)
from cluster_models.health.states import NODE_STATES, worst
from readers.formats.kubernetes.labels import LabelsSay, read_labels, telling
from readers.frame.facts import HealthFact, HostFact, Name, NameKind, Nics, Origin
from readers.frame.findings import Finding, doubt, note, refusal
from readers.frame.numbers import whole
from readers.frame.reading import Contents
from readers.frame.sources import Line, Source
from readers.frame.trees import items, mapping, plain

_NAME_LINE: Final = re.compile(r'^\s*(?:-\s+)?"?(?:name|Name|InstanceId)"?\s*:\s*"?([^",\s]+)')
_ADDRESSES: Final = {
    "Hostname": NameKind.HOST,
    "InternalDNS": NameKind.FQDN,
    "InternalIP": NameKind.ADDRESS,
}
_NIC_RESOURCES: Final = {"vpc.amazonaws.com/efa": "efa"}
"""Resources that count cards; the count of an RDMA device plugin is of places in a queue, not of cards."""
RESOURCES: Final = frozenset({*GPU_RESOURCES, *_NIC_RESOURCES})
"""Keys of capacities; they are not labels."""
_SEND_NODES: Final = "send the output of: kubectl get nodes -o json"


@dataclass(frozen=True, slots=True)
class _Record:
    path: str
    value: Mapping[str, Any]
    line: int


def read_nodes(source: Source, lines: tuple[Line, ...]) -> Contents:
    """A fact for each node that has GPUs, or whose place is told."""
    found: dict[str, int] = {}
    for line in lines:
        name = _NAME_LINE.match(line.text)
        if name is not None:
            found.setdefault(name[1], line.number)
    said = _NodeFile(source, lines[0].number if lines else 1, lines[-1].number if lines else 1)
    for path, value in _records(source.tree):
        said.take(path, value, found)
    return Contents(tuple(said.facts), tuple(said.refusals), tuple(said.doubts))


class _NodeFile:
    """Facts and findings of one file so far."""

    def __init__(self, source: Source, first: int, last: int) -> None:
        self.source, self.first, self.last = source, first, last
        self.facts: list[HostFact | HealthFact] = []
        self.refusals: list[Finding] = []
        self.doubts: list[Finding] = []

    def take(self, path: str, value: object, found: Mapping[str, int]) -> None:
        """One element of the file: a node, or something that is none."""
        record = mapping(value)
        line = found.get(_name_of(record), self.first)
        kind = plain(record.get("kind"))
        if kind not in {"", "Node"}:
            return self._refuse(line, path, f"{path or 'the file'} is a {kind}, not a node")
        if "Topology" in record or "NetworkNodes" in record:
            return self._add(_Record(path, _of_aws(record), line))
        if "metadata" not in record and "labels" not in record and not telling(_texts(record)):
            return self._refuse(line, path, f"{path or 'the file'} is not a node")
        if "metadata" not in record:
            labels = _texts(record["labels"]) if "labels" in record else _texts(record)
            record = {"metadata": {"name": record.get("name"), "labels": labels}}
        return self._add(_Record(path, record, line))

    def _refuse(self, line: int, path: str, reason: str) -> None:
        self.refusals.append(refusal(line, line, reason, _SEND_NODES, path))

    def _add(self, record: _Record) -> None:
        origin = Origin(self.source.name, record.line, record.line, record.path)
        fact, doubts, refused = host_of(record.value, origin, self.source.host)
        if refused:
            self._refuse(record.line, record.path, refused)
            return
        self.facts.append(fact)
        self.facts += troubles(record.value, fact)
        self.doubts += doubts


def host_of(node: Mapping[str, Any], origin: Origin, sender: str | None) -> tuple[HostFact, list[Finding], str]:
    """The fact of one node object, what is doubtful in it, and why it is none (empty where it is one)."""
    labels = read_labels(_texts(mapping(node.get("metadata")).get("labels")))
    status = mapping(node.get("status"))
    capacity = mapping(status.get("capacity"))
    names = _names(node, labels) or ((Name(NameKind.HOST, sender),) if sender else ())
    announced = gpus_in(capacity)
    sliced = labels.in_slices or any(str(key).startswith("nvidia.com/mig-") for key in capacity)
    notes = [(one.code, one.sentence, one.remedy) for one in labels.notes]
    if sliced and not labels.in_slices:
        notes.append(_SLICES)
    count = None if sliced else labels.count
    if count is None and announced and not sliced:
        count = announced // labels.replicas
    notes += _count_notes(count, announced, labels, status)
    if not names:
        notes.append(_NAMELESS)
    wrong = _verdicts(node)
    fact = HostFact(
        origin,
        names,
        gpu_product=labels.product,
        gpu_count=count,
        gpu_in_slices=sliced,
        nics=_nics(capacity),
        scale_up_domain=labels.domain,
        labels={**labels.place, **_slurm_place(node)},
        state=_state(node, wrong),
        instance_type=labels.instance_type,
    )
    doubts = [_doubt(code, origin.first_line, sentence, remedy, names) for code, sentence, remedy in notes]
    no_gpu = bool(capacity) and not labels.gpus and not announced and not sliced
    return fact, doubts, "it has no GPU: not taken as a node of the cluster" if no_gpu else ""


_NAMELESS: Final = (
    "no-node-name",
    "the labels are of a node that the file does not name",
    "say which node sent the file",
)
_SLICES: Final = (
    "mig",
    "the node offers slices of GPUs (MIG): the count of GPUs is not taken",
    "give the number of whole GPUs in the cluster document",
)
_FOR_INFORMATION: Final = frozenset({"unknown-place"})


def _doubt(code: str, line: int, sentence: str, remedy: str, names: tuple[Name, ...]) -> Finding:
    whose = f"{names[0].text}: {sentence}" if names else sentence
    return (note if code in _FOR_INFORMATION else doubt)(code, line, whose, remedy)


def _count_notes(
    count: int | None, announced: int | None, labels: LabelsSay, status: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """Where the GPU counts of labels, capacity and allocatable differ."""
    notes = []
    expected = None if count is None else count * labels.replicas
    if expected is not None and announced is not None and announced != expected:
        notes.append(
            (
                "gpu-count-differs",
                f"labels tell of {expected} GPUs, the node announces {announced}",
                "look whether the device plugin runs, and whether GPUs fell off the bus",
            )
        )
    healthy = gpus_in(mapping(status.get("allocatable")))
    if announced and healthy is not None and healthy < announced:
        notes.append(
            (
                "gpus-unhealthy",
                f"{announced - healthy} of {announced} GPUs are unhealthy: not allocatable",
                "look for Xids there; if the rest is to be used, list them as gpus_in_use of the node",
            )
        )
    return notes


def _names(node: Mapping[str, Any], labels: LabelsSay) -> tuple[Name, ...]:
    """All names of a node, each once; its name in Kubernetes first."""
    named = plain(mapping(node.get("metadata")).get("name"))
    names = [Name(NameKind.KUBERNETES, named)] if named else []
    names += labels.names
    for address in items(mapping(node.get("status")).get("addresses")):
        kind = _ADDRESSES.get(plain(mapping(address).get("type")))
        text = plain(mapping(address).get("address"))
        if kind is not None and text:
            names.append(Name(kind, text))
    instance = plain(mapping(node.get("spec")).get("providerID")).rpartition("/")[2]
    if instance and not instance.isdecimal():
        names.append(Name(NameKind.INSTANCE, instance))
    return tuple(dict.fromkeys(names))


def _nics(capacity: Mapping[str, Any]) -> tuple[Nics, ...]:
    counts = ((_number(capacity.get(resource)), fabric) for resource, fabric in _NIC_RESOURCES.items())
    return tuple(Nics(count, None, fabric) for count, fabric in counts if count)


def _verdicts(node: Mapping[str, Any]) -> list[Verdict]:
    """Problems of the node."""
    spec, status = mapping(node.get("spec")), mapping(node.get("status"))
    conditions = [
        Condition(
            plain(each.get("type")),
            plain(each.get("status")).capitalize(),
            plain(each.get("reason")),
            plain(each.get("message")),
        )
        for each in map(mapping, items(status.get("conditions")))
    ]
    taints = [
        Taint(plain(each.get("key")), plain(each.get("value")), plain(each.get("effect")))
        for each in map(mapping, items(spec.get("taints")))
    ]
    found = NodeStatus(
        [each for each in conditions if each.type],
        taints,
        _texts(mapping(node.get("metadata")).get("labels")),
        cordoned=spec.get("unschedulable") is True,
        gpus=gpus_in(mapping(status.get("capacity"))),
        healthy_gpus=gpus_in(mapping(status.get("allocatable"))),
    )
    return list(verdicts(found))


def troubles(node: Mapping[str, Any], fact: HostFact) -> list[HealthFact]:
    """A fact for each thing that is wrong with the node."""
    host = fact.names[0].text if fact.names else None
    return [
        HealthFact(fact.origin, host, "node", NODE_STATES[verdict.state], verdict.text)
        for verdict in _verdicts(node)
    ]


def _state(node: Mapping[str, Any], wrong: Sequence[Verdict]) -> NodeState | None:
    """The worst of the verdicts; ``None`` where the file has no conditions either."""
    if not wrong:
        conditions = map(mapping, items(mapping(node.get("status")).get("conditions")))
        return NodeState.READY if any(plain(each.get("type")) == "Ready" for each in conditions) else None
    return NODE_STATES[worst(*(verdict.state for verdict in wrong))]


def _slurm_place(node: Mapping[str, Any]) -> dict[str, str]:
    """The Slurm topology that Slinky annotates: ``tree:root:leaf3,block:b07``."""
    annotations = _texts(mapping(node.get("metadata")).get("annotations"))
    place: dict[str, str] = {}
    for spec in annotations.get("topology.slinky.slurm.net/spec", "").split(","):
        kind, _, path = spec.strip().partition(":")
        steps = [step for step in path.split(":") if step]
        if kind == "tree" and steps:
            place |= {f"level{number}": step for number, step in enumerate(reversed(steps[-9:]), start=1)}
            place["leaf"] = steps[-1]
        if kind == "block" and steps:
            place["block"] = steps[-1]
    return place


def _of_aws(record: Mapping[str, Any]) -> dict[str, Any]:
    """A node object of the same content: the label dump of EKS, or one of ``describe-instance-topology``."""
    labels = _texts(record.get("Topology"))
    layers = [plain(layer) for layer in items(record.get("NetworkNodes"))]
    for number, layer in enumerate(layers, start=1):
        labels[f"topology.k8s.aws/network-node-layer-{number}"] = layer
    if zone := plain(record.get("AvailabilityZone")):
        labels["topology.kubernetes.io/zone"] = zone
    if kind := plain(record.get("InstanceType")):
        labels["node.kubernetes.io/instance-type"] = kind
    return {
        "metadata": {"name": plain(record.get("Name")), "labels": labels},
        "spec": {"providerID": plain(record.get("InstanceId"))},
    }


def _records(tree: object) -> Iterator[tuple[str, object]]:
    """Every element that may be a node, with its path: of a list, of documents in a row, or the only one."""
    documents = tree if isinstance(tree, list) else [tree]
    for index, document in enumerate(documents):
        path = f"[{index}]" if isinstance(tree, list) else ""
        for key in ("items", "Nodes", "Instances"):
            items = mapping(document).get(key)
            if isinstance(items, list):
                dotted = f"{path}.{key}" if path else key
                yield from ((f"{dotted}[{number}]", item) for number, item in enumerate(items))
                break
        else:
            yield path, document


def holds_nodes(tree: object) -> bool:
    """Whether an early element is a node, or labels of one."""
    for number, (_, value) in enumerate(_records(tree)):
        record = mapping(value)
        labels = _texts(mapping(record.get("metadata")).get("labels")) | _texts(record.get("labels"))
        told = plain(record.get("kind")) == "Node" or telling(labels) or telling(_texts(record))
        if told or telling(_texts(record.get("Topology"))) or ("NetworkNodes" in record and "InstanceId" in record):
            return True
        if number == 50:
            break
    return False


def _name_of(record: Mapping[str, Any]) -> str:
    metadata = mapping(record.get("metadata"))
    return plain(metadata.get("name") or record.get("name") or record.get("Name") or record.get("InstanceId"))


def _number(value: object) -> int | None:
    return whole(plain(value), 9)


def _texts(value: object) -> dict[str, str]:
    """The entries whose values are plain: labels as a tree; a YAML reader may have made numbers of them."""
    return {
        str(key): plain(item) for key, item in mapping(value).items() if item is None or isinstance(item, str | int)
    }
