"""A serving plan as pages and terminal report it: figures and sentences, most important first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from app.presentation.figures import capital, count, percent, plural, seconds
from app.presentation.plan import Pairs
from app.presentation.serving_tables import (
    FrontRow,
    OtherShape,
    PoolRow,
    ReplicaRow,
    StepRow,
    front_rows,
    node_words,
    other_shapes,
    pool_rows,
    replica_rows,
    step_rows,
)
from app.presentation.serving_words import (
    ANSWER,
    FIRST_TOKEN,
    OBJECTIVES,
    PHASES,
    TOKEN,
    objective_words,
    range_words,
    rate_words,
    statistic_words,
)
from cluster_models.serving.figures import Interval, Percentiles, Replay
from cluster_models.serving.plan import IdleReason, PlannedPool, ServingPlan, ServingWarning, ServingWarningKind
from cluster_models.serving.workload import ServingWorkload
from cluster_models.training.plan import Provenance, StopReason

_ENDED: Final = {
    StopReason.PROVEN: "All that could be better by more than the gap asked for is ruled out.",
    StopReason.TIME_LIMIT: "The time limit ended the search; a longer one may narrow the gap.",
    StopReason.WORK_LIMIT: "The effort was used up; a larger one may narrow the gap.",
    StopReason.CANCELLED: "The search was stopped.",
    StopReason.NO_SEARCH: "This plan was made without a search.",
}
_IDLE: Final = {
    IdleReason.NOT_NEEDED: "the load is served without them",
    IdleReason.NO_GAIN: "serving with them is not better",
    IdleReason.TOO_FEW: "no worker that holds the model fits into what is left",
    IdleReason.BUDGET: "the limit on GPUs or power",
    IdleReason.AVOIDED: "their nodes are to be avoided",
    IdleReason.NOT_READY: "their nodes are not ready",
}
_WARNINGS: Final = {
    ServingWarningKind.ESTIMATED_LINKS: "Links between {0} were not measured: they count as links of their kind.",
    ServingWarningKind.UNMEASURED_ENGINE: "No run of {0} was measured: its intervals are wider.",
    ServingWarningKind.DEGRADED_NODES: "The plan uses nodes that are degraded: {0}.",
    ServingWarningKind.WIDENED_WEIGHTS: "No tensor cores for {0}: these weights are multiplied in 16 bits.",
    ServingWarningKind.DRAFT: "The search was ended by force: this is the best plan that it had told of, without "
    "alternatives and simulation.",
}
_COUNTED: Final = (
    "Experts lie as a greedy map of the counts places them: its busiest rank and the nodes that tokens need are "
    "priced; the maps that experts serving makes for this plan may do better."
)
_TOO_SMALL_TO_SAY: Final = 5e-5


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """A latency of a model, the mean or what its limit holds for; ``limit`` is empty where there is none."""

    model: str
    name: str
    value: str
    interval: str
    limit: str
    verdict: str
    meets: bool


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """Percentiles of one latency of a trace, simulated and by the closed form; ``misses`` says a missed limit."""

    model: str
    name: str
    simulated: tuple[str, str, str]
    expected: tuple[str, str, str]
    misses: str


@dataclass(frozen=True, slots=True)
class ServingProof:
    """The certificate for somebody who never heard of a duality gap."""

    verdict: str
    explanation: str
    figures: Pairs
    proven: bool


@dataclass(frozen=True, slots=True)
class ServingReport:
    """Report on a serving plan in words; drawings are made where they are shown."""

    decision: tuple[str, ...]
    headline: Pairs
    latencies: tuple[LatencyRow, ...]
    replays: tuple[ReplayRow, ...]
    proof: ServingProof
    warnings: tuple[str, ...]
    pools: tuple[PoolRow, ...]
    replicas: tuple[ReplicaRow, ...]
    steps: tuple[StepRow, ...]
    idle: tuple[str, ...]
    alternatives: tuple[OtherShape, ...]
    front: tuple[FrontRow, ...]
    provenance: Pairs


def serving_report(plan: ServingPlan) -> ServingReport:
    """The report of ``plan``."""
    return ServingReport(
        decision=tuple(decision(plan)),
        headline=headline(plan),
        latencies=tuple(latencies(plan)),
        replays=tuple(replays(plan)),
        proof=serving_proof(plan),
        warnings=tuple(map(_warning, plan.warnings)),
        pools=pool_rows(plan),
        replicas=replica_rows(plan),
        steps=step_rows(plan),
        idle=tuple(idle_sentences(plan)),
        alternatives=other_shapes(plan),
        front=front_rows(plan),
        provenance=serving_provenance(plan.provenance),
    )


def decision(plan: ServingPlan) -> Iterator[str]:
    """A line for each pool: "llama: 2 replicas of tp4 for prefill and decode on n1, n2"."""
    for pool in plan.pools:
        name = plan.models[pool.model].architecture.name
        nodes = list(dict.fromkeys(place.node for each in pool.replicas for place in each.places))
        size = f"{plural(len(pool.replicas), 'replica')} of {pool.replicas[0].worker}"
        yield f"{name}: {size} for {PHASES[pool.phase]}{_each(pool)} on {node_words(nodes)}"


def _each(pool: PlannedPool) -> str:
    gpus = pool.replicas[0].worker.gpus
    return f", {plural(gpus, 'GPU')}{' each' if len(pool.replicas) > 1 else ''}"


def headline(plan: ServingPlan) -> Pairs:
    """The figures a reader came for, each with its name."""
    several = len(plan.models) > 1
    rows: list[tuple[str, str]] = [("throughput", f"{count(plan.tokens_per_s)} output tokens/s")]
    rows.append(("per GPU", f"{count(plan.tokens_per_s_per_gpu)} tokens/s"))
    for each in plan.figures:
        name = f", {plan.models[each.model].architecture.name}" if several else ""
        rows.append((f"requests{name}", f"{each.requests_per_s:,.3g} a second, {each.concurrency:,.4g} in flight"))
        rows.append((f"room to grow{name}", f"{each.most_requests_per_s:,.3g} requests a second at most"))
        if several:
            rows.append((f"output{name}", rate_words(each.output_tokens_per_s)))
    rows.append(("GPUs used", count(plan.gpus)))
    if plan.price_usd_per_hour is not None:
        rows.append(("list price", f"{plan.price_usd_per_hour:,.2f} USD an hour"))
        dollars = plan.price_usd_per_hour / plan.tokens_per_s / 3600 * 1e6
        rows.append(("price of output", f"{dollars:,.3g} USD a million tokens"))
    capped = any(replica.power_cap_watts for replica in plan.replicas)
    name = "power by data sheets and caps" if capped else "power by data sheets"
    rows.append((name, f"{plan.power_watts / 1000:,.3g} kW"))
    most = f"{plan.power_watts / plan.tokens_per_s:,.3g}"
    if (drawn := plan.drawn_watts) is None:
        rows.append(("energy of output", f"{most} J a token at most"))
    else:
        rows.append(("power drawn, estimated", f"{drawn.value / 1000:,.3g} kW"))
        low, value, high = (f"{each / plan.tokens_per_s:,.3g}" for each in (drawn.low, drawn.value, drawn.high))
        rows.append(("energy of output", f"{value} J a token ({low} to {high}), at most {most}"))
    return tuple(rows)


_LATENCIES: Final = (FIRST_TOKEN, TOKEN, ANSWER)


def latencies(plan: ServingPlan) -> Iterator[LatencyRow]:
    """Mean latencies of each model; limited ones, those of classes too, with the statistic of the limit."""
    for each in plan.figures:
        served = plan.models[each.model]
        workload, outputs = served.workload, served.workload.output_tokens - 1
        answer = Interval(
            *(getattr(each.first_token_s, end) + outputs * getattr(each.token_s, end) for end in Interval.__slots__)
        )
        means = (each.first_token_s, each.token_s, answer)
        found = zip(workload.limits_s, each.limited_s.values_s, strict=True)
        for place, (limit, limited) in enumerate(found):
            group, latency = divmod(place, 3)
            name, mean, share = _LATENCIES[latency], means[latency], workload.limit_shares[group]
            is_limited = limit < math.inf
            if not is_limited and (group or name == ANSWER):
                continue
            by_mean = not group and (share is None or not is_limited)
            words = f"{name}, {statistic_words(share)}" if is_limited else name
            value = mean.value if by_mean else limited
            scale = value / mean.value
            interval = Interval(value, scale * mean.low, scale * mean.high)
            meets, sure = limited <= limit, interval.high <= limit
            verdict = "" if not is_limited else "met" if sure else "met, its range is not" if meets else "missed"
            yield LatencyRow(
                model=served.architecture.name,
                name=f"{words} of {workload.class_names[group - 1]}" if group else words,
                value=seconds(value),
                interval=range_words(interval),
                limit=seconds(limit) if is_limited else "",
                verdict=verdict,
                meets=meets,
            )


def replays(plan: ServingPlan) -> Iterator[ReplayRow]:
    """Traces simulated on the plan, beside the closed form that it was chosen by."""
    for each in plan.figures:
        if (found := each.replay) is None:
            continue
        workload = plan.models[each.model].workload
        pairs = (found.first_token, found.expected_first_token), (found.token, found.expected_token)
        for place, (simulated, expected) in enumerate(pairs):
            yield ReplayRow(
                model=f"{plan.models[each.model].architecture.name}, {plural(found.requests, 'request')}",
                name=_LATENCIES[place],
                simulated=_seconds(simulated),
                expected=_seconds(expected),
                misses="; ".join(_misses(workload, found, place)),
            )


def _misses(workload: ServingWorkload, found: Replay, latency: int) -> Iterator[str]:
    """Limits on a latency that the simulation misses, over all requests and in classes."""
    names = ("", *(f" in {name}" for name in workload.class_names))
    for group, (name, share) in enumerate(zip(names, workload.limit_shares, strict=True)):
        value = found.limited_s.values_s[3 * group + latency]
        if value > workload.limits_s[3 * group + latency]:
            yield f"its {statistic_words(share)}{name} of {seconds(value)} misses the limit"


def _seconds(found: Percentiles) -> tuple[str, str, str]:
    first, second, third = map(seconds, found.values_s)
    return first, second, third


def serving_proof(plan: ServingPlan) -> ServingProof:
    """The certificate in plain words."""
    certificate, objective = plan.certificate, plan.goal.objective
    if certificate.stopped_by is StopReason.NO_SEARCH:
        reached = (f"{OBJECTIVES[objective]}", objective_words(objective, certificate.objective))
        return ServingProof(_ENDED[certificate.stopped_by], "There may be better ones.", (reached,), proven=False)
    proven = certificate.gap < _TOO_SMALL_TO_SAY
    better = percent(certificate.gap, places=2)
    verdict = (
        "Proven best: no choice and placement of the groups that were enumerated is better."
        if proven
        else f"At most {better} from the best: no plan of this search space is better by more."
    )
    shapes, groups = plural(certificate.shapes, "worker shape"), plural(certificate.groups, "group")
    over = certificate.groups_over_limits
    missed = f", {count(over)} of them within the limits at none" if over else ""
    counted = (
        f"{shapes} on these kinds of GPUs and links, {count(certificate.shapes_too_large)} too large; {groups} "
        f"priced at {plural(certificate.operating_points, 'load')}{missed}."
    )
    counts = " " + _COUNTED if any(served.workload.routing for served in plan.models) else ""
    return ServingProof(
        verdict=verdict,
        explanation=f"{_ENDED[certificate.stopped_by]} {counted}{counts}",
        figures=(
            ("objective", f"{OBJECTIVES[objective]}: {objective_words(objective, certificate.objective)}"),
            ("no plan beats", objective_words(objective, certificate.bound)),
            ("gap", better),
            ("solver", certificate.solver),
        ),
        proven=proven,
    )


def idle_sentences(plan: ServingPlan) -> Iterator[str]:
    """How many free GPUs stay idle for each reason, and on which nodes."""
    counts = Counter[IdleReason]()
    nodes: dict[IdleReason, list[str]] = {}
    for idle in plan.idle:
        counts[idle.reason] += len(idle.gpus)
        nodes.setdefault(idle.reason, []).append(idle.node)
    for reason, gpus in counts.items():
        verb = "stays" if gpus == 1 else "stay"
        yield f"{plural(gpus, 'GPU')} on {node_words(nodes[reason])} {verb} idle: {_IDLE[reason]}."


def serving_provenance(made_from: Provenance) -> Pairs:
    """Values that the answer was made from; the same ones give the same answer."""
    return (
        ("cluster", made_from.cluster_name),
        ("snapshot", made_from.snapshot_id),
        ("product", made_from.product_version),
        ("calibration", made_from.calibration or "as shipped"),
        ("performance model", made_from.cost_model_version),
        ("seed", str(made_from.seed)),
        ("effort", str(made_from.effort)),
        ("solvers", ", ".join(f"{name} {version}" for name, version in made_from.solver_versions.items())),
    )


def _warning(warning: ServingWarning) -> str:
    subject = list(warning.subject)
    on_kinds = (ServingWarningKind.UNMEASURED_ENGINE, ServingWarningKind.WIDENED_WEIGHTS)
    shown = " on ".join(subject) if warning.kind in on_kinds else node_words(subject)
    return capital(_WARNINGS[warning.kind].format(shown))
