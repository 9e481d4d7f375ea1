"""The pairs of nodes whose measurement would make plans surer, the most useful first, each with its reason.

Letters: ``P`` pairs of usable nodes, ordered by their places in the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from cluster_models.cluster.measurements import Sample, SampleStatus
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import USABLE_STATES
from cluster_models.errors import InvalidInput
from cluster_models.links.model import LinkModel, effective_links
from cluster_models.links.slow_links import SlowLink, rates_of, slow_links, slow_pairs
from cluster_models.links.suspicions import ASYMMETRY_RATIO
from cluster_models.links.tables import in_utc
from cluster_models.remarks import Remark, remark
from cluster_models.training.plan import Plan
from cluster_models.units import MIB
from solver.measuring.rounds import rounds_of
from solver.measuring.sizes import Trial, plan_messages, trials
from solver.measuring.uses import Pair, Use, uses_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

OLD_AFTER_DAYS: Final = 14.0
"""As many days as samples of one link count together (``Recency``)."""
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_TYPICAL_BYTES: Final = 64.0 * MIB
"""Message size at which links are compared where no plan says what it sends."""


class Worth(IntEnum):
    """Why a pair is measured; the smaller first."""

    ON_PLAN_UNSURE = 0
    """The plan uses it, and it was never measured, failed, stands out, is old, or its directions differ."""
    STANDS_OUT = 1
    """Far slower than others of its class: broken, or measured badly."""
    NEW_CLASS = 2
    """No pair of its kind (how close, which hardware) was measured: all of them rest on data sheets."""
    COULD_BE_BETTER = 3
    """Never measured, and if it is as fast as its cards it would beat the plan's slowest link."""
    DOUBTFUL = 4
    """Measured, but failed, old or with unlike directions; the plan does not use it."""
    NEVER_MEASURED = 5
    """Its time is that of its kind."""
    ON_PLAN = 6
    """The plan uses it and it was measured lately: once more, the slowest first."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One pair to measure.  ``gain_s`` are seconds that hang on it: of the step where the plan uses the pair.

    ``why`` has the reasons, the most telling first.
    """

    pair: Pair
    worth: Worth
    why: tuple[Remark, ...]
    gain_s: float
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class MeasuringPlan:
    """Pairs in rounds: those of a round run at once and share no node.  ``seconds`` is about what all rounds take.

    ``left_out`` pairs were worth measuring too, but are beyond the time or the number asked for.
    """

    rounds: tuple[tuple[Wanted, ...], ...]
    seconds: float
    left_out: int

    @property
    def pairs(self) -> int:
        """Pairs that are measured."""
        return sum(map(len, self.rounds))


@dataclass(frozen=True, slots=True)
class _Known:
    """Facts from the samples of each pair, whatever its direction."""

    newest: Mapping[Pair, datetime]
    measured: frozenset[Pair]
    failed: frozenset[Pair]
    """Not measured with success since."""


def what_to_measure(
    snapshot: ClusterSnapshot,
    *,
    at: datetime,
    plan: Plan | None = None,
    most_pairs: int = 200,
    most_seconds: float = 4 * 3600.0,
) -> MeasuringPlan:
    """The pairs to measure next, at the moment ``at``, for ``plan`` or, without one, for any.

    Only nodes that may carry ranks take part.  The same arguments give the same answer.  Raises ``InvalidInput``
    for limits below 1 and a plan whose hosts are not in the cluster.
    """
    for name, limit in (("most_pairs", most_pairs), ("most_seconds", most_seconds)):
        if not limit >= 1:
            raise InvalidInput(name, limit, "must be at least 1")
    survey = _survey(snapshot, plan)
    worth, gain = _judge(survey, snapshot, plan, at)
    wanted = np.flatnonzero(worth >= 0)
    # among equals, neighbours in the list first: each node then comes once before any comes twice
    apart = survey.second - survey.first
    order = wanted[np.lexsort((survey.first[wanted], apart[wanted], -gain[wanted], worth[wanted]))]
    chosen = [_wanted(survey, int(k), Worth(int(worth[k])), float(gain[k]), plan, at) for k in order[:most_pairs]]
    durations = _durations(survey, chosen)
    rounds: list[tuple[Wanted, ...]] = []
    seconds = 0.0
    for members in rounds_of([item.pair for item in chosen]):
        took = max(durations[index] for index in members)
        if seconds + took <= most_seconds:
            rounds.append(tuple(chosen[index] for index in members))
            seconds += took
    return MeasuringPlan(tuple(rounds), seconds, len(wanted) - sum(map(len, rounds)))


