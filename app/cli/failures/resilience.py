"""``meshwright resilience``: judge a plan by what failures do to it; no database."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.cli.failures.failure_options import as_option
from app.cli.failures.replan_options import (
    check_plan_fits,
    interval_steps,
    read_recovery,
    read_running_plan,
    seconds_of,
)
from app.cli.failures.resilience_view import JudgedPlan, resilience_view
from app.cli.files import read_calibration, read_snapshot
from app.cli.terminal import console, reading_shown
from app.services.planning.resilience import ResilienceQuestion, judge
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster, NicGroup, Node
from cluster_models.errors import InvalidInput
from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.training.plan import Plan

THOUSAND_NODES = 1000.0


@dataclass(frozen=True, slots=True)
class AskedResilience:
    """The options of ``resilience`` as typed; ``rate`` in failures of 1,000 nodes a day."""

    plan: str
    cluster: str | None = None
    recovery: str | None = None
    rate: float | None = None
    checkpoint_every: str | None = None
    write: str | None = None
    restart: str | None = None
    label: str = "node"
    search: str | None = None
    calibration: str | None = None
    as_json: bool = False


def run_resilience(asked: AskedResilience) -> None:
    """Print what a plan survives, its effective training time, and what surviving more costs."""
    if asked.rate is not None and not 0 <= asked.rate < float("inf"):
        raise InvalidInput(
            "--rate", asked.rate, "must be a number of failures", "6.5 of 1,000 nodes a day is usual"
        )
    if asked.search is not None and asked.cluster is None:
        raise InvalidInput("--search", asked.search, "needs the nodes that a plan may use", "give --cluster FILE")
    plan = read_running_plan(asked.plan)
    if plan.architecture is None or plan.workload is None:
        raise InvalidInput("PLAN_JSON", asked.plan, "does not say which model it is for", "plan it anew")
    snapshot = _hosts_alone(plan)
    if asked.cluster is not None:
        snapshot = read_snapshot(asked.cluster)
        check_plan_fits("PLAN_JSON", asked.plan, plan, snapshot.cluster)
    question = ResilienceQuestion(
        plan=plan,
        snapshot=snapshot,
        recovery=_policy(asked, plan),
        label=asked.label,
        failures_per_node_day=None if asked.rate is None else asked.rate / THOUSAND_NODES,
        search_s=None if asked.search is None else seconds_of("--search", asked.search),
        fitted=_fitted(asked, plan),
        write_s=None if asked.write is None else _seconds_or_none("--checkpoint-write", asked.write),
    )
    with reading_shown("judging the plan"), as_option("--label"):
        found = judge(question)
    if asked.cluster is None:
        found = replace(found, survives=plan.survives or found.survives, hardenings=())
    if asked.as_json:
        from app.answers.resilience import ResilienceAnswer  # noqa: PLC0415 - loads the answers of the service

        sys.stdout.write(ResilienceAnswer.from_value(found).model_dump_json(indent=2) + "\n")
    else:
        judged = JudgedPlan(
            plan,
            question.recovery,
            asked.label,
            knows_links=asked.cluster is not None,
            searched=asked.search is not None,
        )
        console().print(resilience_view(found, judged))
    sys.stdout.flush()


def _fitted(asked: AskedResilience, plan: Plan) -> FittedParameters | None:
    """The parameters that the plan was priced with; raises ``InvalidInput`` where a search would take others."""
    label = plan.provenance.calibration
    fitted = None if asked.calibration is None else read_calibration(asked.calibration)
    if fitted is not None and fitted.source != label:
        known = label or "the shipped parameters"
        raise InvalidInput(
            "--calibration", asked.calibration, f"is {fitted.source}; the plan was made with {known}"
        )
    if asked.search is not None and label and fitted is None:
        problem = f"was planned with the calibration {label}"
        raise InvalidInput("PLAN_JSON", asked.plan, problem, "give its file: --calibration FILE")
    return fitted


def _policy(asked: AskedResilience, plan: Plan) -> RecoveryPolicy:
    policy = RecoveryPolicy() if asked.recovery is None else read_recovery(asked.recovery)
    if asked.checkpoint_every is not None:
        steps = interval_steps("--checkpoint-every", asked.checkpoint_every, step_s=plan.time.step_s)
        policy = replace(policy, checkpoint_interval_steps=steps)
    if asked.restart is not None:
        restart_s = seconds_of("--restart", asked.restart)
        policy = replace(policy, restart_low_s=restart_s, restart_high_s=restart_s)
    return policy


def _seconds_or_none(option: str, text: str) -> float:
    """Seconds of a duration, where nothing (``0s``) is one as well."""
    return 0.0 if text.strip() in {"0", "0s"} else seconds_of(option, text)


def _hosts_alone(plan: Plan) -> ClusterSnapshot:
    """The plan's hosts and nothing known of places and links: what holds of any cluster with them."""
    kind = next(iter(gpu_kinds().values()))
    size = max(place.gpu for place in plan.placement.ranks) + 1
    nics = NicGroup(count=1, bytes_per_s=25e9, fabric="ethernet")
    nodes: Sequence[Node] = [Node(name, kind.name, size, name, nics) for name in plan.placement.hosts]
    cluster = Cluster("hosts of the plan", tuple(nodes), {kind.name: kind}, source="a plan")
    return ClusterSnapshot(id="hosts of the plan", cluster=cluster, samples=())
