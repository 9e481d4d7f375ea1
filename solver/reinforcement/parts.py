"""The two parts of a problem of reinforcement learning as problems of their own, and what contradicts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from cluster_models.errors import InvalidInput, InvalidWorkload
from cluster_models.fleet.jobs import FleetJob, Pool
from cluster_models.links.model import effective_links
from cluster_models.reinforcement.workload import RESPONSES, Arrangement, check_context
from cluster_models.serving.goal import ServedModel, ServingGoal, ServingMode
from cluster_models.serving.workload import Worker
from cluster_models.training.workload import TrainingWorkload
from solver.degrees.floors import worlds
from solver.degrees.legality import check_workload
from solver.degrees.promising import IsTimeUp
from solver.fleet.options import options_of, problem_on
from solver.placement.cluster_fabrics import fabrics, mixed_fabrics
from solver.problem import PlanningProblem
from solver.reinforcement.problem import ReinforcementProblem
from solver.serving.plan import check_problem as check_serving_problem
from solver.serving.problem import ServingProblem

EVERY_COUNT: Final = 32
"""Numbers of the trainer's nodes that are looked at one by one."""


def least_training_s(problem: ReinforcementProblem, *, is_time_up: IsTimeUp = lambda: False) -> dict[int, float]:
    """Seconds, by number of nodes that is looked at, that no training of a step on at most so many beats.

    Numbers in between, and those not priced when ``is_time_up``, count with the arithmetic of their GPUs.  Empty
    where the update fits on none.
    """
    options = options_of(
        _job(problem, problem.workload.training), _pool(problem), every=EVERY_COUNT, is_time_up=is_time_up
    )
    looked_at = {option.nodes for option in options}
    between = [(nodes, floor) for nodes, floor in _floors_s(problem) if options and nodes not in looked_at]
    return {
        option.nodes: problem.workload.optimizer_steps
        * min([option.bound_step_s, *(floor for nodes, floor in between if nodes < option.nodes)])
        for option in options
    }


def _floors_s(problem: ReinforcementProblem) -> list[tuple[int, float]]:
    """Numbers of nodes, each with seconds that no update on all GPUs of one kind there beats."""
    asked, size = training_problem(problem, len(problem.nodes)), problem.gpus_per_node
    usable = fabrics(asked.snapshot, asked.workload, effective_links(asked.snapshot), fitted=asked.fitted)
    return [(-(-world.gpus // size), world.floor) for world in worlds(asked, usable)]


def training_problem(
    problem: ReinforcementProblem, nodes: int, update: TrainingWorkload | None = None
) -> PlanningProblem:
    """The trainer's problem on at most so many nodes."""
    return problem_on(_job(problem, update or problem.workload.training), _pool(problem), nodes=nodes)


def update_beside(problem: ReinforcementProblem, asleep_bytes: float) -> TrainingWorkload:
    """The update beside an engine that keeps so many bytes of each GPU while it sleeps."""
    update = problem.workload.training
    least = min(problem.snapshot.cluster.gpu_kinds[node.gpu_kind].memory_bytes for node in problem.nodes)
    return replace(update, memory_headroom=min(update.memory_headroom + asleep_bytes / least, 0.999))


def served_policy(problem: ReinforcementProblem, memory_fraction: float | None = None) -> ServedModel:
    """The policy as the engine serves it, in that share of a GPU's memory; ``None``: as the workload says."""
    rollout = problem.workload.rollout
    if memory_fraction is not None:
        rollout = replace(rollout, memory_fraction=memory_fraction)
    own = None if problem.fitted is None else problem.fitted.own_rates(rollout.engine.name)
    return ServedModel(problem.architecture, rollout, own=own)


def serving_problem(
    problem: ReinforcementProblem, served: ServedModel, nodes: Iterable[str], worker: Worker | None = None
) -> ServingProblem:
    """The engine's problem on nodes, by workers of one shape where it is given."""
    pinned = problem.workload.pinned
    if worker is not None:
        pinned = {name: getattr(worker, name) for name in Worker.__slots__}
    own = set(nodes)
    others = tuple(node.name for node in problem.snapshot.cluster.nodes if node.name not in own)
    goal = ServingGoal(modes=(ServingMode.AGGREGATED,), avoid_nodes=others, pinned=dict(pinned))
    return ServingProblem(problem.snapshot, (served,), goal)


def _job(problem: ReinforcementProblem, update: TrainingWorkload) -> FleetJob:
    return FleetJob("trainer", problem.architecture, update, fitted=problem.fitted)


def _pool(problem: ReinforcementProblem) -> Pool:
    """The nodes, as a job of a fleet has them."""
    nodes = problem.nodes
    names = tuple(node.name for node in nodes)
    return Pool("nodes", problem.snapshot, names, problem.gpus_per_node, nodes[0].gpu_kind)


def check_problem(problem: ReinforcementProblem) -> None:
    """Raise ``InvalidInput`` where no search is needed to see that the problem contradicts itself."""
    workload = problem.workload
    names = {node.name for node in problem.snapshot.cluster.nodes}
    for name in workload.avoid_nodes:
        if name not in names:
            raise InvalidWorkload("workload.avoid_nodes", name, "is not a node of the cluster")
    check_context(problem.architecture, workload)
    _check_nodes(problem)
    trained, links = training_problem(problem, len(problem.nodes)), effective_links(problem.snapshot)
    try:
        alike, mixed = (each(problem.snapshot, trained.workload, links) for each in (fabrics, mixed_fabrics))
        check_workload(trained, alike, mixed)
    except InvalidInput as error:
        raise _under("training", error) from error
    try:
        check_serving_problem(
            serving_problem(problem, served_policy(problem), [node.name for node in problem.nodes])
        )
    except InvalidInput as error:
        raise _under("rollout", error) from error


def _check_nodes(problem: ReinforcementProblem) -> None:
    nodes, asked = problem.nodes, problem.workload.arrangements
    if not nodes:
        raise InvalidWorkload(
            "cluster", problem.snapshot.cluster.name, "has no node with a free GPU that may be used"
        )
    sizes = Counter(len(node.free_gpus) for node in nodes)
    if len(sizes) > 1:
        usual = sizes.most_common(1)[0][0]
        others = [node.name for node in nodes if len(node.free_gpus) != usual]
        problem_words = (
            f"must leave nodes with equally many free GPUs, which are given out whole: {len(others)} differ"
        )
        shown = f"add {', '.join(others[:3])}{' ...' if len(others) > 3 else ''} to it"
        raise InvalidWorkload("workload.avoid_nodes", list(problem.workload.avoid_nodes), problem_words, shown)
    if not problem.arrangements:
        if Arrangement.SEPARATE in asked:
            reason = "needs a node for the trainer and one for the engine, the cluster has one that is free"
            remedy = "allow colocated, or free another node"
        else:
            reason = f"{problem.workload.rollout.engine.name} is not planned on GPUs that a trainer shares"
            remedy = "allow separate, or use vLLM or SGLang"
        raise InvalidWorkload("workload.arrangements", [str(each) for each in asked], reason, remedy)


def _under(part: str, error: InvalidInput) -> InvalidInput:
    """The error with its field as users write it in that part of the workload."""
    field = error.field.replace("workload.classes[0].input_tokens", "workload.prompt_tokens")
    if field.startswith("workload.") and "_tokens" not in field:
        field = field.replace("workload.", f"workload.{part}.", 1)
    return InvalidWorkload(field, error.value, error.problem.replace(f" of {RESPONSES}", ""), error.remedy)
