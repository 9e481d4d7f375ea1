"""Count from the objects alone what Kubernetes manifests ask for: pods x GPUs, hosts and ranks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Final

import yaml

from app.exports.claims import Claims
from app.exports.contract import Files, unreadable
from app.exports.readback.megatron import MEGATRON_SAYS, claims_of_arguments
from app.exports.readback.words import file_named, flags, number, same, value, words

PODS_SAY: Final = frozenset({"world", "hosts", "first_host", "gpus_per_host"}) | MEGATRON_SAYS - {"expert_order"}
"""The order of experts is the checkpoint's, not the launch's; which GPUs a pod gets is the device plugin's."""
_QUEUES: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
_HOSTNAME: Final = "kubernetes.io/hostname"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of the launch, ``copies`` of it, under the name by which others reach it."""

    address: str
    copies: int
    host: str
    gpus: int
    command: tuple[str, ...]
    connections: int | None


def refusing(read: Callable[[Files], Claims]) -> Callable[[Files], Claims]:
    """The read-back, refusing files of any other shape than it knows."""

    @wraps(read)
    def checked(files: Files) -> Claims:
        try:
            return read(files)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
            raise unreadable("exports.files", [file.name for file in files], f"cannot be read: {error}") from error

    return checked


@refusing
def read_jobset(files: Files) -> Claims:
    """The replicated jobs of ``jobset.yaml``."""
    (job,) = documents(file_named(files, "jobset.yaml"), "JobSet")
    return claims_of_pods(_pods_of_jobset(job))


@refusing
def read_kueue(files: Files) -> Claims:
    """The JobSet, and the queue that must hold exactly it and know the host level."""
    (job,) = documents(file_named(files, "jobset.yaml"), "JobSet")
    (replicated,) = at(job, "spec.replicatedJobs")
    claims = _on_host_network(at(replicated, "template.spec.template.spec"), _copies(replicated))
    kinds = ("Topology", "ResourceFlavor", "ClusterQueue", "LocalQueue")
    topology, flavor, cluster, local = documents(file_named(files, "queue.yaml"), *kinds)
    ((group,), queue) = (at(cluster, "spec.resourceGroups"), at(job, "metadata.labels"))
    quota = at(group, "flavors.0.resources.0.nominalQuota")
    if quota != claims.world:
        raise unreadable("exports.kueue.nominalQuota", quota, f"is not the {claims.world} GPUs of the job")
    if at(topology, "spec.levels")[-1] != {"nodeLabel": _HOSTNAME}:
        raise unreadable("exports.kueue.levels", at(topology, "spec.levels"), "must end at the host")
    names = {
        queue["kueue.x-k8s.io/queue-name"],
        at(local, "metadata.name"),
        at(local, "spec.clusterQueue"),
        at(cluster, "metadata.name"),
        at(flavor, "metadata.name"),
        at(flavor, "spec.topologyName"),
        at(group, "flavors.0.name"),
        at(topology, "metadata.name"),
    }
    if len(names) > 1 or at(local, "metadata.namespace") != at(job, "metadata.namespace"):
        raise unreadable("exports.kueue.queue", sorted(names), "must be one queue in the namespace of the job")
    if at(job, "spec.suspend") is not True:
        raise unreadable("exports.kueue.suspend", at(job, "spec"), "must be true: the queue starts the job")
    return claims


@refusing
def read_volcano(files: Files) -> Claims:
    """The tasks of ``volcano.yaml``; all of them start together or none."""
    (job,) = documents(file_named(files, "volcano.yaml"), "Job")
    name = at(job, "metadata.name")
    pods = [
        _pinned(f"{name}-{at(task, 'name')}-0.{name}", at(task, "replicas"), at(task, "template.spec"))
        for task in at(job, "spec.tasks")
    ]
    if at(job, "spec.minAvailable") != sum(pod.copies for pod in pods):
        raise unreadable("exports.volcano.minAvailable", at(job, "spec.minAvailable"), "is not the number of pods")
    return claims_of_pods(pods)


@refusing
def read_lws(files: Files) -> Claims:
    """Leader and workers of ``lws.yaml``, each on the node that its script knows."""
    (lws,) = documents(file_named(files, "lws.yaml"), "LeaderWorkerSet")
    group = at(lws, "spec.leaderWorkerTemplate")
    size, groups = at(group, "size"), at(lws, "spec.replicas")
    if groups != 1:
        raise unreadable("exports.lws.replicas", groups, "must be one group")
    leader, worker = (at(group, f"{role}Template.spec") for role in ("leader", "worker"))
    if _script(leader) != _script(worker):
        raise unreadable("exports.lws.script", "", "leader and workers run different scripts")
    hosts = _affine(leader) + (_affine(worker) if size > 1 else ())
    claims = _floating(leader, hosts, size, first=_affine(leader))
    if _connections(worker) != claims.connections:
        raise unreadable(f"exports.{_QUEUES}", _connections(worker), "is another with workers than with the leader")
    if _gpus(worker) != claims.gpus_per_host:
        raise unreadable("exports.lws.gpus", _gpus(worker), "workers have other GPUs than the leader")
    if _master(_script(leader)) != "$LWS_LEADER_ADDRESS":
        raise unreadable("exports.lws.master", _master(_script(leader)), "is not the leader")
    return claims


@refusing
def read_trainjob(files: Files) -> Claims:
    """Runtime and job of ``trainjob.yaml``: both must ask for the same nodes and GPUs."""
    runtime, job = documents(file_named(files, "trainjob.yaml"), "TrainingRuntime", "TrainJob")
    trainer = at(job, "spec.trainer")
    if at(job, "spec.runtimeRef.name") != at(runtime, "metadata.name"):
        raise unreadable("exports.trainjob.runtimeRef", at(job, "spec.runtimeRef"), "is not the runtime beside it")
    (replicated,) = at(runtime, "spec.template.spec.replicatedJobs")
    pod = at(replicated, "template.spec.template.spec")
    nodes = (at(trainer, "numNodes"), at(runtime, "spec.mlPolicy.numNodes"))
    if at(replicated, "replicas") != 1:
        raise unreadable("exports.trainjob.replicas", at(replicated, "replicas"), "must be one job")
    limit = _only(at(trainer, "resourcesPerNode.limits"))
    if limit != _gpus(pod):
        raise unreadable("exports.trainjob.resourcesPerNode", limit, "is not what the runtime asks for")
    return _on_host_network(pod, same(nodes, "numNodes"))


def claims_of_pods(pods: Sequence[Pod]) -> Claims:
    """The claims of pinned pods in the order of their ranks; refuses ranks, counts or addresses that differ."""
    starts = [_torchrun(pod.command) for pod in pods]
    ranks = [number(value(start, "--node-rank"), "--node-rank") for start, _ in starts]
    if ranks != list(range(len(pods))):
        raise unreadable("exports.node-rank", ranks, "must count up from 0, once a pod")
    masters = {value(start, "--master-addr") for start, _ in starts}
    first = [pod.host for pod in pods if {pod.address} == masters]
    if len(first) != 1:
        raise unreadable("exports.master-addr", sorted(masters), "is not the address of one pod")
    if len({rest for _, rest in starts}) > 1:
        raise unreadable("exports.command", ranks, "pods run different commands")
    size = same((pod.gpus for pod in pods), "GPUs of a pod")
    for start, _ in starts:
        _check_start(start, sum(pod.copies for pod in pods), size)
    return replace(
        _of_megatron(starts[0][1]),
        connections=_same_connections({pod.connections for pod in pods}),
        world=sum(pod.copies * pod.gpus for pod in pods),
        hosts=tuple(pod.host for pod in pods),
        first_host=first[0],
        gpus_per_host=size,
    )


def documents(text: str, *kinds: str) -> list[Mapping[str, Any]]:
    """The objects of a file, which must be of these kinds in this order."""
    try:
        found = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise unreadable("exports.yaml", text[:80], f"is not YAML: {error}") from error
    said = [document.get("kind") if isinstance(document, Mapping) else None for document in found]
    if said != list(kinds):
        raise unreadable("exports.kind", said, f"must be {', '.join(kinds)}")
    return found


def at(tree: Any, path: str) -> Any:
    """The value at a dotted path; refuses where it is missing."""
    place = tree
    for step in path.split("."):
        try:
            place = place[int(step) if step.isdigit() else step]
        except (KeyError, IndexError, TypeError) as error:
            raise unreadable(f"exports.{path}", sorted(tree) if isinstance(tree, Mapping) else tree) from error
    return place


def _pods_of_jobset(jobset: Mapping[str, Any]) -> list[Pod]:
    name = at(jobset, "metadata.name")
    pods = []
    for job in at(jobset, "spec.replicatedJobs"):
        address = f"{name}-{at(job, 'name')}-0-0.{name}"
        pods.append(_pinned(address, _copies(job), at(job, "template.spec.template.spec")))
    return pods


def _copies(job: Mapping[str, Any]) -> int:
    """Pods of a replicated job."""
    spec = at(job, "template.spec")
    return int(at(job, "replicas")) * same({at(spec, "parallelism"), at(spec, "completions")}, "parallelism")


def _pinned(address: str, copies: int, spec: Mapping[str, Any]) -> Pod:
    host = at(spec, "nodeSelector")[_HOSTNAME]
    command = tuple(_command(_script(spec)))
    return Pod(address, copies, host, _gpus(spec), command, _connections(spec))


def _connections(spec: Mapping[str, Any]) -> int | None:
    """The hardware queues that the container's environment sets."""
    said = {each["name"]: each.get("value") for each in _container(spec)["env"]}
    text = said.get(_QUEUES)
    return None if text is None else number(text, _QUEUES)


