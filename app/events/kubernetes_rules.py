"""What conditions, taints and events of Kubernetes nodes mean.

Sources: the reference of node conditions and of well-known labels and taints, the configurations that
node-problem-detector ships, and the managed detectors of AKS, EKS and GKE (docs/events.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cluster_models.health_events import HealthState

_FAILED, _DEGRADED = HealthState.FAILED, HealthState.DEGRADED
_DRAINING, _SUSPECTED = HealthState.DRAINING, HealthState.SUSPECTED
_RECOVERED = HealthState.RECOVERED


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a node."""

    state: HealthState
    text: str
    since: datetime | None = None


_GOOD: Final = re.compile(r"(Ready|Healthy|Available|Ok|OK|Valid|Initialized|Succeeded|Sufficient)$")
"""Conditions that are well while they are true; all others are problems while they are true."""
_CONDITIONS: Final[Mapping[str, HealthState]] = {
    "NetworkUnavailable": _FAILED,
    "MemoryPressure": _SUSPECTED,
    "DiskPressure": _SUSPECTED,
    "PIDPressure": _SUSPECTED,
    "KernelDeadlock": _FAILED,
    "ReadonlyFilesystem": _FAILED,
    "FilesystemCorruptionProblem": _FAILED,
    "AcceleratedHardwareReady": _FAILED,
    "GPUMissing": _FAILED,
    "IBLinkFlapping": _DEGRADED,
    "NVLinkStatusInactive": _DEGRADED,
    "GPUProblem": _FAILED,
    "GpuXidError": _FAILED,
    "XIDHWSchedulingError": _FAILED,
    "VMEventScheduled": _DRAINING,
    "FreezeScheduled": _DRAINING,
    "RebootScheduled": _DRAINING,
    "RedeployScheduled": _DRAINING,
    "TerminateScheduled": _DRAINING,
    "PreemptScheduled": _DRAINING,
}
_TAINTS: Final[Mapping[str, HealthState]] = {
    "node.kubernetes.io/not-ready": _FAILED,
    "node.kubernetes.io/unreachable": _FAILED,
    "node.kubernetes.io/out-of-service": _FAILED,
    "node.kubernetes.io/network-unavailable": _FAILED,
    "node.cloudprovider.kubernetes.io/shutdown": _FAILED,
    "node.kubernetes.io/unschedulable": _DRAINING,
    "node.kubernetes.io/memory-pressure": _SUSPECTED,
    "node.kubernetes.io/disk-pressure": _SUSPECTED,
    "node.kubernetes.io/pid-pressure": _SUSPECTED,
    "ToBeDeletedByClusterAutoscaler": _DRAINING,
    "karpenter.sh/disrupted": _DRAINING,
    "karpenter.sh/disruption": _DRAINING,
    "cloud.google.com/impending-node-termination": _DRAINING,
}
_NOTICE: Final = "aws-node-termination-handler/"
"""How the taints of AWS's handler of spot interruptions and maintenance begin."""

EVENT_REASONS: Final[Mapping[str, tuple[str, HealthState] | None]] = {
    "NodeNotReady": ("Ready", _FAILED),
    "NodeReady": ("Ready", _RECOVERED),
    "NodeNotSchedulable": ("Schedulable", _DRAINING),
    "NodeSchedulable": ("Schedulable", _RECOVERED),
    "DeletingNode": ("Deleted", _FAILED),
    "RemovingNode": ("Deleted", _FAILED),
    "RegisteredNode": ("Deleted", _RECOVERED),
    "NodeHasDiskPressure": ("DiskPressure", _SUSPECTED),
    "NodeHasNoDiskPressure": ("DiskPressure", _RECOVERED),
    "NodeHasInsufficientMemory": ("MemoryPressure", _SUSPECTED),
    "NodeHasSufficientMemory": ("MemoryPressure", _RECOVERED),
    "NodeHasInsufficientPID": ("PIDPressure", _SUSPECTED),
    "NodeHasSufficientPID": ("PIDPressure", _RECOVERED),
    "FilesystemIsReadOnly": ("ReadonlyFilesystem", _FAILED),
    "FilesystemIsNotReadOnly": ("ReadonlyFilesystem", _RECOVERED),
    "AUFSUmountHung": ("KernelDeadlock", _FAILED),
    "DockerHung": ("KernelDeadlock", _FAILED),
    "KernelHasNoDeadlock": ("KernelDeadlock", _RECOVERED),
    "FreezeScheduled": ("VMEventScheduled", _DRAINING),
    "RebootScheduled": ("VMEventScheduled", _DRAINING),
    "RedeployScheduled": ("VMEventScheduled", _DRAINING),
    "TerminateScheduled": ("VMEventScheduled", _DRAINING),
    "PreemptScheduled": ("VMEventScheduled", _DRAINING),
    "NoVMEventScheduled": ("VMEventScheduled", _RECOVERED),
    "SpotInterruption": ("SpotInterruption", _DRAINING),
    "Rebooted": None,
    "SystemOOM": None,
    "OOMKilling": None,
    "InvalidDiskCapacity": None,
    "ImageGCFailed": None,
    "ContainerGCFailed": None,
    "FreeDiskSpaceFailed": None,
    "EvictionThresholdMet": None,
    "CheckLimitsForResolvConf": None,
}
"""Finding and state of an event's reason; ``None``: it does not say that the node works less than it should."""


def condition_finding(kind: str, status: str) -> HealthState | None:
    """What a condition of a node in that status makes of it; ``None``: it is well.

    ``Ready`` is unknown where the kubelet is silent, as it is on a node without power: that is a failure.
    Conditions that no rule names leave the node suspected.
    """
    if kind == "Ready":
        return None if status == "True" else _FAILED
    bad = "False" if _GOOD.search(kind) is not None else "True"
    return _CONDITIONS.get(kind, _SUSPECTED) if status == bad else None


def taint_finding(key: str) -> HealthState | None:
    """What a taint says of its node; ``None`` for taints that only keep pods away, as those of GPU nodes."""
    return _DRAINING if key.startswith(_NOTICE) else _TAINTS.get(key)
