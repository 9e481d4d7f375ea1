"""JobSet: a replicated job for each host slot, pinned to its host, so that node rank and host agree.

Fields as in JobSet ``v1alpha2``; the pods of a JobSet find each other as ``job-slot-0-0.job``.
"""

from __future__ import annotations

from typing import Any, Final

from app.exports.contract import YAML, Export, ExportFile, Family, Files
from app.exports.launch_value import Launch
from app.exports.manifests import JOB_LABEL, check_kubernetes, headline, manifest, metadata, pinned_pod
from app.exports.options import Options
from app.exports.readback.yaml_files import PODS_SAY, read_jobset
from app.exports.start import started


def jobset_of(launch: Launch, options: Options) -> dict[str, Any]:
    """The JobSet object."""
    master = f"{options.job}-n0-0-0.{options.job}"
    jobs = []
    for slot in range(len(launch.hosts)):
        labels = {"labels": {JOB_LABEL: options.job}}
        pod = {"metadata": labels, "spec": pinned_pod(launch, options, slot=slot, master=master)}
        job = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": pod}
        jobs.append({"name": f"n{slot}", "replicas": 1, "template": {"spec": job}})
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(options),
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "replicatedJobs": jobs,
        },
    }


def render_jobset(launch: Launch, options: Options) -> Files:
    """One manifest; raises ``InvalidConfiguration`` where Kubernetes has no field for what the plan asks."""
    check_kubernetes(launch, options)
    return (ExportFile("jobset.yaml", manifest(headline(launch, options, "JobSet"), jobset_of(launch, options))),)


EXPORTS_HERE: Final = (
    Export(
        "jobset",
        "jobset.yaml",
        YAML,
        "JobSet with one pinned job a host, in rank order",
        render_jobset,
        read_jobset,
        PODS_SAY,
        Family.KUBERNETES,
        expected=started,
        refuse=check_kubernetes,
    ),
)
