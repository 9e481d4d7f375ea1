"""A decision on failures from the first report to its end, and the one thing to do next."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from app.db.status import ReplanStatus
from app.presentation.figures import duration, percent
from app.presentation.recovery import moment
from app.presentation.replans import summary_words
from app.services.decisions.replans import Answer, ReplanRecord

_STATUSES: Final = {
    ReplanStatus.COLLECTING: ("collecting reports", "busy"),
    ReplanStatus.SOLVING: ("searching", "busy"),
    ReplanStatus.PROPOSED: ("waits for you", "warn"),
    ReplanStatus.APPROVED: ("approved, to be carried out", "warn"),
    ReplanStatus.APPLYING: ("being carried out", "busy"),
    ReplanStatus.APPLIED: ("done", "good"),
    ReplanStatus.CANCELLED: ("called off", ""),
    ReplanStatus.FAILED: ("failed", "bad"),
    ReplanStatus.SUPERSEDED: ("overtaken by a later failure", ""),
}


@dataclass(frozen=True, slots=True)
class Button:
    """Something that can be done: the value it sends, its words and what it means; the first of all stands out."""

    do: str
    words: str
    means: str
    style: str = "quiet"


@dataclass(frozen=True, slots=True)
class Next:
    """Next step, on top of the page: ways on, and ways back."""

    title: str
    sentences: tuple[str, ...]
    mood: str
    onward: tuple[Button, ...] = ()
    back: tuple[Button, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplanLine:
    """A replan in a list, and the head of its own page."""

    id: str
    cluster: str
    status: str
    mood: str
    reason: str
    opened: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long until there is an answer: words that change seldom, and those that change by the second."""

    words: str
    countdown: str
    share: str | None


_APPROVE: Final = Button(
    "approve",
    "Approve this answer",
    "Holds the GPUs it needs, so that nobody else gets them. Nothing is stopped or started by it.",
    "",
)
_APPROVE_SAFE: Final = Button(
    "approve_safe",
    "Approve the safe answer",
    "Holds the GPUs that it needs. The search for a better one ends.",
    "",
)
_START: Final = Button(
    "start",
    "I have begun",
    "Tells everybody who looks here that somebody is at it. May be left out.",
    "quiet",
)
_APPLIED: Final = Button(
    "applied",
    "Done: the jobs run as decided",
    "Frees the GPUs that they left. There is no way back from here.",
    "",
)
_FAILED: Final = Button(
    "failed",
    "It did not work",
    "The GPUs of jobs that are not done went back to their holders. Ask for a new decision then.",
    "danger",
)
_CANCEL: Final = Button(
    "cancel",
    "Call it off",
    "Nothing is done about these failures; what was held is given back.",
    "danger",
)


def replan_line(replan: ReplanRecord) -> ReplanLine:
    """A replan by what opened it and how far it is."""
    status, mood = _STATUSES[replan.status]
    told = [] if replan.summary is None else summary_words(replan.summary, most=4)
    return ReplanLine(
        id=replan.id,
        cluster=replan.cluster_name,
        status=status,
        mood=mood,
        reason=replan.reason[:1].upper() + replan.reason[1:],
        opened=moment(replan.created_at),
        outcome="; ".join(told),
    )


def next_step(replan: ReplanRecord, answer: Answer | None) -> Next:
    """Next step for somebody who opens the page now; ``answer`` is the one shown, if there is one."""
    status = replan.status
    if status in (ReplanStatus.COLLECTING, ReplanStatus.SOLVING):
        return _undecided(replan)
    if status is ReplanStatus.PROPOSED:
        return _proposed(replan, answer)
    if status in (ReplanStatus.APPROVED, ReplanStatus.APPLYING):
        begun = status is ReplanStatus.APPLYING
        sentences: tuple[str, ...] = (
            "The GPUs are held. Stop and start the jobs below as their cards say; the launch files are in them.",
            "When they run, say so here, or of each job as soon as it does: a later failure then finds it so.",
        )
        if replan.remaining:
            sentences = (*sentences, f"Still to be carried out: {', '.join(replan.remaining)}.")
        onward = (_APPLIED,) if begun else (_APPLIED, _START)
        return Next("Carry it out, then say that it is done", sentences, "warn", onward, (_FAILED, _CANCEL))
    return _ended(replan)


