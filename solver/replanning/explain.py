"""Words of a decision: sentences, what was considered and lost, and GPU-hours without useful work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cluster_models.jobs.recovery import ConsideredAction, RecoveryAction
from cluster_models.jobs.running import RunningJob
from cluster_models.units import GBYTE, HOUR
from cluster_models.wording import named
from solver.replanning.problem import LEAVING, RecoveryOption, ReplanProblem
from solver.replanning.program import Gpu
from solver.replanning.touched import live_gpus, lost_gpus

SAME_WORTH: Final = 1e-3
"""Share of its worth by which the same done on other nodes is not worth a word."""
_NOUNS: Final[Mapping[RecoveryAction, str]] = {
    RecoveryAction.NONE: "running on",
    RecoveryAction.RESTART_IN_PLACE: "a restart in place",
    RecoveryAction.SWAP: "a swap",
    RecoveryAction.SHRINK_DATA_PARALLEL: "going on with fewer replicas",
    RecoveryAction.REROUTE: "re-routing",
    RecoveryAction.RESHAPE: "another shape",
    RecoveryAction.WAIT: "waiting",
    RecoveryAction.PAUSE: "a pause",
}


def lost_gpu_hours(problem: ReplanProblem, job: RunningJob, option: RecoveryOption) -> tuple[float, float]:
    """GPU-hours without useful work because of the decision, low and high.

    What the job holds afterwards, for its downtime; what it stands still on, until the lost nodes are back; of a
    job that pauses, what it held and still lives, for the horizon: others may use them, which is theirs to count.
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


def reason_of(
    problem: ReplanProblem,
    job: RunningJob,
    option: RecoveryOption,
    rivals: Sequence[RecoveryOption],
    takers: Mapping[Gpu, str],
) -> str:
    """One sentence: what was lost, what is done, and what speaks for it.

    ``rivals`` are the job's other options, ``takers`` names the job on each GPU after the decision.
    """
    cause = _cause(problem, job)
    better = max((rival for rival in rivals if _is_better(rival, option)), default=None, key=_worth)
    why = option.reason
    if better is not None:
        why += f"; {_instead(option, better, job, takers)}"
    elif option.action is RecoveryAction.NONE and (gaining := _gaining(option, rivals)) is not None:
        why += f"; {_noun(gaining)} {_too_little(option, gaining, job)}"
    elif given := {gpu for gpu in live_gpus(problem, job) if takers.get(gpu, job.name) != job.name}:
        others = {takers[gpu] for gpu in given}
        goes = "goes" if len(others) == 1 else "go"
        why += f"; {named(sorted(others))} {goes} on with {named(sorted({node for node, _ in given}))}"
    elif option.action is RecoveryAction.PAUSE and not any(_worth(rival) > 0 for rival in rivals):
        why += "; nothing else can be done with what is left"
    return _sentence(f"{cause}: {why}" if cause else why)


def _gaining(option: RecoveryOption, rivals: Sequence[RecoveryOption]) -> RecoveryOption | None:
    """The rival that would gain most over leaving the job alone, if not as much as it must."""
    gains = [rival for rival in rivals if _gain(option, rival) > SAME_WORTH * abs(option.value_flop)]
    return max(gains, key=lambda rival: _gain(option, rival), default=None)


def _gain(option: RecoveryOption, rival: RecoveryOption) -> float:
    """FLOPs that ``rival`` is worth more than ``option`` before what stopping the job must gain."""
    return rival.value_flop + rival.least_gain_flop - option.value_flop


def _too_little(option: RecoveryOption, rival: RecoveryOption, job: RunningJob) -> str:
    share = job.recovery.least_gain_share
    gain = _percent(share * _gain(option, rival), rival.least_gain_flop)
    return f"would gain {gain} of its work, and stopping it must gain {100 * share:g} % (least_gain_share)"


def _is_better(rival: RecoveryOption, option: RecoveryOption) -> bool:
    """Whether it is worth more to the job, and more than a trifle where the same is done on other nodes."""
    least = SAME_WORTH * abs(option.value_flop) if rival.action is option.action else 0.0
    return rival.value_flop > option.value_flop + least


