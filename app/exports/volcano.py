"""Volcano: a job with a task for each host slot, all started together, each pinned to its host.

Fields as in Volcano ``batch.volcano.sh/v1alpha1``; its ``svc`` plugin names the pods ``job-task-0.job``.  The
network topology stays soft: hosts are pinned already, and a hard tier that no HyperNode has would never start.
"""

from __future__ import annotations

from typing import Final

from app.exports.contract import YAML, Export, ExportFile, Family, Files
from app.exports.launch_value import Launch
from app.exports.manifests import JOB_LABEL, check_kubernetes, headline, manifest, metadata, pinned_pod
from app.exports.options import Options
from app.exports.readback.yaml_files import PODS_SAY, read_volcano
from app.exports.start import started


def render_volcano(launch: Launch, options: Options) -> Files:
    """One manifest; raises ``InvalidConfiguration`` where Kubernetes has no field for what the plan asks."""
    check_kubernetes(launch, options)
    master = f"{options.job}-n0-0.{options.job}"
    tasks = [
        {
            "name": f"n{slot}",
            "replicas": 1,
            "template": {
                "metadata": {"labels": {JOB_LABEL: options.job}},
                "spec": pinned_pod(launch, options, slot=slot, master=master),
            },
        }
        for slot in range(len(launch.hosts))
    ]
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": metadata(options),
        "spec": {
            "schedulerName": "volcano",
            "queue": options.queue,
            "minAvailable": len(launch.hosts),
            "plugins": {"svc": []},
            "networkTopology": {"mode": "soft"},
            "tasks": tasks,
        },
    }
    return (ExportFile("volcano.yaml", manifest(headline(launch, options, "Volcano job"), job)),)


EXPORTS_HERE: Final = (
    Export(
        "volcano",
        "volcano.yaml",
        YAML,
        "Volcano job with one pinned task a host, started together",
        render_volcano,
        read_volcano,
        PODS_SAY,
        Family.KUBERNETES,
        expected=started,
        refuse=check_kubernetes,
    ),
)
