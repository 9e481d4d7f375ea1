"""Why a decision was made, what was considered and lost, and GPU-hours without useful work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cluster_models.jobs.recovery import ConsideredAction, RecoveryAction
from cluster_models.jobs.running import RunningJob
from cluster_models.remarks import Remark, remark
from cluster_models.units import GBYTE, HOUR
from solver.replanning.problem import LEAVING, RecoveryOption, ReplanProblem
from solver.replanning.program import Gpu
from solver.replanning.touched import live_gpus, lost_gpus
from solver.replanning.values import WORTH_MOVING

SAME_WORTH: Final = 1e-3
"""Share of its worth by which the same done on other nodes is not worth a word."""


def lost_gpu_hours(problem: ReplanProblem, job: RunningJob, option: RecoveryOption) -> tuple[float, float]:
    """GPU-hours without useful work because of the decision, low and high.

    They count the GPUs that the job holds afterwards, for its downtime; those that it stands still on, until the
    lost nodes are back; and those that a paused job held and that still work, for the horizon, though others may
    use them.
    """
    downtime = option.migration.downtime
    if option.action is RecoveryAction.PAUSE:
        hours = len(live_gpus(problem, job)) * problem.horizon_s / HOUR
        return hours, hours
    gpus, still_s = len(option.holds), 0.0
    if option.action is RecoveryAction.WAIT:
        gpus, still_s = len(live_gpus(problem, job)), problem.job_back_after_s(job)
    low, high = (min(problem.horizon_s, still_s + s) for s in (downtime.low_s, downtime.high_s))
    return gpus * low / HOUR, gpus * high / HOUR


def reasons_of(
    problem: ReplanProblem,
    job: RunningJob,
    option: RecoveryOption,
    rivals: Sequence[RecoveryOption],
    takers: Mapping[Gpu, str],
) -> tuple[Remark, ...]:
    """Action on a job, and what speaks for it.

    ``rivals`` are the job's other options, ``takers`` names the job on each GPU after the decision.
    """
    better = max((rival for rival in rivals if _is_better(rival, option)), default=None, key=_worth)
    if better is not None:
        return option.reason, _instead(option, better, job, takers)
    if option.action is RecoveryAction.NONE and (gaining := _gaining(option, rivals)) is not None:
        return option.reason, _too_little(option, gaining, job)
    if given := {gpu for gpu in live_gpus(problem, job) if takers.get(gpu, job.name) != job.name}:
        others, nodes = {takers[gpu] for gpu in given}, {node for node, _ in given}
        return option.reason, remark("others_go_on", jobs=_ordered(others), nodes=_ordered(nodes))
    if option.action is RecoveryAction.PAUSE and not any(_worth(rival) > 0 for rival in rivals):
        return option.reason, remark("nothing_else")
    return (option.reason,)


def _gaining(option: RecoveryOption, rivals: Sequence[RecoveryOption]) -> RecoveryOption | None:
    """The rival that would gain most over leaving the job alone, if not as much as it must."""
    gains = [rival for rival in rivals if _gain(option, rival) > SAME_WORTH * abs(option.value_flop)]
    return max(gains, key=lambda rival: _gain(option, rival), default=None)


def _gain(option: RecoveryOption, rival: RecoveryOption) -> float:
    """FLOPs that ``rival`` is worth more than ``option`` before what stopping the job must gain."""
    return rival.value_flop + rival.least_gain_flop - option.value_flop


def _too_little(option: RecoveryOption, rival: RecoveryOption, job: RunningJob) -> Remark:
    least = job.recovery.least_gain_share
    gain = _share(least * _gain(option, rival), rival.least_gain_flop)
    return remark("gains_too_little", action=rival.action, gain=gain, least_gain=least)


def _is_better(rival: RecoveryOption, option: RecoveryOption) -> bool:
    """Whether it is worth more to the job, and more than a trifle where the same is done on other nodes."""
    least = SAME_WORTH * abs(option.value_flop) if rival.action is option.action else 0.0
    return rival.value_flop > option.value_flop + least


def causes_of(problem: ReplanProblem, job: RunningJob) -> tuple[Remark, ...]:
    """Losses of the job: GPUs of nodes that go on otherwise, or whole nodes, and network cards."""
    lost: dict[str, list[int]] = {}
    for node, gpu in sorted(lost_gpus(problem, job)):
        lost.setdefault(node, []).append(gpu)
    parts = [
        name if problem.nodes[name].state in LEAVING else f"{name}:{','.join(map(str, gpus))}"
        for name, gpus in lost.items()
    ]
    causes = [remark("parts_lost", parts=_ordered(parts))] * bool(parts)
    if cards := problem.cut_off.get(job.id):
        causes.append(remark("cards_failed", nodes=_ordered(cards)))
    return tuple(causes)


def considered_actions(
    option: RecoveryOption,
    rivals: Sequence[RecoveryOption],
    refused: Sequence[ConsideredAction],
    job: RunningJob,
    takers: Mapping[Gpu, str],
) -> tuple[ConsideredAction, ...]:
    """The best option of every other action and why it lost, or why there is none; in the order of the actions."""
    best: dict[RecoveryAction, RecoveryOption] = {}
    for rival in sorted(rivals, key=_worth):
        best[rival.action] = rival
    found = {
        action: ConsideredAction(action, rival.value_flop, _why_not(option, rival, job, takers))
        for action, rival in best.items()
        if action is not option.action
    }
    for refusal in (*refused, *option.refused):
        if refusal.action is not option.action:
            found.setdefault(refusal.action, refusal)
    return tuple(found[action] for action in RecoveryAction if action in found)


def _why_not(
    option: RecoveryOption, rival: RecoveryOption, job: RunningJob, takers: Mapping[Gpu, str]
) -> tuple[Remark, ...]:
    if rival.value_flop > option.value_flop:
        return (_instead(option, rival, job, takers),)
    if not rival.tokens_per_s and rival.value_flop <= 0:
        return (remark("makes_nothing"),)
    if rival.least_gain_flop > option.least_gain_flop and _gain(option, rival) > 0:
        return (_too_little(option, rival, job),)
    slower = option.tokens_per_s - rival.tokens_per_s
    still_s = rival.migration.downtime.middle_s - option.migration.downtime.middle_s
    causes = []
    if rival.action is not RecoveryAction.WAIT and slower > 0.001 * option.tokens_per_s:
        causes += [remark("fewer_tokens", share=_share(slower, option.tokens_per_s)), rival.limited_by]
    if still_s > 1:
        causes.append(remark("longer_downtime", seconds=still_s))
    if (more := rival.migration.bytes.outside - option.migration.bytes.outside) >= GBYTE:
        causes.append(remark("more_to_move", bytes=more))
    if rival.spares_flop > option.spares_flop:
        causes.append(remark("more_spares"))
    if not causes and rival.value_flop == option.value_flop:
        return (remark("as_good", holds_more=len(rival.holds) > len(option.holds)),)
    less = _share(option.value_flop - rival.value_flop, option.value_flop)
    return (remark("worth_less", share=less), *causes)


def _instead(option: RecoveryOption, rival: RecoveryOption, job: RunningJob, takers: Mapping[Gpu, str]) -> Remark:
    """Why an option that is worth more to the job was not taken."""
    others = {takers[gpu] for gpu in rival.holds if takers.get(gpu, job.name) != job.name}
    gain = rival.value_flop - option.value_flop
    more = _share(gain, option.value_flop)
    is_trifle = gain <= WORTH_MOVING * abs(option.value_flop)
    if not others and is_trifle and len(rival.migration.moved) > len(option.migration.moved):
        moved = len(rival.migration.moved)
        return remark("moves_for_little", action=rival.action, share=more, ranks=moved)
    if not others:
        return remark("over_budget", action=rival.action, gpus=len(rival.holds))
    nodes = {node for node, gpu in rival.holds if takers.get((node, gpu), job.name) != job.name}
    if rival.action is not option.action:
        return remark("needed_by_others", action=rival.action, nodes=_ordered(nodes), jobs=_ordered(others))
    return remark("better_nodes_needed", nodes=_ordered(nodes), jobs=_ordered(others), share=more)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _ordered(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def _worth(option: RecoveryOption) -> float:
    return option.value_flop
