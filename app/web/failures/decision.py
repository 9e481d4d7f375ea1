"""An answer to failures: for each job a card, and what it means for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.exports.contract import Family, refusals
from app.exports.registry import EXPORTS
from app.exports.serving.contract import serving_refusal
from app.exports.serving.registry import SERVING_EXPORTS
from app.presentation.decision_reasons import keep_out, objection, reason_of
from app.presentation.figures import plural, spans
from app.presentation.recovery import (
    ACTIONS,
    OTHER_ACTIONS,
    SOURCES,
    change,
    data_size,
    duration_range,
    fallback_words,
    tokens_per_s,
)
from app.presentation.replan_steps import steps
from app.presentation.replans import decision_explanation, lost_gpu_hours, moved_bytes, proof
from app.presentation.serving_decisions import SERVING_ACTIONS, answered, other_servings, serving_rows
from app.presentation.survival import losses_sentence
from app.services.decisions.replan_answers import made_of
from app.services.decisions.replan_views import AnswerView
from app.web.drawing import Drawing
from app.web.failures.effects import standstill_bars, throughput_bars
from app.web.failures.seats import seats_before_after
from cluster_models.jobs.recovery import BatchDecision, JobDecision, MovedRank, RecoveryAction
from cluster_models.jobs.serving import ServingDecision
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import Plan
from cluster_models.wording import named

MOST_CARDS: Final = 20
"""Jobs that are shown in full at once."""
_MOST_MOVES: Final = 40
_LAUNCHED: Final = (Family.TRAINING, Family.KUBERNETES)
_MOODS: Final = {
    RecoveryAction.NONE: "good",
    RecoveryAction.WAIT: "warn",
    RecoveryAction.PAUSE: "bad",
}
_ORDER: Final = ("bad", "warn", "busy", "good")
"""The worst news come first."""
_RESHAPED: Final = (RecoveryAction.RESHAPE, RecoveryAction.SHRINK_DATA_PARALLEL)


@dataclass(frozen=True, slots=True)
class Move:
    """Ranks that go from one node to another together."""

    ranks: str
    origin: str
    target: str
    state: str
    size: str


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """A file to start a job with."""

    words: str
    file_name: str
    format: str


@dataclass(frozen=True, slots=True)
class JobCard:
    """One job's part; ``figures`` in the order of what matters first."""

    id: str
    name: str
    action: str
    mood: str
    reason: str
    figures: tuple[tuple[str, str], ...]
    bytes: tuple[tuple[str, str], ...]
    falls_back: str
    moves: tuple[Move, ...]
    more_moves: int
    moved_ranks: str
    survives: tuple[str, ...]
    considered: tuple[tuple[str, str], ...]
    files: tuple[LaunchFile, ...]


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A whole answer in words."""

    explanation: str
    seats: Drawing | None
    rates: Drawing | None
    standstill: Drawing | None
    steps: tuple[str, ...]
    cards: tuple[JobCard, ...]
    others: tuple[tuple[str, str, str], ...]
    """Jobs without a card: id, name and action."""
    untouched: str
    spares: tuple[tuple[str, str], ...]
    quarantine: tuple[str, ...]
    proof: tuple[str, ...]


def decision_view(answer: AnswerView, *, safe: BatchDecision | None = None, first: str = "") -> DecisionView:
    """An answer, the worst news first; ``safe`` is the one that was there before.

    Where there are many jobs only the first have a card, that of the id ``first`` among them.
    """
    decision = answer.decision
    untouched = sorted(answer.untouched.get(job_id, job_id) for job_id in decision.untouched)
    ordered = sorted(made_of(decision), key=lambda made: (made.job_id != first, _ORDER.index(_mood(made))))
    shown, others = ordered[:MOST_CARDS], ordered[MOST_CARDS:]
    return DecisionView(
        explanation=decision_explanation(decision),
        seats=seats_before_after(answer, ordered),
        rates=throughput_bars(ordered, {} if safe is None else {made.job_id: made for made in made_of(safe)}),
        standstill=standstill_bars(ordered),
        steps=tuple(step.sentence for step in steps(decision, answer.before)),
        cards=tuple(_card(made, answer) for made in shown),
        others=tuple((made.job_id, made.job_name, _action(made)) for made in others),
        untouched=", ".join(untouched),
        spares=(
            ("there were", _nodes(decision.spares_before)),
            ("are used", _nodes(decision.spares_used)),
            ("are left", _nodes(decision.spares_left)),
        ),
        quarantine=tuple(map(keep_out, decision.quarantine)),
        proof=tuple(proof(decision)),
    )


def _mood(made: JobDecision | ServingDecision) -> str:
    if isinstance(made, ServingDecision):
        return "bad" if made.plan is None else "busy" if made.is_to_be_done else "good"
    return _MOODS.get(made.action, "busy")


def _action(made: JobDecision | ServingDecision) -> str:
    return SERVING_ACTIONS[made.action] if isinstance(made, ServingDecision) else ACTIONS[made.action]


def _card(made: JobDecision | ServingDecision, answer: AnswerView) -> JobCard:
    if isinstance(made, ServingDecision):
        return _serving_card(made, answer.served.get(made.job_id))
    moves = _moves(made.migration.moved)
    return JobCard(
        id=made.job_id,
        name=made.job_name,
        action=ACTIONS[made.action],
        mood=_mood(made),
        reason=reason_of(made),
        figures=_figures(made),
        bytes=moved_bytes(made.migration),
        falls_back=fallback_words(made.migration),
        moves=moves[:_MOST_MOVES],
        more_moves=max(0, len(moves) - _MOST_MOVES),
        moved_ranks=plural(len(made.migration.moved), "rank"),
        survives=tuple(losses_sentence(losses) for losses in made.survives),
        considered=tuple((OTHER_ACTIONS[each.action], objection(each)) for each in made.considered),
        files=() if made.plan is None else _files(made.plan),
    )


def _serving_card(made: ServingDecision, before: ServingPlan | None) -> JobCard:
    rows = tuple(serving_rows(made, before))
    figures = [("GPUs", rows[0].gpus), ("all replicas answer in", rows[0].back)]
    for row in rows:
        model = row.name.removeprefix(made.job_name).strip()
        of = f" of {model}" if model else ""
        figures += [
            (f"requests/s{of} before", row.before),
            (f"meanwhile{of}", row.during),
            (f"after{of}", row.after),
        ]
    return JobCard(
        id=made.job_id,
        name=made.job_name,
        action=_action(made),
        mood=_mood(made),
        reason=" ".join(answered(made, before)),
        figures=tuple(figures),
        bytes=(),
        falls_back="",
        moves=(),
        more_moves=0,
        moved_ranks="",
        survives=(),
        considered=tuple(other_servings(made)),
        files=() if made.plan is None else _serving_files(made.plan),
    )


def _serving_files(plan: ServingPlan) -> tuple[LaunchFile, ...]:
    return tuple(
        LaunchFile(export.description, export.file_name, name)
        for name, export in SERVING_EXPORTS.items()
        if serving_refusal(export, plan) is None
    )


def _figures(made: JobDecision) -> tuple[tuple[str, str], ...]:
    still = duration_range(made.migration.downtime)
    if made.action is RecoveryAction.WAIT:
        still = "until the nodes are back"
    if made.action is RecoveryAction.PAUSE:
        still = "until there is room again"
    figures = [
        ("stands still for", still),
        ("before", tokens_per_s(made.tokens_per_s_before)),
        ("after", tokens_per_s(made.tokens_per_s_after)),
    ]
    if made.tokens_per_s_after:
        figures.append(("change", change(made.tokens_per_s_before, made.tokens_per_s_after)))
    if made.plan is not None and made.action in _RESHAPED:
        figures.append(("new shape", str(made.plan.configuration.degrees)))
    if made.migration.moved:
        figures.append(("ranks that move", str(len(made.migration.moved))))
    return (*figures, ("GPU-hours lost", lost_gpu_hours(made)))


def _moves(moved: Sequence[MovedRank]) -> tuple[Move, ...]:
    """Ranks by where they come from and go to: those of one node go together."""
    groups: dict[tuple[str, str], list[MovedRank]] = {}
    for rank in moved:
        groups.setdefault((rank.from_node, rank.to_node), []).append(rank)
    return tuple(
        Move(
            ranks=spans(rank.rank for rank in ranks),
            origin=origin or "nowhere: it is new",
            target=f"{target} GPU {spans(rank.to_gpu for rank in ranks)}",
            state=_givers(ranks),
            size=data_size(sum(part.bytes for rank in ranks for part in rank.state)),
        )
        for (origin, target), ranks in groups.items()
    )


def _givers(ranks: Sequence[MovedRank]) -> str:
    """Where the state comes from: each kind of source once, with its nodes."""
    found: dict[str, set[str]] = {}
    for rank in ranks:
        for part in rank.state:
            found.setdefault(SOURCES[part.source], set()).add(part.node if " " in SOURCES[part.source] else "")
    told = []
    for words, nodes in found.items():
        named = sorted(filter(None, nodes)) if words.endswith(("on", "of")) else []
        told.append(f"{words} {', '.join(named[:4])}{' and others' if len(named) > 4 else ''}".strip())
    return "; ".join(told)


def _files(plan: Plan) -> tuple[LaunchFile, ...]:
    return tuple(
        LaunchFile(export.description, export.file_name, name)
        for (name, export), error in zip(EXPORTS.items(), refusals(EXPORTS.values(), plan), strict=True)
        if export.family in _LAUNCHED and error is None
    )


def _nodes(names: Sequence[str]) -> str:
    return f"{len(names)}: {named(names, 8)}" if names else "none"
