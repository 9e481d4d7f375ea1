"""One file through both doors: the importer and the readers of events give the same verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.imports.sources import SentFile, open_files
from cluster_models.cluster.topology import NodeState
from cluster_models.health.events import HealthState
from cluster_models.health.states import NODE_STATES
from readers.frame.facts import HealthFact, HostFact
from readers.registry import read as read_file
from tests.app.events.reports import read

STATE_OF_HEALTH = "sagemaker.amazonaws.com/node-health-status"


def imported(name: str, text: str) -> list[HostFact | HealthFact]:
    """Facts of the importer about hosts and their troubles."""
    (source,) = open_files([SentFile(name, text.encode())]).sources
    facts = [fact for _, found in read_file(source).sections for fact in found.facts]
    return [fact for fact in facts if isinstance(fact, HostFact | HealthFact)]


def kubernetes_node(allocatable: int = 8, status: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A node of eight GPUs with conditions, labels and whatever its spec holds."""
    labels = spec.pop("labels", {})
    conditions = {"Ready": "True"} | (status or {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.count": "8"} | labels},
        "spec": spec,
        "status": {
            "capacity": {"nvidia.com/gpu": "8"},
            "allocatable": {"nvidia.com/gpu": str(allocatable)},
            "conditions": [{"type": kind, "status": state} for kind, state in conditions.items()],
        },
    }


@pytest.mark.parametrize(
    ("node", "state"),
    [
        (kubernetes_node(), HealthState.RECOVERED),
        (kubernetes_node(status={"KernelDeadlock": "True"}), HealthState.FAILED),
        (kubernetes_node(status={"Ready": "Unknown"}), HealthState.FAILED),
        (kubernetes_node(status={"MemoryPressure": "True"}), HealthState.SUSPECTED),
        (kubernetes_node(status={"NVLinkStatusInactive": "True"}), HealthState.DEGRADED),
        (kubernetes_node(status={"TerminateScheduled": "True"}), HealthState.DRAINING),
        (kubernetes_node(allocatable=7), HealthState.FAILED),
        (kubernetes_node(allocatable=0), HealthState.SUSPECTED),
        (kubernetes_node(unschedulable=True), HealthState.SUSPECTED),
        (kubernetes_node(labels={STATE_OF_HEALTH: "Schedulable"}), HealthState.RECOVERED),
        (kubernetes_node(labels={STATE_OF_HEALTH: "UnschedulablePendingReplacement"}), HealthState.FAILED),
        (
            kubernetes_node(
                taints=[{"key": STATE_OF_HEALTH, "value": "UnschedulablePendingReboot", "effect": "NoSchedule"}]
            ),
            HealthState.FAILED,
        ),
        (kubernetes_node(taints=[{"key": STATE_OF_HEALTH, "value": "Unschedulable"}]), HealthState.SUSPECTED),
        (kubernetes_node(taints=[{"key": "karpenter.sh/disrupted"}]), HealthState.DRAINING),
        (kubernetes_node(taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]), HealthState.RECOVERED),
    ],
)
def test_a_kubernetes_node(node: dict[str, Any], state: HealthState) -> None:
    """Conditions, taints, labels of HyperPod, cordons, and GPUs that the device plugin took out."""
    (event,) = read("kubernetes", node).events
    host, *troubles = imported("nodes.json", json.dumps(node))
    assert event.state is state
    assert host.state is NODE_STATES[state]
    assert bool(troubles) == (state is not HealthState.RECOVERED)


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ("IDLE", HealthState.RECOVERED),
        ("MIXED+PLANNED", HealthState.RECOVERED),
        ("IDLE+FAIL", HealthState.DRAINING),
        ("ALLOCATED+FAILING", HealthState.DRAINING),
        ("IDLE+POWERED_DOWN", HealthState.DRAINING),
        ("IDLE+INVALID_REG", HealthState.DRAINING),
        ("MIXED+DRAIN", HealthState.DRAINING),
        ("IDLE*", HealthState.FAILED),
        ("DOWN*+DRAIN", HealthState.FAILED),
        ("FUTURE", HealthState.SUSPECTED),
        ("UNKNOWN", HealthState.SUSPECTED),
    ],
)
def test_a_slurm_node(states: str, state: HealthState) -> None:
    """FAIL is "expected to fail soon" in Slurm's manual: the node still works."""
    text = f"NodeName=n1 Arch=x86_64 CPUTot=192\n   Gres=gpu:h100:8\n   State={states} ThreadsPerCore=2\n"
    (event,) = read("slurm", text).events
    (host,) = imported("nodes.txt", text)
    assert (event.state, host.state) == (state, NODE_STATES[state])


@pytest.mark.parametrize("xid", range(1, 160))
def test_an_xid(xid: int) -> None:
    """Every number of NVIDIA's catalogue; the application's faults mark nothing at either door."""
    line = f"2026-01-05T01:02:03+00:00 n1 kernel: NVRM: Xid (PCI:0000:1B:00): {xid}, pid=7, words\n"
    events = [(each.part, NODE_STATES[each.state]) for each in read("dcgm", line).events]
    facts: list[tuple[str, NodeState | None]] = [
        (fact.entity.removeprefix("gpu:"), fact.state)
        for fact in imported("kern.log", line)
        if isinstance(fact, HealthFact)
    ]
    assert facts == events


def test_a_gpu_off_the_bus_is_xid_79_at_both_doors() -> None:
    line = "Jan  7 01:02:03 n1 kernel: NVRM: GPU at PCI:0000:4e:00: GPU-5e0c has fallen off the bus.\n"
    (event,) = read("dcgm", line).events
    (fact,) = imported("kern.log", line)
    assert isinstance(fact, HealthFact)
    assert (fact.entity, fact.state) == (f"gpu:{event.part}", NODE_STATES[event.state])
    assert (event.code, fact.text.partition(":")[0]) == ("Xid 79", "Xid 79")


def test_a_recovery_that_the_log_announces_ends_the_trouble() -> None:
    """Xid 154 to "None" behind an Xid that asked for a reset."""
    head = "2026-01-05T01:02:03+00:00 n1 kernel: NVRM: Xid (PCI:0000:1b:00): "
    text = f"{head}119, pid=7, Timeout\n{head}154, GPU recovery action changed from 0x1 (GPU Reset) to 0x0 (None)\n"
    assert [each.state for each in read("dcgm", text).events] == [HealthState.FAILED, HealthState.RECOVERED]
    assert imported("kern.log", text) == []
