"""Runs to measure next: those that would make predictions of good configurations surest.

With parameters u ~ N(m, S), S from what is known of others (``beliefs``), and errors of steps of s, a run with
derivatives J of its log step leaves (S^-1 + J J' / s^2)^-1.  The variance of the log step of a configuration with
derivatives G is G S G'; runs are chosen one by one so that its mean over the competitive configurations, between
which a plan decides, becomes least (V-optimal design, greedy: Fedorov 1972, Theory of Optimal Experiments).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.calibration.fitted import FittedParameters
from cluster_models.calibration.training_run import TrainingRun
from cluster_models.cluster.topology import Node
from cluster_models.errors import InvalidInput
from cluster_models.training.plan import Configuration, Degrees, RankOrder
from cluster_models.training.workload import Recompute
from solver.candidates import ORDER_CODES, SHARDING_CODES, CandidateBatch, FloatArray
from solver.costs.calibration import PARAMETERS, Calibration, calibration_of, longest_prefix, shipped_parameters
from solver.degrees.enumeration import Grid, enumerate_candidates
from solver.fitting.beliefs import beliefs_of
from solver.fitting.posterior import Prior
from solver.fitting.priced import StepTimes
from solver.fitting.report import MOST_EXPERIMENTS, ROW_ERROR
from solver.fitting.unknowns import MEMORY_PARAMETERS, kind_itself, unknowns_of
from solver.problem import PlanningProblem
from solver.run_memory import predict_peak_memory
from solver.runs import predict_runs

MOST_PRICED: Final = 400
"""Configurations that are priced, drawn from all legal ones."""
MOST_WEIGHED: Final = 120
"""Number of these that may be chosen: half of them the fastest."""
COMPETITIVE: Final = 1.5
"""Times as long a token as the fastest may take for a plan to consider the configuration."""
SEED: Final = 0


@dataclass(frozen=True, slots=True)
class Experiment:
    """A run to measure, its predicted step and peak memory, and what is known with it and those before it.

    ``error``: typical error of the step of competitive configurations, as a fraction.
    """

    run: TrainingRun
    step_s: float
    memory_bytes: float
    error: float


@dataclass(frozen=True, slots=True)
class Experiments:
    """The runs to measure, the most telling first; ``error``: as in ``Experiment``, without any of them."""

    runs: tuple[Experiment, ...]
    error: float
    configurations: int
    competitive: int


def choose_experiments(problem: PlanningProblem, count: int) -> Experiments:
    """At most ``count`` runs of the problem's model and workload on its cluster; all fit the memory.

    Raises ``InvalidInput`` where the cluster has no usable node, or nothing fits.
    """
    if not 1 <= count <= MOST_EXPERIMENTS:
        raise InvalidInput("runs", count, f"must be 1 to {MOST_EXPERIMENTS}")
    drawn = _runs(problem)
    steps = np.array([each.step_s for each in predict_runs(drawn, problem.fitted)])
    gpus = np.array([run.configuration.degrees.gpus for run in drawn])
    order = np.argsort(steps * gpus, kind="stable")
    fastest, others = order[: MOST_WEIGHED // 2], order[MOST_WEIGHED // 2 :]
    random = np.random.default_rng(SEED).permutation(others)[: MOST_WEIGHED - len(fastest)]
    weighed = np.concatenate([fastest, np.sort(random)])
    runs = [replace(drawn[i], step_s=float(steps[i])) for i in weighed.tolist()]
    cost = (steps * gpus)[weighed]
    columns, covariance = _known(problem, runs)
    competitive = cost <= COMPETITIVE * cost.min()
    chosen, errors = _greedy(columns, covariance, columns[competitive], count)
    return Experiments(
        runs=tuple(
            Experiment(runs[i], float(steps[weighed[i]]), predict_peak_memory(runs[i], problem.fitted), error)
            for i, error in zip(chosen, errors[1:], strict=True)
        ),
        error=errors[0],
        configurations=len(drawn),
        competitive=int(competitive.sum()),
    )


def _greedy(
    columns: FloatArray, covariance: FloatArray, goal: FloatArray, count: int
) -> tuple[list[int], list[float]]:
    """Rows of ``columns`` by what they tell of ``goal``, and its typical error before and after each."""
    noise = ROW_ERROR**2
    chosen: list[int] = []
    errors = [_error(goal, covariance)]
    for _ in range(min(count, len(columns))):
        moved = columns @ covariance
        variance = noise + np.einsum("ij,ij->i", moved, columns)
        gain = ((goal @ moved.T) ** 2).sum(axis=0) / variance
        gain[chosen] = -1.0
        best = int(np.argmax(gain))
        covariance = covariance - np.outer(moved[best], moved[best]) / variance[best]
        chosen.append(best)
        errors.append(_error(goal, covariance))
    return chosen, errors


def _error(goal: FloatArray, covariance: FloatArray) -> float:
    variance = float(np.einsum("ij,jk,ik->i", goal, covariance, goal).mean())
    return math.expm1(math.sqrt(max(variance, 0.0)))


def _known(problem: PlanningProblem, runs: Sequence[TrainingRun]) -> tuple[FloatArray, FloatArray]:
    """Derivatives of the runs' log steps (r, j), and what is known of the parameters (j, j)."""

    def prior_of(run: TrainingRun) -> Calibration:
        return calibration_of(run.gpu, run.workload.framework, problem.fitted)

    wanted = [name for name in PARAMETERS if name not in MEMORY_PARAMETERS]
    unknowns = unknowns_of(runs, wanted, kind_itself)
    known = _with_own(shipped_parameters(), problem.fitted)
    beliefs = beliefs_of(unknowns, runs, known, prior_of=prior_of, kind_name=kind_itself)
    listed = list(beliefs.values())
    prior = Prior.of(listed)
    _, columns = StepTimes(runs, listed, problem.fitted).linearised(prior.middle)
    return columns, np.diag(prior.spread**2)


