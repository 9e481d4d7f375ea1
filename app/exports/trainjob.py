"""Kubeflow TrainJob with a runtime of its own: a pod a host, each finding its node rank by its node.

Fields as in Kubeflow Trainer ``v1alpha1``.  All pods of a TrainJob share one template and the trainer numbers them
as it likes; rank 0 therefore listens on the network of its host, under the name of that host.
"""

from __future__ import annotations

from typing import Any, Final

from app.exports.contract import YAML, Export, ExportFile, Family, Files
from app.exports.launch_value import Launch
from app.exports.manifests import (
    JOB_LABEL,
    check_kubernetes,
    headline,
    host_network_pod,
    manifest,
    metadata,
    script_by_node,
)
from app.exports.options import Options
from app.exports.readback.yaml_files import PODS_SAY, read_trainjob
from app.exports.start import started

_API: Final = "trainer.kubeflow.org/v1alpha1"


def render_trainjob(launch: Launch, options: Options) -> Files:
    """One file of a runtime and its job; raises ``InvalidConfiguration`` where Kubernetes has no field for it."""
    check_kubernetes(launch, options)
    notes = (
        "Pods use the network of their hosts: host names must resolve there.",
        "Names of nodes and their label kubernetes.io/hostname must be the same.",
    )
    documents = (_runtime(launch, options), _job(launch, options))
    return (ExportFile("trainjob.yaml", manifest((*headline(launch, options, "TrainJob"), *notes), *documents)),)


def _runtime(launch: Launch, options: Options) -> dict[str, Any]:
    script = script_by_node(launch, options, master=launch.hosts[0])
    pod = host_network_pod(launch, options, script, name="node")
    labels = {JOB_LABEL: options.job}
    job = {"backoffLimit": 0, "template": {"metadata": {"labels": labels}, "spec": pod}}
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    return {
        "apiVersion": _API,
        "kind": "TrainingRuntime",
        "metadata": metadata(options),
        "spec": {
            "mlPolicy": {"numNodes": len(launch.hosts)},
            "template": {
                "spec": {
                    "replicatedJobs": [
                        {"name": "node", "replicas": 1, "template": {"metadata": {"labels": step}, "spec": job}}
                    ]
                }
            },
        },
    }


def _job(launch: Launch, options: Options) -> dict[str, Any]:
    return {
        "apiVersion": _API,
        "kind": "TrainJob",
        "metadata": metadata(options),
        "spec": {
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": options.job},
            "trainer": {
                "image": options.image,
                "numNodes": len(launch.hosts),
                "resourcesPerNode": {"limits": {options.gpu_resource: launch.gpus_per_host}},
            },
        },
    }


EXPORTS_HERE: Final = (
    Export(
        "trainjob",
        "trainjob.yaml",
        YAML,
        "Kubeflow TrainJob with its runtime, a pod a host",
        render_trainjob,
        read_trainjob,
        PODS_SAY,
        Family.KUBERNETES,
        expected=started,
        refuse=check_kubernetes,
    ),
)
