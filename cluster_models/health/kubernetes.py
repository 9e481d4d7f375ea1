"""Health of Kubernetes nodes: conditions, taints, labels, cordons, GPUs that device plugins report, and events.

Sources: the Kubernetes reference of node conditions and of well-known labels, annotations and taints; its page on
device plugins (unhealthy devices leave ``allocatable`` and stay in ``capacity``); the configurations that
node-problem-detector ships; the managed detectors of AKS, EKS and GKE; SageMaker HyperPod's resilience labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cluster_models.health.events import HealthState

_FAILED, _DEGRADED = HealthState.FAILED, HealthState.DEGRADED
_DRAINING, _SUSPECTED = HealthState.DRAINING, HealthState.SUSPECTED
_RECOVERED = HealthState.RECOVERED
_READY: Final = "Ready"
GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu")
"""Extended resources that count GPUs in ``capacity`` and ``allocatable``."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One entry of ``status.conditions``."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None

    def __str__(self) -> str:
        words = ": ".join(filter(None, (self.reason, self.message)))
        return f"{self.type}={self.status}" + (f" ({words})" if words else "")


@dataclass(frozen=True, slots=True)
class Taint:
    """One entry of ``spec.taints``."""

    key: str
    value: str = ""
    effect: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The fields of a node object that speak of its health.

    ``gpus`` counts the GPUs of ``status.capacity``, ``healthy_gpus`` those of ``status.allocatable``; pods that use
    a GPU change neither.
    """

    conditions: Sequence[Condition] = ()
    taints: Sequence[Taint] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    cordoned: bool = False
    gpus: int | None = None
    healthy_gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing that is wrong with a node."""

    state: HealthState
    text: str
    since: datetime | None = None


_GOOD: Final = re.compile(r"(Ready|Healthy|Available|Ok|OK|Valid|Initialized|Succeeded|Sufficient|IsVoter)$")
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
    "node.kubernetes.io/unschedulable": _SUSPECTED,
    "node.kubernetes.io/memory-pressure": _SUSPECTED,
    "node.kubernetes.io/disk-pressure": _SUSPECTED,
    "node.kubernetes.io/pid-pressure": _SUSPECTED,
    "ToBeDeletedByClusterAutoscaler": _DRAINING,
    "karpenter.sh/disrupted": _DRAINING,
    "karpenter.sh/disruption": _DRAINING,
    "cloud.google.com/impending-node-termination": _DRAINING,
}
_TERMINATION_HANDLER: Final = "aws-node-termination-handler/"
"""First characters of the taints of AWS's handler of spot interruptions and maintenance."""
_HYPERPOD: Final[Mapping[tuple[str, str], HealthState]] = {
    ("sagemaker.amazonaws.com/node-health-status", "Unschedulable"): _SUSPECTED,
    ("sagemaker.amazonaws.com/node-health-status", "UnschedulablePendingReplacement"): _FAILED,
    ("sagemaker.amazonaws.com/node-health-status", "UnschedulablePendingReboot"): _FAILED,
    ("sagemaker.amazonaws.com/deep-health-check-status", "InProgress"): _SUSPECTED,
    ("sagemaker.amazonaws.com/deep-health-check-status", "Failed"): _FAILED,
}
"""Labels and taints of SageMaker HyperPod with their values: deep checks run, or failed."""

EVENT_REASONS: Final[Mapping[str, tuple[str, HealthState] | None]] = {
    "NodeNotReady": ("Ready", _FAILED),
    "NodeReady": ("Ready", _RECOVERED),
    "NodeNotSchedulable": ("Schedulable", _SUSPECTED),
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


def gpus_in(quantities: Mapping[str, object]) -> int | None:
    """GPUs that a node's ``capacity`` or ``allocatable`` counts; ``None`` where it counts none."""
    counts = (str(quantities[key]).strip() for key in GPU_RESOURCES if key in quantities)
    return next((int(text) for text in counts if text.isascii() and text.isdecimal() and len(text) <= 9), None)


def verdicts(node: NodeStatus) -> Iterator[Verdict]:
    """Problems of a node; none for a node that is well."""
    for condition in node.conditions:
        if (state := _of_condition(condition)) is not None:
            yield Verdict(state, str(condition), condition.since)
    for taint in node.taints:
        if (state := _of_taint(taint)) is not None:
            yield Verdict(state, f"taint {taint.key}" + (f"={taint.value}" if taint.value else ""), taint.since)
    for key, value in node.labels.items():
        if (state := _HYPERPOD.get((key, value))) is not None:
            yield Verdict(state, f"label {key}={value}")
    if node.cordoned:
        # "prevents the scheduler from placing new pods onto that Node but does not affect existing Pods"
        yield Verdict(_SUSPECTED, "cordoned (unschedulable): nothing new is placed there")
    if node.gpus and node.healthy_gpus is not None and node.healthy_gpus < node.gpus:
        yield _of_gpus(node.gpus, node.healthy_gpus)


def _of_condition(condition: Condition) -> HealthState | None:
    """``Ready`` is unknown where the kubelet is silent, as it is on a node without power: that is a failure.

    Conditions outside the table leave the node suspected.
    """
    if condition.type == _READY:
        return None if condition.status == "True" else _FAILED
    bad = "False" if _GOOD.search(condition.type) is not None else "True"
    return _CONDITIONS.get(condition.type, _SUSPECTED) if condition.status == bad else None


def _of_taint(taint: Taint) -> HealthState | None:
    """``None`` for taints that only keep pods away, as those of GPU nodes."""
    if taint.effect == "PreferNoSchedule":
        return None
    if taint.key.startswith(_TERMINATION_HANDLER):
        return _DRAINING
    return _TAINTS.get(taint.key) or _HYPERPOD.get((taint.key, taint.value))


def _of_gpus(gpus: int, healthy: int) -> Verdict:
    """Some unhealthy GPUs whose numbers nobody says take the node with them.

    None healthy is also what a device plugin that restarts looks like, while jobs run on.
    """
    if healthy == 0:
        text = f"no GPU of {gpus} is allocatable: all are unhealthy, or the device plugin does not run"
        return Verdict(_SUSPECTED, text)
    return Verdict(_FAILED, f"{gpus - healthy} of {gpus} GPUs are unhealthy (not allocatable)")