def waiting(replan: ReplanRecord, now: datetime) -> Waiting | None:
    """How long until there is an answer, while there is none."""
    if replan.status is ReplanStatus.COLLECTING:
        left_s = (replan.window_ends_at - now).total_seconds()
        whole_s = (replan.window_ends_at - replan.created_at).total_seconds()
        words = "Failures seldom come alone: what is reported until then is decided on together."
        if left_s <= 0:
            return Waiting(words, "The search is about to begin.", "1")
        share = f"{1 - min(1.0, left_s / whole_s):.3f}" if whole_s > 0 else None
        return Waiting(words, f"The search begins in {duration(left_s)}.", share)
    if replan.status is ReplanStatus.SOLVING:
        newest = replan.progress or {}
        gap = newest.get("gap")
        found = "" if gap is None else f" The best found so far is within {percent(gap, places=1)} of the optimum."
        begun = replan.solving_at or replan.created_at
        countdown = f"The search has run for {duration((now - begun).total_seconds())}."
        return Waiting(f"A better answer is searched for.{found}", countdown, None)
    return None


def mark(replan: ReplanRecord) -> str:
    """Differs as soon as the page would look different in more than its countdown."""
    # Once it is decided, more reports on the same parts must not take the page from under somebody's eyes.
    events = replan.event_ids if replan.status in (ReplanStatus.COLLECTING, ReplanStatus.SOLVING) else ()
    answers = (replan.has_decision, replan.summary, replan.error)
    seen = (replan.status, events, *answers, replan.remaining, replan.causes_recovered)
    return f"{zlib.crc32(repr(seen).encode()):08x}"


def moments(replan: ReplanRecord) -> tuple[tuple[str, str], ...]:
    """Moments of what happened to the replan itself."""
    return tuple(
        (words, moment(at))
        for words, at in (
            ("opened", replan.created_at),
            ("search began", replan.solving_at),
            ("answer proposed", replan.proposed_at),
            ("approved", replan.approved_at),
            ("ended", replan.finished_at),
        )
        if at is not None
    )


def _undecided(replan: ReplanRecord) -> Next:
    if not replan.has_safe_answer:
        soon = ("A first safe answer is being worked out. It takes a second or two.",)
        return Next("Nothing to do yet", soon, "busy", back=(_CANCEL,))
    sentences = (
        "A better one is on its way. If every second counts, approve the safe one now.",
        "Otherwise wait: this page changes by itself.",
    )
    return Next("A safe answer is ready", (*_look_first(replan), *sentences), "busy", (_APPROVE_SAFE,), (_CANCEL,))


def _proposed(replan: ReplanRecord, answer: Answer | None) -> Next:
    if replan.causes_recovered:
        sentences = (
            "All that opened this decision is reported as well again, so it may move jobs for nothing.",
            "Where its jobs run on, or start again as they were, call it off. Approve if you doubt the recovery.",
        )
        approve = replace(_APPROVE if answer is Answer.DECISION else _APPROVE_SAFE, style="quiet")
        onward = (replace(_CANCEL, style=""), approve)
        return Next("Look again: what failed is back", sentences, "warn", onward)
    if answer is Answer.SAFE:
        why = replan.error.problem if replan.error else "The search found no answer."
        read = (why, *_look_first(replan), "The safe answer below stands. Read it, then approve it.")
        approve = Button("approve_safe", "Approve the safe answer", _APPROVE.means, "")
        return Next("Approve the safe answer", read, "warn", (approve,), (_CANCEL,))
    told = "Read what becomes of each job, below. Approve if nothing speaks against it."
    return Next("Approve the answer", (*_look_first(replan), told), "warn", (_APPROVE,), (_CANCEL,))


def _look_first(replan: ReplanRecord) -> tuple[str, ...]:
    """Reasons against approving an answer unseen."""
    return tuple(f"Look first: {reason.rstrip('.')}." for reason in replan.objections)


def _ended(replan: ReplanRecord) -> Next:
    why = (replan.error.problem,) if replan.error else ()
    if replan.status is ReplanStatus.APPLIED:
        return Next("Nothing left to do", ("The jobs run as decided below.",), "good")
    if replan.status is ReplanStatus.SUPERSEDED:
        told = "A later failure, or a change of its jobs, was added to it."
        return Next("Look at the later decision", (told,), "warn")
    if replan.status is ReplanStatus.FAILED:
        held = "The GPUs of jobs that were not done went back to their holders. Ask for a new decision when ready."
        anew = Button("again", "Decide anew", "", "")
        return Next("It failed: ask for a new decision", (*why, held), "bad", (anew,))
    return Next(
        "It was called off",
        (*why, "Ask for a new decision if jobs still need one."),
        "",
        (Button("again", "Decide anew", "", "quiet"),),
    )
