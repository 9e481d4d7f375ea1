"""LeaderWorkerSet: one group of a leader on the first host and workers on the others.

Fields as in LeaderWorkerSet ``v1``.  All workers share one template, so that no index can be pinned to a host: each
pod looks up its node rank by the name of its node, and the leader, where all ranks meet, is pinned to the first.
"""

from __future__ import annotations

from typing import Any, Final

from app.exports.contract import YAML, Export, ExportFile, Family, Files
from app.exports.launch_value import Launch
from app.exports.manifests import (
    JOB_LABEL,
    check_kubernetes,
    floating_pod,
    headline,
    manifest,
    metadata,
    script_by_node,
)
from app.exports.options import Options
from app.exports.readback.yaml_files import PODS_SAY, read_lws
from app.exports.start import started


def render_lws(launch: Launch, options: Options) -> Files:
    """One manifest; raises ``InvalidConfiguration`` where Kubernetes has no field for what the plan asks."""
    check_kubernetes(launch, options)
    script = script_by_node(launch, options, master="$LWS_LEADER_ADDRESS", after=" && exec sleep infinity")

    def template(hosts: tuple[str, ...]) -> dict[str, Any]:
        labels = {"labels": {JOB_LABEL: options.job}}
        return {"metadata": labels, "spec": floating_pod(launch, options, hosts, script)}

    group = {
        "size": len(launch.hosts),
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": template(launch.hosts[:1]),
        "workerTemplate": template(launch.hosts[1:] or launch.hosts),
    }
    lws = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata(options),
        "spec": {"replicas": 1, "leaderWorkerTemplate": group},
    }
    notes = (
        "Pods of a LeaderWorkerSet are started again when they end: ranks that are done sleep until it is deleted.",
        "Names of nodes and their label kubernetes.io/hostname must be the same.",
    )
    return (ExportFile("lws.yaml", manifest((*headline(launch, options, "LeaderWorkerSet"), *notes), lws)),)


EXPORTS_HERE: Final = (
    Export(
        "lws",
        "lws.yaml",
        YAML,
        "LeaderWorkerSet whose pods find their rank by their node",
        render_lws,
        read_lws,
        PODS_SAY,
        Family.KUBERNETES,
        expected=started,
        refuse=check_kubernetes,
    ),
)
