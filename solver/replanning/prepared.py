"""Options for the case that any one node of a job were lost, worked out before it happens.

Nodes that play the same part in the plan and are alike in hardware and place stand for each other: the options of
one serve all of its class, with the names exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cluster_models.cluster.topology import NodeState
from cluster_models.errors import InvalidInput
from cluster_models.jobs.recovery import ConsideredAction, RecoveryAction
from cluster_models.jobs.running import RunningJob
from cluster_models.training.plan import Plan
from solver.replanning import options as actions
from solver.replanning.columns import View, columns_of
from solver.replanning.migration import migration
from solver.replanning.problem import RecoveryOption, ReplanProblem
from solver.replanning.program import Gpu
from solver.replanning.resources import check_plan, unreadable
from solver.replanning.touched import Touched, held_gpus, lost_gpus
from solver.replanning.values import new_shape_flop, option_value


@dataclass(frozen=True, slots=True)
class PreparedLoss:
    """The options where one of ``nodes`` is lost, the best first, as for the first of them; none needs a spare."""

    nodes: tuple[str, ...]
    options: tuple[RecoveryOption, ...]


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """Options prepared for a job while it ran on ``hosts``: for every node of it, one entry names it."""

    job_id: str
    hosts: tuple[str, ...]
    losses: tuple[PreparedLoss, ...]


def prepare(problem: ReplanProblem, job: RunningJob, *, limit_s: float = 10.0, seed: int = 0) -> PreparedJob:
    """The options of ``job`` for any one of its nodes lost and no spare left, on the cluster as it is.

    ``limit_s`` for the search of another shape, of each class of nodes.  None where the plan does not fit the
    cluster (any more).
    """
    try:
        check_plan(problem, job)
    except InvalidInput:
        return PreparedJob(job.id, job.nodes, ())
    classes: dict[object, list[str]] = {}
    for host in dict.fromkeys(job.nodes):
        classes.setdefault(_part_of(problem, job, host), []).append(host)
    losses = tuple(
        PreparedLoss(tuple(nodes), _without(problem, job, nodes[0], limit_s, seed)) for nodes in classes.values()
    )
    return PreparedJob(job.id, job.nodes, losses)


def fitting_options(problem: ReplanProblem, job: RunningJob, known: PreparedJob) -> Iterator[RecoveryOption]:
    """The options prepared for what ``job`` lost, as they are now; none where it lost more than one node.

    Moved bytes and the value are worked out anew; throughput is that of the node that the options were made for.
    """
    lost = lost_gpus(problem, job)
    nodes = {node for node, _ in lost}
    if len(nodes) != 1 or known.hosts != job.nodes or job.id in problem.cut_off:
        return
    (gone,) = nodes
    entry = next((loss for loss in known.losses if gone in loss.nodes), None)
    if entry is None:
        return
    for option in entry.options:
        names = {} if gone == entry.nodes[0] else {gone: entry.nodes[0]}
        made = _renamed(problem, job, option, names, lost)
        if made.holds <= held_gpus(job) - lost:
            yield made


def _part_of(problem: ReplanProblem, job: RunningJob, host: str) -> object:
    """Equal for nodes whose loss takes the same from the job: stages and GPUs, hardware and place."""
    node = problem.nodes[host]
    ranks = tuple(
        (place.gpu, place.tensor, place.pipeline) for place in job.plan.placement.ranks if place.node == host
    )
    return ranks, node.gpu_kind, node.place("leaf"), node.compute_slowdown, node.nics, node.free_gpus


def _without(
    problem: ReplanProblem, job: RunningJob, host: str, limit_s: float, seed: int
) -> tuple[RecoveryOption, ...]:
    """The options with one node failed and no spares, the best first."""
    nodes = tuple(
        replace(node, state=NodeState.FAILED) if node.name == host else node
        for node in problem.snapshot.cluster.nodes
    )
    snapshot = replace(problem.snapshot, cluster=replace(problem.snapshot.cluster, nodes=nodes))
    after = replace(problem, snapshot=snapshot, spares=())
    view = columns_of(after, job, Touched(hit=(job,))).views[0]
    found = [answer for answer in _answers(view, limit_s, seed) if not isinstance(answer, ConsideredAction)]
    return tuple(sorted(found, key=lambda option: (-option.value_flop, option.action)))


def _answers(view: View, limit_s: float, seed: int) -> Iterator[actions.Answer]:
    yield actions.shrink(view.site, migrate=view.migrate)
    yield actions.reroute(view.site, migrate=view.migrate)
    yield actions.reshape(view.site, (), limit_s, migrate=view.migrate, seed=seed)


def _renamed(
    problem: ReplanProblem,
    job: RunningJob,
    option: RecoveryOption,
    names: Mapping[str, str],
    lost: frozenset[Gpu],
) -> RecoveryOption:
    """``option`` with nodes called otherwise, and with what it costs to get there."""
    assert option.plan is not None
    plan = _plan_on(option.plan, names)
    reroutes = option.action is RecoveryAction.REROUTE
    policy = replace(job.recovery, hands_over_state=reroutes or job.recovery.hands_over_state)
    lives = replace(job, recovery=policy)
    moves = migration(lives, plan, problem=problem, lost=unreadable(problem, lost), links=problem.links())
    if reroutes:
        moves = replace(moves, moved=())
    least_gain = 0.0
    if option.action is RecoveryAction.RESHAPE:
        least_gain = new_shape_flop(job, option.tokens_per_s, moves, problem.horizon_s)
    return replace(
        option,
        plan=plan,
        migration=moves,
        holds=frozenset((place.node, place.gpu) for place in plan.placement.ranks),
        value_flop=option_value(job, option.tokens_per_s, moves, horizon_s=problem.horizon_s) - least_gain,
        least_gain_flop=least_gain,
    )


def _plan_on(plan: Plan, names: Mapping[str, str]) -> Plan:
    """``plan`` with its nodes called by ``names``; GPUs keep their numbers."""
    placement = plan.placement
    ranks = tuple(replace(place, node=names.get(place.node, place.node)) for place in placement.ranks)
    hosts = tuple(names.get(host, host) for host in placement.hosts)
    return replace(plan, placement=replace(placement, hosts=hosts, ranks=ranks))