def _same_connections(said: set[int | None]) -> int | None:
    if len(said) != 1:
        raise unreadable(f"exports.{_QUEUES}", sorted(map(str, said)), "must be the same in every pod")
    return next(iter(said))


def _on_host_network(spec: Mapping[str, Any], nodes: int) -> Claims:
    """The claims of pods that meet at the name of a host."""
    if at(spec, "hostNetwork") is not True:
        raise unreadable("exports.hostNetwork", None, "must be true: rank 0 is reached by the name of its host")
    return _floating(spec, _affine(spec), nodes, first=(_master(_script(spec)),))


def _floating(spec: Mapping[str, Any], allowed: tuple[str, ...], nodes: int, *, first: tuple[str, ...]) -> Claims:
    """The claims of pods that share a script: its cases are the hosts, in rank order."""
    script = _script(spec)
    cases = re.findall(r"^    (\S+)\) NODE_RANK=(\d+) ;;$", script, re.MULTILINE)
    hosts = tuple(host for host, _ in cases)
    if [int(rank) for _, rank in cases] != list(range(len(cases))) or len(set(hosts)) != len(hosts):
        raise unreadable("exports.NODE_RANK", cases, "must count up from 0, once a host")
    if sorted(allowed) != sorted(hosts) or nodes != len(hosts):
        raise unreadable("exports.affinity", allowed, f"are not the {nodes} hosts that the script knows")
    apart = at(spec, f"affinity.podAntiAffinity.{_REQUIRED}.0.topologyKey")
    if apart != _HOSTNAME:
        raise unreadable("exports.podAntiAffinity", apart, "must keep pods on different hosts")
    start, rest = _torchrun(_command(script))
    if value(start, "--node-rank") != "$NODE_RANK":
        raise unreadable("exports.node-rank", value(start, "--node-rank"), "is not what the script looks up")
    _check_start(start, nodes, _gpus(spec))
    if first != hosts[:1]:
        raise unreadable("exports.master-addr", first, f"is not the host of rank 0, {hosts[:1]}")
    return replace(
        _of_megatron(rest),
        connections=_connections(spec),
        world=nodes * _gpus(spec),
        hosts=hosts,
        first_host=first[0],
        gpus_per_host=_gpus(spec),
    )


