"""Kueue: a JobSet as a queued workload, with the topology that topology-aware scheduling needs.

Fields as in Kueue ``v1beta1``.  A workload has at most 8 pod sets (18 in ``v1beta2``), so that not every host can
have its own: all pods share one template and find their node rank by their node.  The quota is exactly the GPUs of
the plan.
"""

from __future__ import annotations

from typing import Any, Final

from app.exports.contract import ZIP, Export, ExportFile, Family, Files
from app.exports.launch_value import Launch
from app.exports.manifests import (
    HOSTNAME,
    JOB_LABEL,
    check_kubernetes,
    headline,
    host_network_pod,
    manifest,
    metadata,
    script_by_node,
)
from app.exports.options import Options
from app.exports.readback.yaml_files import PODS_SAY, read_kueue
from app.exports.start import started

_GROUP: Final = "kueue.x-k8s.io"
_API: Final = f"{_GROUP}/v1beta1"


def render_kueue(launch: Launch, options: Options) -> Files:
    """``jobset.yaml`` for the queue, and ``queue.yaml`` for clusters that have no such queue yet."""
    check_kubernetes(launch, options)
    notes = (
        "Kueue starts it: it stays suspended until the whole job is admitted.",
        "Pods use the network of their hosts: host names must resolve there.",
        "Names of nodes and their label kubernetes.io/hostname must be the same.",
    )
    queue_notes = ("Only where the cluster has no such queue; its quota is what this plan takes.",)
    job = manifest((*headline(launch, options, "JobSet for Kueue"), *notes), _jobset(launch, options))
    return (
        ExportFile("jobset.yaml", job),
        ExportFile("queue.yaml", manifest(queue_notes, *_queue(launch, options))),
    )


def _jobset(launch: Launch, options: Options) -> dict[str, Any]:
    topology = (
        {f"{_GROUP}/podset-required-topology": options.topology_label}
        if options.topology_label
        else {f"{_GROUP}/podset-unconstrained-topology": "true"}
    )
    script = script_by_node(launch, options, master=launch.hosts[0])
    pod = host_network_pod(launch, options, script, name="ranks")
    template = {"metadata": {"labels": {JOB_LABEL: options.job}, "annotations": topology}, "spec": pod}
    count = len(launch.hosts)
    job = {"parallelism": count, "completions": count, "backoffLimit": 0, "template": template}
    named = metadata(options)
    named["labels"][f"{_GROUP}/queue-name"] = options.queue
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": named,
        "spec": {
            "suspend": True,
            "replicatedJobs": [{"name": "ranks", "replicas": 1, "template": {"spec": job}}],
        },
    }


def _queue(launch: Launch, options: Options) -> tuple[dict[str, Any], ...]:
    levels = [*([options.topology_label] if options.topology_label else []), HOSTNAME]
    name = options.queue
    resource = {"name": options.gpu_resource, "nominalQuota": launch.world}
    group = {"coveredResources": [options.gpu_resource], "flavors": [{"name": name, "resources": [resource]}]}
    return (
        {
            "apiVersion": _API,
            "kind": "Topology",
            "metadata": {"name": name},
            "spec": {"levels": [{"nodeLabel": level} for level in levels]},
        },
        {
            "apiVersion": _API,
            "kind": "ResourceFlavor",
            "metadata": {"name": name},
            "spec": {"nodeLabels": {"kubernetes.io/os": "linux"}, "topologyName": name},
        },
        {
            "apiVersion": _API,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": _API,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": options.namespace},
            "spec": {"clusterQueue": name},
        },
    )


EXPORTS_HERE: Final = (
    Export(
        "kueue",
        "kueue.zip",
        ZIP,
        "JobSet queued by Kueue, with its Topology and queues",
        render_kueue,
        read_kueue,
        PODS_SAY,
        Family.KUBERNETES,
        expected=started,
        refuse=check_kubernetes,
    ),
)