@dataclass(frozen=True, slots=True)
class _Survey:
    """All pairs (P,) of usable nodes with what is known of them.

    ``time_s``, ``best_s`` (P,): of ``message_bytes`` beside ``flows`` others, as the plan reckons and by the data
    sheet of the cards.
    """

    links: LinkModel
    known: _Known
    uses: tuple[Use, ...]
    flows: int
    message_bytes: float
    first: IntArray
    second: IntArray
    time_s: FloatArray
    best_s: FloatArray
    estimated: BoolArray
    unlike: BoolArray
    slow: Mapping[Pair, SlowLink]
    """Pairs that stand out from their class, by the names in their order."""

    def pair(self, k: int) -> Pair:
        """The names of a pair in the cluster's order."""
        return self.links.nodes[int(self.first[k])], self.links.nodes[int(self.second[k])]

    def key(self, k: int) -> Pair:
        """The names of a pair in the order of names."""
        a, b = self.pair(k)
        return (min(a, b), max(a, b))


def _survey(snapshot: ClusterSnapshot, plan: Plan | None) -> _Survey:
    links = effective_links(snapshot)
    nodes = snapshot.cluster.nodes
    names = set(links.nodes)
    for host in plan.placement.hosts if plan is not None else ():
        if host not in names:
            raise InvalidInput("plan.placement.hosts", host, "is not a node of the cluster", "plan again for it")
    usable = np.array([node.state in USABLE_STATES for node in nodes])
    flows = plan.placement.gpus_per_node if plan is not None else min(node.gpu_count for node in nodes)
    message = max(plan_messages(plan), default=_TYPICAL_BYTES)
    first, second = np.triu_indices(len(nodes), k=1)
    both = usable[first] & usable[second]
    first, second = first[both], second[both]
    times = links.transfer_s(message, flows)
    there, back = times[first, second], times[second, first]
    best = np.array([link_class.limit_bytes_per_s(flows) for link_class in links.classes])
    estimated = links.estimated(flows)
    return _Survey(
        links=links,
        known=_known(snapshot.samples),
        uses=uses_of(plan) if plan is not None else (),
        flows=flows,
        message_bytes=message,
        first=first.astype(np.int64),
        second=second.astype(np.int64),
        time_s=np.maximum(there, back),
        best_s=message / best[links.link_classes[first, second]],
        estimated=estimated[first, second] | estimated[second, first],
        unlike=np.maximum(there, back) > ASYMMETRY_RATIO * np.minimum(there, back),
        slow={
            (min(link.source, link.destination), max(link.source, link.destination)): link
            for link in slow_pairs(slow_links(snapshot.cluster, rates_of(links.tables)))
        },
    )


def _known(samples: Sequence[Sample]) -> _Known:
    newest: dict[Pair, datetime] = {}
    measured: set[Pair] = set()
    failed: dict[Pair, datetime] = {}
    for sample in samples:
        pair = (min(sample.source, sample.destination), max(sample.source, sample.destination))
        moment = in_utc(sample.measured_at) if sample.measured_at is not None else None
        if sample.status is SampleStatus.FAILED:
            failed[pair] = max(moment or _LONG_AGO, failed.get(pair, _LONG_AGO))
            continue
        measured.add(pair)
        if moment is not None:
            newest[pair] = max(moment, newest.get(pair, moment))
    still = frozenset(pair for pair, moment in failed.items() if newest.get(pair, _LONG_AGO) <= moment)
    return _Known(newest, frozenset(measured), still)


def _judge(
    survey: _Survey, snapshot: ClusterSnapshot, plan: Plan | None, at: datetime
) -> tuple[IntArray, FloatArray]:
    """Worth (P,), -1 for pairs that need nothing, and gain in seconds (P,)."""
    count = len(survey.first)
    worth = np.full(count, -1, dtype=np.int64)
    gain = np.zeros(count)
    index = {survey.key(k): k for k in range(count)}
    old = {
        pair for pair, moment in survey.known.newest.items() if in_utc(at) - moment > timedelta(days=OLD_AFTER_DAYS)
    }
    doubtful = survey.unlike & ~survey.estimated
    for pair in old | survey.known.failed:
        if pair in index:
            doubtful[index[pair]] = True
    worth[survey.estimated] = Worth.NEVER_MEASURED
    gain[survey.estimated] = np.maximum(survey.time_s - survey.best_s, 0.0)[survey.estimated]
    worth[doubtful] = Worth.DOUBTFUL
    gain[doubtful] = survey.time_s[doubtful]
    slow = {index[pair]: link for pair, link in survey.slow.items() if pair in index}
    for k, link in slow.items():
        worth[k] = Worth.STANDS_OUT
        gain[k] = survey.time_s[k] * (1.0 - link.share)
        doubtful[k] = True
    used = np.zeros(count, dtype=np.bool_)
    share = np.zeros(count)
    for use in survey.uses:
        members = np.array([index[pair] for pair in sorted(use.pairs) if pair in index], dtype=np.int64)
        used[members] = True
        if members.size:
            share[members] += use.exposed_s * survey.time_s[members] / survey.time_s[members].max()
    if used.any():
        slowest = survey.time_s[used].max()
        better = survey.estimated & ~used & (survey.best_s < slowest)
        worth[better] = Worth.COULD_BE_BETTER
        # the seconds of the step that the slowest link takes, less what the pair would take at its best
        exposed = sum(use.exposed_s for use in survey.uses)
        gain[better] = exposed * (1.0 - survey.best_s[better] / slowest)
        mine = np.isin(survey.first, _places(survey, plan)).astype(float) + np.isin(
            survey.second, _places(survey, plan)
        )
        gain[better] *= (1.0 + mine[better]) / 3.0
        worth[used] = np.where(survey.estimated | doubtful, Worth.ON_PLAN_UNSURE, Worth.ON_PLAN)[used]
        gain[used] = share[used]
    _probe_classes(survey, snapshot, worth)
    return worth, gain


