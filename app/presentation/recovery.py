"""Failures and what is done about them, in plain words: for somebody who was just woken up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.presentation.figures import NOT_KNOWN, count, duration, plural, seconds
from app.services.health.health_events import EventRecord
from app.services.running.plan_contents import RunningPlanSummary
from cluster_models.health.conditions import OPERATOR, Condition
from cluster_models.health.events import Entity, EntityKind, HealthState
from cluster_models.jobs.recovery import Migration, RecoveryAction, StateSource
from cluster_models.jobs.times import TimeRange
from cluster_models.units import GBYTE


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a decision; ``starts`` is the id of the job that it starts, empty where it starts none."""

    sentence: str
    starts: str = ""


ACTIONS: Final[Mapping[RecoveryAction, str]] = {
    RecoveryAction.NONE: "runs on unchanged",
    RecoveryAction.RESTART_IN_PLACE: "starts again on the same GPUs",
    RecoveryAction.SWAP: "moves to spare nodes where it lost some",
    RecoveryAction.SHRINK_DATA_PARALLEL: "goes on smaller, without the replicas it lost",
    RecoveryAction.REROUTE: "goes on; other replicas take over the lost work",
    RecoveryAction.RESHAPE: "starts again in another shape",
    RecoveryAction.WAIT: "waits for its nodes to come back",
    RecoveryAction.PAUSE: "pauses and gives up its GPUs",
}
"""Outcome for a job; the job's name stands before it."""
OTHER_ACTIONS: Final[Mapping[RecoveryAction, str]] = {
    RecoveryAction.NONE: "Leave it as it is",
    RecoveryAction.RESTART_IN_PLACE: "Start it again on the same GPUs",
    RecoveryAction.SWAP: "Take spare nodes",
    RecoveryAction.SHRINK_DATA_PARALLEL: "Drop the replicas that lost GPUs",
    RecoveryAction.REROUTE: "Let other replicas take over the work",
    RecoveryAction.RESHAPE: "Use another shape",
    RecoveryAction.WAIT: "Wait for the nodes",
    RecoveryAction.PAUSE: "Pause it",
}
STATES: Final[Mapping[HealthState, str]] = {
    HealthState.FAILED: "failed",
    HealthState.DEGRADED: "slower than it should be",
    HealthState.DRAINING: "to be left soon",
    HealthState.SUSPECTED: "under suspicion",
    HealthState.RECOVERED: "well again",
}
SOURCES: Final[Mapping[StateSource, str]] = {
    StateSource.SAME_GPU: "the same GPU",
    StateSource.SAME_NODE: "the same node",
    StateSource.PEER: "a live copy on",
    StateSource.HOST_MEMORY: "a checkpoint in the memory of",
    StateSource.CHECKPOINT: "the last checkpoint on storage",
}
_SIZES: Final = ((1e15, "PB"), (1e12, "TB"), (GBYTE, "GB"), (1e6, "MB"), (1e3, "kB"))


def entity_words(entity: Entity) -> str:
    """A part of a cluster: "GPU 3 of node-7"."""
    if entity.kind is EntityKind.GPU:
        return f"GPU {entity.part} of {entity.node}"
    if entity.kind is EntityKind.NIC:
        return f"network card {entity.part} of {entity.node}"
    if entity.kind is EntityKind.LINK:
        return f"link {entity.node} to {entity.part}"
    if entity.kind is EntityKind.SWITCH:
        label, _, place = entity.part.partition(":")
        return f"{label} switch {place}"
    return f"node {entity.node}"


def moment(at: datetime) -> str:
    """A moment to the second: "01 Mar 2026 12:00:07 UTC"."""
    return f"{at:%d %b %Y %H:%M:%S} UTC"


def duration_range(span: TimeRange) -> str:
    """A range of seconds: "2 min to 5 min"."""
    low, high = duration(span.low_s), duration(span.high_s)
    return low if low == high else f"{low} to {high}"


def data_size(size: float) -> str:
    """Bytes in decimal units, three digits at most: "12.3 GB"."""
    for unit_bytes, unit in _SIZES:
        if size >= unit_bytes:
            value = size / unit_bytes
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return "nothing" if size < 1 else f"{size:.0f} bytes"


def fallback_words(migration: Migration) -> str:
    """Checkpoint that a job goes on from, and why; empty where ranks hand over what lies on their GPUs."""
    if migration.saves_first:
        saving = duration_range(migration.save)
        return f"Save a checkpoint before you stop it (about {saving}): it starts from that and repeats nothing."
    back = f"it goes back to its last checkpoint and repeats about {plural(round(migration.steps_lost), 'step')}."
    if migration.state_without_copy_bytes:
        return f"{data_size(migration.state_without_copy_bytes)} of its state has no live copy: {back}"
    return f"It starts cold, for its framework hands over no live state: {back}" if migration.steps_lost else ""


def rate_words(plan: RunningPlanSummary) -> str:
    """Rate that a plan which a job runs by was made for."""
    if plan.step_s is None:
        return f"{count(plan.tokens_per_s)} output tokens/s"
    return f"{tokens_per_s(plan.tokens_per_s)}, {seconds(plan.step_s)} a step"


def tokens_per_s(rate: float) -> str:
    """A throughput of training."""
    return f"{count(rate)} tokens/s" if rate else "stands still"


def change(before: float, after: float) -> str:
    """Change of a throughput: "12 % less", "unchanged"."""
    if before <= 0:
        return NOT_KNOWN
    share = after / before - 1
    if abs(share) < 0.0005:
        return "unchanged"
    places = 0 if abs(share) >= 0.1 else 1
    return f"{100 * abs(share):.{places}f} % {'more' if share > 0 else 'less'}"


def source_words(name: str) -> str:
    """Source of a report, in words."""
    return "an operator" if name == OPERATOR else name


def condition_notes(each: Condition, now: datetime) -> str:
    """Facts about a part that is not well, beside its state."""
    notes = [each.code, each.text]
    if each.compute_slowdown > 1:
        notes.append(f"computes {each.compute_slowdown:.3g} times as long")
    if each.bandwidth_share < 1:
        notes.append(f"{100 * each.bandwidth_share:.0f} % of its bandwidth is left")
    if each.failures > 1:
        notes.append(f"failed {each.failures} times")
    if each.leave_by is not None:
        notes.append(f"to be left by {moment(each.leave_by)}")
    if each.quiet_until is not None and (left_s := (each.quiet_until - now).total_seconds()) > 0:
        notes.append(f"reported well again; counts as well after {duration(left_s)} more without trouble")
    return "; ".join(filter(None, notes))


def event_notes(each: EventRecord) -> str:
    """Details of a report beside the state of its part."""
    event = each.event
    leave = f"by {moment(event.leave_by)}" if event.leave_by else ""
    again = f"came {each.repeats + 1} times" if each.repeats else ""
    return "; ".join(filter(None, (event.code, event.text, event.device, leave, again)))
