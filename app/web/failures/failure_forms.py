"""The forms about failures of a cluster: a report by hand, spares, settings, and another name of a node."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.datastructures import FormData

from app.documents.reading import close_name
from app.events.reading import ReportedEvent
from app.presentation.recovery import OTHER_ACTIONS, STATES
from app.services.decisions.replan_settings import BACK_AFTER, ReplanSettings
from app.web.forms import FormProblem, Typed, number
from app.web.planning.choices import Options
from cluster_models.cluster.topology import Cluster, Node
from cluster_models.errors import InvalidInput
from cluster_models.health.events import UNSTATED, EntityKind, HealthState
from cluster_models.jobs.recovery import RecoveryAction

_SWITCHES: Final = ("leaf", "rack", "nvlink_domain", "zone")
_LONGEST_TEXT: Final = 2000
_MOST_HOURS: Final = 24 * 365
_TOKEN: Final = re.compile(r"[0-9a-f]{32}")
KINDS: Final[Options] = (
    (EntityKind.NODE, "a whole node"),
    (EntityKind.GPU, "one GPU of a node"),
    (EntityKind.NIC, "one network card of a node"),
    (EntityKind.LINK, "the link between two nodes"),
    (EntityKind.SWITCH, "a switch, with all nodes under it"),
)
STATE_CHOICES: Final[Options] = tuple(
    (state, words)
    for state, words in (
        (HealthState.FAILED, "failed: it does not work"),
        (HealthState.DEGRADED, "slower than it should be"),
        (HealthState.DRAINING, "works, and must be left soon"),
        (HealthState.SUSPECTED, "under suspicion: put nothing new there"),
        (HealthState.RECOVERED, "well again"),
    )
)
assert {state for state, _ in STATE_CHOICES} == set(STATES), "a report may say any state"
SETTINGS: Final = (
    (
        "window_s",
        1.0,
        "Wait for more reports, s",
        "30 to 120: what fails together is decided on together.",
    ),
    ("horizon_s", 3600.0, "Look ahead, h", "Moving pays when it gains more than it costs within this time."),
    ("back_after_s", 3600.0, "Lost parts come back after, h", "Decides what waiting is worth."),
    ("node_back_after_s", 3600.0, "A lost node comes back after, h", "Empty: as above."),
    ("gpu_back_after_s", 3600.0, "A lost GPU comes back after, h", "Empty: as above."),
    ("nic_back_after_s", 3600.0, "A lost network card comes back after, h", "Empty: as above."),
    ("switch_back_after_s", 3600.0, "A lost switch comes back after, h", "Empty: as above."),
    ("hysteresis_s", 60.0, "Believe a recovery after, min", "Nodes that come and go stay out until then."),
    ("drain_lead_s", 60.0, "Decide before a part must be left, min", "Where the report says until when it works."),
    ("quarantine_after", 1.0, "Keep a node out after, failures", "Within 30 days."),
    ("gpu_budget", 1.0, "GPUs of all jobs at most", "Empty: no limit."),
    (
        "spare_worth_share",
        0.01,
        "A spare kept is worth, %",
        "Share of the work of a GPU of the job that would take it: the reserve for the next failure.",
    ),
    ("auto_most_jobs", 1.0, "By itself: jobs that act at most", "Empty: no limit."),
    ("auto_most_nodes", 1.0, "By itself: nodes that change hands at most", "Empty: no limit."),
    ("auto_most_gap", 0.01, "By itself: gap at most, %", "How much more another answer may be worth. Empty: any."),
    (
        "storm_share",
        0.01,
        "A storm is, % of the nodes",
        "Share that one source reports in a short time: then nothing is approved by itself.",
    ),
    ("storm_within_s", 60.0, "A storm is within, min", ""),
    ("time_limit_s", 1.0, "Time of the search, s", "After that the best found so far is the answer."),
    ("effort", 1.0, "Effort", "1 is usual; more tries more."),
)
"""Numbers: field, its unit in the form, label, hint."""
SWITCHES: Final = (
    ("all_free_nodes", "every free node serves as a spare, listed or not"),
    ("auto_approve", "answers are approved by themselves: their GPUs are held without anybody's word"),
    ("signed_only", "reports count only where a stored source signed them"),
)
AUTO_ACTIONS: Final[Options] = tuple((action.value, words) for action, words in OTHER_ACTIONS.items())
"""Actions that may be approved without anybody."""
_OPTIONAL: Final = frozenset({"gpu_budget", "auto_most_jobs", "auto_most_nodes", "auto_most_gap", *BACK_AFTER})
_WHOLE: Final = frozenset({"quarantine_after", "gpu_budget", "auto_most_jobs", "auto_most_nodes", "effort"})


def blank_report(node: str = "") -> Typed:
    """The empty form of a report; its token makes a form that is sent twice count once."""
    return {
        "kind": EntityKind.NODE.value,
        "node": node,
        "part": "",
        "switch": "",
        "state": HealthState.FAILED.value,
        "text": "",
        "leave_h": "",
        "token": uuid.uuid4().hex,
    }


def switch_choices(cluster: Cluster) -> Options:
    """The switches that the nodes of a cluster hang under, as an entity's part and in words."""
    places = dict.fromkeys(
        (label, place)
        for label in _SWITCHES
        for node in cluster.nodes
        if (place := node.place(label)) and (label != "nvlink_domain" or place != node.name)
    )
    return tuple((f"{label}:{place}", f"{label.replace('_', ' ')} {place}") for label, place in places)