def _check_start(start: Mapping[str, tuple[str, ...]], nodes: int, size: int) -> None:
    said = tuple(number(value(start, flag), flag) for flag in ("--nnodes", "--nproc-per-node"))
    if said != (nodes, size):
        raise unreadable("exports.torchrun", said, f"is not {nodes} pods of {size} GPUs")


def _torchrun(command: Sequence[str]) -> tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]]:
    """The flags of torchrun, and the words behind them."""
    if not command or command[0] != "torchrun":
        raise unreadable("exports.command", list(command[:3]), "must begin with torchrun")
    end = next((i for i, word in enumerate(command) if i and not word.startswith("-")), len(command))
    return flags(command[1:end]), tuple(command[end:])


def _of_megatron(command: Sequence[str]) -> Claims:
    """The claims of Megatron-LM's arguments, if there are any; the order of experts is not among them."""
    if "--hidden-size" not in command:
        return Claims()
    return replace(claims_of_arguments(f"MEGATRON_ARGS=({shlex.join(command)})"), expert_order=None)


def _command(script: str) -> list[str]:
    lines = [line for line in script.splitlines() if "torchrun " in line]
    if len(lines) != 1:
        raise unreadable("exports.script", len(lines), "must start torchrun once")
    return words(lines[0].removeprefix("exec ").partition(" && exec sleep")[0])


def _master(script: str) -> str:
    return value(_torchrun(_command(script))[0], "--master-addr")


def _script(spec: Mapping[str, Any]) -> str:
    shell, option, script = _container(spec)["command"]
    if (shell, option) != ("bash", "-c"):
        raise unreadable("exports.command", [shell, option], "must be bash -c")
    return str(script)


def _affine(spec: Mapping[str, Any]) -> tuple[str, ...]:
    (term,) = at(spec, f"affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms")
    (match,) = at(term, "matchExpressions")
    if (at(match, "key"), at(match, "operator")) != (_HOSTNAME, "In"):
        raise unreadable("exports.affinity", match, "must be a list of hosts")
    return tuple(at(match, "values"))


def _container(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    containers: Sequence[Mapping[str, Any]] = at(spec, "containers")
    if len(containers) != 1:
        raise unreadable("exports.containers", len(containers), "must be one: GPUs of all would add up")
    return containers[0]


def _gpus(spec: Mapping[str, Any]) -> int:
    return _only(at(_container(spec), "resources.limits"))


def _only(limits: Mapping[str, Any]) -> int:
    if len(limits) not in {1, 2}:
        raise unreadable("exports.limits", dict(limits), "must limit GPUs, then network devices at most")
    return number(str(next(iter(limits.values()))), "limits")