def _places(survey: _Survey, plan: Plan | None) -> IntArray:
    hosts = set(plan.placement.hosts) if plan is not None else set()
    return np.array([place for place, name in enumerate(survey.links.nodes) if name in hosts], dtype=np.int64)


def _probe_classes(survey: _Survey, snapshot: ClusterSnapshot, worth: IntArray) -> None:
    """One pair of each class that nothing was measured of, unless the plan asks for one already."""
    kinds = survey.links.link_classes[survey.first, survey.second]
    place = {node.name: index for index, node in enumerate(snapshot.cluster.nodes)}
    seen = {int(survey.links.link_classes[place[a], place[b]]) for a, b in survey.known.measured if a != b}
    seen |= {int(kind) for kind in kinds[worth == Worth.ON_PLAN_UNSURE]}
    for kind in np.unique(kinds):
        members = np.flatnonzero((kinds == kind) & (worth == Worth.COULD_BE_BETTER))
        if not members.size:
            members = np.flatnonzero((kinds == kind) & (worth >= 0))
        if int(kind) not in seen and members.size:
            worth[members[0]] = Worth.NEW_CLASS


def _wanted(survey: _Survey, k: int, worth: Worth, gain_s: float, plan: Plan | None, at: datetime) -> Wanted:
    first, second = (int(survey.first[k]), int(survey.second[k]))
    ends = survey.links.classes[survey.links.link_classes[first, second]].ends
    gpus = min(end.gpu_count for end in ends)
    flows = min(gpus, survey.flows) if plan is not None else gpus
    return Wanted(survey.pair(k), worth, _why(survey, k, worth, at), gain_s, trials(flows, plan))


def _why(survey: _Survey, k: int, worth: Worth, at: datetime) -> tuple[Remark, ...]:
    state, rate = _state(survey, k, at), survey.message_bytes / float(survey.time_s[k])
    match worth:
        case Worth.ON_PLAN_UNSURE | Worth.ON_PLAN:
            uses = tuple(use.traffic for use in survey.uses if survey.key(k) in use.pairs)
            return remark("plan_crosses_pair", uses=uses, bytes_per_s=rate), state
        case Worth.NEW_CLASS:
            return (remark("class_unmeasured", link_class=survey.links.link_class(*survey.pair(k))),)
        case Worth.COULD_BE_BETTER:
            return state, remark("pair_could_win", bytes_per_s=survey.message_bytes / float(survey.best_s[k]))
        case _:
            return state, remark("pair_taken_at", bytes_per_s=rate)


def _state(survey: _Survey, k: int, at: datetime) -> Remark:
    """Reason why the pair is unsure."""
    key = survey.key(k)
    newest = survey.known.newest.get(key)
    if key in survey.known.failed:
        return remark("pair_test_failed")
    if (slow := survey.slow.get(key)) is not None:
        return remark("pair_stands_out", share=slow.share)
    if survey.estimated[k]:
        half = key in survey.known.measured
        return remark("pair_half_measured", flows=survey.flows) if half else remark("pair_unmeasured")
    if newest is not None and in_utc(at) - newest > timedelta(days=OLD_AFTER_DAYS):
        return remark("pair_measured_long_ago", days=(in_utc(at) - newest).days)
    if survey.unlike[k]:
        return remark("pair_directions_differ", ratio=ASYMMETRY_RATIO)
    return remark("pair_measured_lately" if newest is not None else "pair_measured_undated")


def _durations(survey: _Survey, chosen: Sequence[Wanted]) -> list[float]:
    """About how many seconds the trials of each pair take, one after another."""
    place = {name: index for index, name in enumerate(survey.links.nodes)}
    flows = {trial.ranks_per_node for wanted in chosen for trial in wanted.trials}
    rates = {each: survey.links.bytes_per_s(_TYPICAL_BYTES, each) for each in flows}
    ends = [(place[wanted.pair[0]], place[wanted.pair[1]]) for wanted in chosen]
    return [
        sum(
            trial.seconds(float(survey.links.latency_s[pair]), float(rates[trial.ranks_per_node][pair]))
            for trial in wanted.trials
        )
        for wanted, pair in zip(chosen, ends, strict=True)
    ]