def _cause(problem: ReplanProblem, job: RunningJob) -> str:
    """Losses of the job: GPUs of nodes that go on otherwise, or whole nodes."""
    lost: dict[str, list[int]] = {}
    for node, gpu in sorted(lost_gpus(problem, job)):
        lost.setdefault(node, []).append(gpu)
    parts = [
        name if problem.nodes[name].state in LEAVING else f"{name}:{','.join(map(str, gpus))}"
        for name, gpus in lost.items()
    ]
    causes = [f"without {named(sorted(parts))}"] * bool(parts)
    if cards := problem.cut_off.get(job.id):
        causes.append(f"a network card of {named(sorted(cards))} failed, which ended it")
    return ", and ".join(causes)


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
        action: ConsideredAction(action, rival.value_flop, _sentence(_why_not(option, rival, job, takers)))
        for action, rival in best.items()
        if action is not option.action
    }
    for refusal in (*refused, *option.refused):
        if refusal.action is not option.action:
            found.setdefault(
                refusal.action,
                ConsideredAction(refusal.action, refusal.value_flop, _sentence(refusal.reason)),
            )
    return tuple(found[action] for action in RecoveryAction if action in found)


def _why_not(option: RecoveryOption, rival: RecoveryOption, job: RunningJob, takers: Mapping[Gpu, str]) -> str:
    if rival.value_flop > option.value_flop:
        return _instead(option, rival, job, takers)
    if not rival.tokens_per_s and rival.value_flop <= 0:
        return "it makes nothing over the horizon"
    if rival.least_gain_flop > option.least_gain_flop and _gain(option, rival) > 0:
        return f"it {_too_little(option, rival, job)}"
    less = _percent(option.value_flop - rival.value_flop, option.value_flop)
    slower = option.tokens_per_s - rival.tokens_per_s
    still_s = rival.migration.downtime.middle_s - option.migration.downtime.middle_s
    causes = []
    if rival.action is not RecoveryAction.WAIT and slower > 0.001 * option.tokens_per_s:
        limit = f" (limited by {rival.limited_by})" if rival.limited_by else ""
        causes.append(f"{_percent(slower, option.tokens_per_s)} fewer tokens/s{limit}")
    if still_s > 1:
        causes.append(f"{still_s:.0f} s more downtime")
    if (more := rival.migration.bytes.outside - option.migration.bytes.outside) >= GBYTE:
        causes.append(f"{more / GBYTE:.0f} GB more to move")
    if rival.spares_flop > option.spares_flop:
        causes.append("it takes more spares, which are worth something kept")
    if not causes and rival.value_flop == option.value_flop:
        return "as good, but it holds more GPUs" if len(rival.holds) > len(option.holds) else "as good"
    return f"worth {less} less over the horizon" + (f": {', '.join(causes)}" if causes else "")


def _instead(option: RecoveryOption, rival: RecoveryOption, job: RunningJob, takers: Mapping[Gpu, str]) -> str:
    """Why an option that is worth more to the job was not taken."""
    others = {takers[gpu] for gpu in rival.holds if takers.get(gpu, job.name) != job.name}
    if not others:
        return f"{_noun(rival)} would hold {len(rival.holds)} GPUs, which the GPU budget does not leave it"
    nodes = {node for node, gpu in rival.holds if takers.get((node, gpu), job.name) != job.name}
    makes = "makes" if len(others) == 1 else "make"
    whose = f"{named(sorted(nodes))}, which {named(sorted(others))} {makes} more of"
    if rival.action is option.action:
        more = _percent(rival.value_flop - option.value_flop, option.value_flop)
        return f"with {whose}, it would be worth {more} more"
    return f"{_noun(rival)} would need {whose}"


def _noun(option: RecoveryOption) -> str:
    return _NOUNS[option.action]


def _percent(part: float, whole: float) -> str:
    share = 100 * part / whole if whole > 0 else 0.0
    return f"{share:.0f} %" if share >= 10 else f"{share:.2g} %"


def _sentence(text: str) -> str:
    if not text:
        return text
    first = text.split(maxsplit=1)[0]
    # names of nodes and degrees are written as they are
    is_name = any(letter.isdigit() for letter in first)
    return (text if is_name else text[0].upper() + text[1:]).rstrip(".") + "."


def _worth(option: RecoveryOption) -> float:
    return option.value_flop
