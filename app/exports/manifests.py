"""Common parts of all Kubernetes manifests: pods, their commands, and YAML that every reader takes alike.

Ranks must sit where the plan puts them.  Where a kind of job has a template a pod, each host slot gets its own pod,
pinned to its host; where all pods share one template, a pod finds its node rank by the name of the node it runs on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import yaml

from app.exports.contract import unsupported
from app.exports.launch_value import Launch
from app.exports.megatron_releases import starts_megatron
from app.exports.options import Options
from app.exports.start import environment, one_line, start_remarks
from cluster_models.errors import InvalidConfiguration

HOSTNAME: Final = "kubernetes.io/hostname"
JOB_LABEL: Final = "meshwright/job"
_LONGEST_LABEL: Final = 63
_SUFFIX: Final = len("-n9999-0-0-xxxxx")
"""Characters that controllers add to the name of the job in the names of pods."""


class _Writer(yaml.SafeDumper):
    """Quotes what any YAML reader may take for a number or a truth value: ``1e3`` and ``y`` are host names."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - as in PyYAML
        """Lists are indented below their keys."""
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - as in PyYAML
        """Equal values are written out each time."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else '"' if text[:1] in "0123456789.+" or text in "yYnN" else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Writer.add_representer(str, _text)


def manifest(comments: tuple[str, ...], *documents: Mapping[str, Any]) -> str:
    """The documents as one YAML file below its comments."""
    head = "".join(f"# {line}\n" for line in comments)
    body = yaml.dump_all(documents, Dumper=_Writer, sort_keys=False, width=10_000, allow_unicode=True)
    return head + body


def metadata(options: Options, **more: Any) -> dict[str, Any]:
    """Name, namespace and our label of the job."""
    return {"name": options.job, "namespace": options.namespace, "labels": {JOB_LABEL: options.job}} | more


def check_kubernetes(launch: Launch, options: Options) -> None:
    """Raise ``InvalidConfiguration`` where Kubernetes has no field for what the plan asks."""
    if not launch.whole_hosts:
        raise unsupported(
            "Kubernetes",
            "gpus",
            launch.gpus,
            "its device plugin chooses the GPUs of a pod, so GPUs that other jobs hold cannot be passed over",
            "use the torchrun or slurm export, or plan with whole nodes",
        )
    for host in launch.hosts:
        if len(host) > _LONGEST_LABEL:
            raise InvalidConfiguration(
                "configuration.hosts", host, f"is longer than a label value, {_LONGEST_LABEL} characters"
            )
    if len(options.job) + _SUFFIX > _LONGEST_LABEL:
        raise InvalidConfiguration(
            "options.job",
            options.job,
            f"leaves no room for the names of its pods (at most {_LONGEST_LABEL - _SUFFIX} characters)",
            "choose a shorter name",
        )


def torchrun(launch: Launch, options: Options, *, rank: str, master: str) -> str:
    """The command of one host in a line of bash: torchrun in static mode, then what every rank runs."""
    words = [
        "torchrun",
        f"--nnodes={len(launch.hosts)}",
        f"--nproc-per-node={launch.gpus_per_host}",
        f"--node-rank={rank}",
        f"--master-addr={master}",
        f"--master-port={options.port}",
    ]
    return f"{' '.join(words)} {one_line(launch, options)}"


def script_by_node(launch: Launch, options: Options, *, master: str, after: str = "") -> str:
    """A bash script that looks up its node rank by ``NODE_NAME``, for pods that share one template."""
    start = torchrun(launch, options, rank='"$NODE_RANK"', master=f'"{master}"')
    return "\n".join(
        [
            'case "$NODE_NAME" in',
            *(f"    {host}) NODE_RANK={slot} ;;" for slot, host in enumerate(launch.hosts)),
            '    *) echo "$NODE_NAME is not in this plan" >&2; exit 2 ;;',
            "esac",
            f"{'' if after else 'exec '}{start}{after}",
            "",
        ]
    )


def container(launch: Launch, options: Options, script: str, *, name: str = "ranks") -> dict[str, Any]:
    """The one container of a pod: all GPUs of its host, network devices where they are asked for."""
    limits: dict[str, int] = {options.gpu_resource: launch.gpus_per_host}
    if options.rdma_resource:
        limits[options.rdma_resource] = options.rdma_count
    variables = {"CHECKPOINT_PATH": options.checkpoint} | environment(launch)
    made: dict[str, Any] = {
        "name": name,
        "image": options.image,
        "command": ["bash", "-c", script],
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "resources": {"limits": limits},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - where NCCL looks for it
    }
    if options.ipc_lock and (options.rdma_resource or options.host_network):
        made["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    return made


def pinned_pod(launch: Launch, options: Options, *, slot: int, master: str) -> dict[str, Any]:
    """The pod spec of one host slot, pinned to its host."""
    script = f"exec {torchrun(launch, options, rank=str(slot), master=master)}\n"
    return {
        "restartPolicy": "Never",
        **(HOST_NETWORK if options.host_network else {}),
        "nodeSelector": {HOSTNAME: launch.hosts[slot]},
        "containers": [container(launch, options, script)],
        "volumes": [shared_memory(options)],
    }


def floating_pod(
    launch: Launch, options: Options, hosts: tuple[str, ...], script: str, *, name: str = "ranks"
) -> dict[str, Any]:
    """A pod spec that fits each of ``hosts`` once and finds its rank there."""
    here = container(launch, options, script, name=name)
    here["env"].append({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    network = HOST_NETWORK if options.host_network else {}
    return network | {
        "affinity": one_pod_a_host(options, hosts),
        "containers": [here],
        "volumes": [shared_memory(options)],
    }


def host_network_pod(launch: Launch, options: Options, script: str, *, name: str) -> dict[str, Any]:
    """A floating pod on the network of its host, where rank 0 is reached by the name of that host."""
    on_host = replace(options, host_network=True)
    return {"restartPolicy": "Never"} | floating_pod(launch, on_host, launch.hosts, script, name=name)


HOST_NETWORK: Final = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}


def shared_memory(options: Options) -> dict[str, Any]:
    """The volume under ``/dev/shm``, through which NCCL and data loaders of a host exchange data."""
    size = {"sizeLimit": options.shared_memory} if options.shared_memory else {}
    return {"name": "shm", "emptyDir": {"medium": "Memory"} | size}


def one_pod_a_host(options: Options, hosts: tuple[str, ...]) -> dict[str, Any]:
    """Affinity to the hosts, and none to other pods of the job."""
    match = [{"key": HOSTNAME, "operator": "In", "values": list(hosts)}]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": match}]}
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {JOB_LABEL: options.job}}, "topologyKey": HOSTNAME}
            ]
        },
    }


def headline(launch: Launch, options: Options, kind: str) -> tuple[str, ...]:
    """The first comments of a manifest."""
    count, size = len(launch.hosts), launch.gpus_per_host
    lines = [
        f"Meshwright: {launch.degrees} as {kind}, {count} hosts x {size} GPUs = {launch.world} GPUs.",
        "Add data, volumes and secrets; leave hosts, GPUs and ranks.",
        *start_remarks(launch),
    ]
    if not options.checkpoint and starts_megatron(launch.plan):
        lines.append("CHECKPOINT_PATH is empty: pods stop until it names the folder of checkpoints.")
    if not options.rdma_resource and count > 1:
        lines.append("No network device is asked for: without one (option rdma_resource) hosts may talk over TCP.")
    return tuple(lines)
