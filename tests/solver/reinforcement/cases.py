"""Small problems of reinforcement learning on made-up clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cluster_models.reinforcement.workload import Arrangement, ReinforcementWorkload, rollout_of, update_of
from cluster_models.serving.requests import Lengths
from cluster_models.training.frameworks import framework
from cluster_models.training.workload import Choice, Recompute, Sharding
from solver.problem import SearchOptions
from solver.reinforcement.problem import ReinforcementProblem
from tests.cluster_models.clusters import snapshot
from tests.solver.problems import DENSE, nodes, pair_samples, rates_of

PROMPTS = Lengths((64.0, 256.0), (0.5, 0.5))
RESPONSES = Lengths((100.0, 400.0, 1500.0), (0.5, 0.4, 0.1))
QUICK = SearchOptions(gap=0.0, time_limit_s=60.0, alternatives=0)


def workload(
    *,
    prompts: int = 4,
    samples: int = 4,
    updates: int = 2,
    arrangements: tuple[Arrangement, ...] = tuple(Arrangement),
    staleness: int = 0,
    responses: Lengths = RESPONSES,
    pinned: dict[str, int] | None = None,
    avoid_nodes: tuple[str, ...] = (),
    **training: Any,
) -> ReinforcementWorkload:
    """Four prompts of four samples; an update has no recomputation and shards the optimizer."""
    update = update_of(
        PROMPTS,
        responses,
        responses=prompts * samples // updates,
        **{
            "framework": framework("megatron-bridge-26.02"),
            "recompute": (Recompute.NONE,),
            "sharding": (Sharding.OPTIMIZER,),
            "choice": Choice.FASTEST,
        }
        | training,
    )
    return ReinforcementWorkload(
        prompts,
        samples,
        PROMPTS,
        responses,
        update,
        rollout_of(PROMPTS, responses, prompts=prompts, samples=samples),
        updates,
        arrangements,
        staleness,
        avoid_nodes,
        pinned or {},
    )


def trained_with(asked: ReinforcementProblem, **pinned: int) -> ReinforcementProblem:
    """The same with degrees of the trainer pinned."""
    update = replace(asked.workload.training, pinned=pinned)
    return replace(asked, workload=replace(asked.workload, training=update))


def problem(count: int = 3, *, gpus: int = 2, **changes: Any) -> ReinforcementProblem:
    """Equal nodes of two GPUs; every second link is half as fast."""
    hosts = nodes(count, gpus=gpus)
    pairs = count * (count - 1) // 2
    samples = pair_samples(rates_of(count, [40.0 / (1 + index % 2) for index in range(pairs)]), flows=gpus)
    return ReinforcementProblem(snapshot(hosts, samples), DENSE, workload(**changes))