def reported(values: Typed, cluster: Cluster, found: list[FormProblem]) -> ReportedEvent | None:
    """The report that the form spells, ``None`` where problems were added to ``found``."""
    kind = _one_of(EntityKind, values["kind"], "kind", "What", found)
    state = _one_of(HealthState, values["state"], "state", "What became of it", found)
    nodes = {node.name: node for node in cluster.nodes}
    told, part = values["node"], values["part"]
    if kind is EntityKind.SWITCH:
        told, part = "", values["switch"]
        if part not in dict(switch_choices(cluster)):
            found.append(FormProblem("switch", "Switch", "is missing; choose one"))
    elif told not in nodes:
        found.append(FormProblem("node", "Node", _unknown(told, nodes)))
    elif kind is not None:
        part = _part(kind, nodes[told], part, nodes, found)
    if len(values["text"]) > _LONGEST_TEXT:
        found.append(FormProblem("text", "Note", f"is longer than {_LONGEST_TEXT} letters"))
    leave_by = _leave_by(values["leave_h"], state, found)
    if found or kind is None or state is None:
        return None
    token = values["token"] if _TOKEN.fullmatch(values["token"]) else uuid.uuid4().hex
    return ReportedEvent(
        kind=kind,
        told=told,
        part=part,
        state=state,
        occurred_at=datetime.now(UTC),
        source_id=token,
        text=values["text"],
        compute_slowdown=UNSTATED,
        leave_by=leave_by,
    )


def _leave_by(text: str, state: HealthState | None, found: list[FormProblem]) -> datetime | None:
    """Moment when a part has to be left, ``None`` where nothing was typed."""
    if not text:
        return None
    hours = number(text)
    if isinstance(hours, str) or not 0 < hours <= _MOST_HOURS:
        found.append(FormProblem("leave_h", "Works for", f"must be hours, {_MOST_HOURS} at most"))
    elif state is not HealthState.DRAINING:
        found.append(FormProblem("leave_h", "Works for", "goes only with what works and must be left"))
    else:
        return datetime.now(UTC) + timedelta(hours=hours)
    return None


def filled_settings(settings: ReplanSettings) -> Typed:
    """The form of the settings as they are."""
    values: Typed = {
        "boxes": tuple(name for name, _ in SWITCHES if getattr(settings, name)),
        "auto_actions": tuple(settings.auto_actions),
    }
    for name, unit, _, _ in SETTINGS:
        kept = getattr(settings, name)
        values[name] = "" if kept is None else f"{kept / unit:.12g}"
    return values


def settings_of(values: Typed, found: list[FormProblem]) -> ReplanSettings:
    """The settings that the form spells; what is wrong is added to ``found``."""
    given: dict[str, Any] = {name: name in values["boxes"] for name, _ in SWITCHES}
    given["auto_actions"] = tuple(each for each in RecoveryAction if each in values["auto_actions"])
    for name, unit, label, _ in SETTINGS:
        try:
            value = _setting(name, values[name], unit)
            ReplanSettings(**{name: value})
        except InvalidInput as error:
            found.append(FormProblem(name, label, "; ".join(filter(None, (error.problem, error.remedy)))))
        else:
            given[name] = value
    return ReplanSettings(**given)


def spares_of(data: FormData) -> list[str]:
    """The names of spares: those ticked, or those in the box."""
    box = data.get("spares_text")
    named = re.split(r"[\s,]+", box.strip()) if isinstance(box, str) else []
    return list(dict.fromkeys(name for name in (*map(str, data.getlist("spare")), *named) if name))


def _setting(name: str, text: str, unit: float) -> Any:
    if not text and name in _OPTIONAL:
        return None
    value = number(text)
    if isinstance(value, str):
        raise InvalidInput(name, text, "must be a number")
    if name in _WHOLE:
        if not isinstance(value, int):
            raise InvalidInput(name, text, "must be a whole number")
        return value
    return value * unit


def _part(kind: EntityKind, node: Node, part: str, nodes: dict[str, Node], found: list[FormProblem]) -> str:
    """The part of a node, checked where the cluster knows what it has."""
    if kind is EntityKind.NODE:
        return ""
    if kind is EntityKind.GPU and not (part.isdecimal() and int(part) < node.gpu_count):
        problem = f"must be the number of a GPU of {node.name}, 0 to {node.gpu_count - 1}"
        found.append(FormProblem("part", "Which part", problem))
    elif kind is EntityKind.LINK and (part not in nodes or part == node.name):
        found.append(FormProblem("part", "Which part", f"must be the other node: {_unknown(part, nodes)}"))
    elif not part:
        found.append(FormProblem("part", "Which part", "is missing; give the card's name or number"))
    return str(int(part)) if kind is EntityKind.GPU and part.isdecimal() else part


def _unknown(name: str, nodes: Sequence[str] | dict[str, Node]) -> str:
    if not name:
        return "is missing; choose one"
    hint = close_name(name, list(nodes))
    return f"{name!r} is not a node of this cluster" + (f"; {hint}" if hint else "")


def _one_of(kind: Any, text: str, name: str, label: str, found: list[FormProblem]) -> Any:
    try:
        return kind(text)
    except ValueError:
        found.append(FormProblem(name, label, "is missing; choose one"))
        return None