def _with_own(known: FittedParameters, own: FittedParameters | None) -> FittedParameters:
    """Parameters fitted on others' runs, and upon them on own ones."""
    if own is None:
        return known
    gpus, frameworks = dict(known.gpus), dict(known.frameworks)
    for name, entry in own.gpus.items():
        kind = longest_prefix(known.gpus, name)
        gpus[name] = {**({} if kind is None else known.gpus[kind]), **entry}
    for name, entry in own.frameworks.items():
        frameworks[name] = {**known.frameworks.get(name, {}), **entry}
    return FittedParameters(gpus, frameworks, "")


def _runs(problem: PlanningProblem) -> list[TrainingRun]:
    """Configurations that fit the memory on all nodes of the most frequent sort, half of them, or one or two."""
    nodes = _equal_nodes(problem)
    sizes = {1, 2, len(nodes) // 2, len(nodes)}
    gpus = len(nodes[0].free_gpus)
    worlds = {gpus * size for size in sizes}

    def wanted(grid: Grid) -> bool:
        return grid.cell * grid.pipeline * grid.data in worlds

    batch = enumerate_candidates(
        problem.architecture, problem.workload, gpus_per_node=gpus, nodes=len(nodes), wanted=wanted, parts=False
    )
    layers = problem.architecture.layers
    even = layers % (batch.pipeline * batch.virtual_pipeline) == 0
    rows = np.flatnonzero(even & (batch.rank_order == ORDER_CODES.index(RankOrder.DATA_BEFORE_PIPELINE)))
    found: list[TrainingRun] = []
    policies = problem.workload.recompute
    drawn = [(row, policy) for row in rows.tolist() for policy in policies]
    for place in np.random.default_rng(SEED).permutation(len(drawn)).tolist():
        row, policy = drawn[place]
        run = _run(problem, nodes, batch, row, policy)
        room = run.gpu.memory_bytes * (1.0 - problem.workload.memory_headroom)
        if predict_peak_memory(run, problem.fitted) <= room:
            found.append(run)
        if len(found) == MOST_PRICED:
            break
    if not found:
        raise InvalidInput(
            "workload", len(rows), "has no configuration that fits the memory", "try more GPUs or a smaller model"
        )
    return found


def _equal_nodes(problem: PlanningProblem) -> list[Node]:
    """The usable nodes of the most frequent sort."""
    nodes = [
        node
        for node in problem.snapshot.cluster.nodes
        if node.usable and node.name not in problem.workload.avoid_nodes and node.free_gpus
    ]
    if not nodes:
        raise InvalidInput("cluster", problem.snapshot.cluster.name, "has no usable node", "see cluster show")
    sorts = Counter((node.gpu_kind, len(node.free_gpus)) for node in nodes)
    sort = max(sorts, key=lambda each: (sorts[each] * each[1], each))
    return [node for node in nodes if (node.gpu_kind, len(node.free_gpus)) == sort]


def _run(
    problem: PlanningProblem, nodes: Sequence[Node], batch: CandidateBatch, row: int, policy: Recompute
) -> TrainingRun:
    pipeline, virtual = int(batch.pipeline[row]), int(batch.virtual_pipeline[row])
    each = problem.architecture.layers // (pipeline * virtual)
    node, domains = nodes[0], problem.snapshot.cluster.domain_gpus()
    degrees = Degrees(
        tensor=int(batch.tensor[row]),
        pipeline=pipeline,
        data=int(batch.data[row]),
        context=int(batch.context[row]),
        expert=int(batch.expert[row]),
        virtual_pipeline=virtual,
        expert_tensor=int(batch.expert_tensor[row]),
    )
    fabric = node.nics.fabric
    return TrainingRun(
        name=str(degrees),
        architecture=problem.architecture,
        workload=problem.workload,
        configuration=Configuration(
            degrees=degrees,
            micro_batch=int(batch.micro_batch[row]),
            recompute=policy,
            sharding=SHARDING_CODES[int(batch.sharding[row])],
            rank_order=RankOrder.DATA_BEFORE_PIPELINE,
            stage_layers=((each,) * pipeline,) * virtual,
        ),
        gpu=problem.snapshot.cluster.gpu_kinds[node.gpu_kind],
        gpus_per_node=len(node.free_gpus),
        gpus_per_domain=max(len(node.free_gpus), domains[node.nvlink_domain]),
        network_bytes_per_s=node.nics.count * node.nics.bytes_per_s / node.gpu_count,
        fabric="infiniband" if fabric == "unknown" else fabric,
    )
