"""Expert maps of a serving plan: one for each kind of replica, made for what its phase meets.

Prefill and decode see other tokens, in steps of other sizes and on other ranks: a map for one serves the other
badly.  Which workloads of the counts a phase meets follows from their names, or is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.documents.reading import close_name
from cluster_models.errors import InvalidInput
from cluster_models.serving.goal import ServedModel
from cluster_models.serving.plan import PlannedPool, ServingPlan
from cluster_models.serving.replicas import Phase, Replica

SPLIT: Final = (Phase.PREFILL, Phase.DECODE)
"""Phases that workloads are recorded in."""


@dataclass(frozen=True, slots=True)
class PhaseLayout:
    """Ranks over which equal replicas spread their experts, each by itself, and what a step brings them.

    ``ranks`` are the expert groups of a pipeline stage, on ``nodes``.  ``tokens_per_gpu``: those of one step, of a
    decode step where a replica does both phases.
    """

    phase: Phase
    replicas: tuple[int, ...]
    worker: str
    model: str
    gpu_kind: str
    ranks: int
    nodes: int
    tokens_per_gpu: float

    @property
    def name(self) -> str:
        """Short name, for folders: phase and first replica."""
        return f"{self.phase}-{self.replicas[0]}"


def phase_layouts(plan: ServingPlan, experts: int) -> tuple[PhaseLayout, ...]:
    """The layouts of the pools that spread the experts of the model with so many in a layer.

    Raises ``InvalidInput`` where the plan has no such model or several, or spreads no experts.
    """
    counts = {
        index: served.architecture.experts.count
        for index, served in enumerate(plan.models)
        if served.architecture.experts is not None
    }
    models = [index for index, count in counts.items() if count == experts]
    if len(models) != 1:
        planned = {plan.models[index].architecture.name: count for index, count in counts.items()}
        problem = f"the counts are of {experts} experts, the models of the plan have {planned or 'none'}"
        raise InvalidInput("--plan", list(planned), problem, "give counts of one of its models")
    pools = [pool for pool in plan.pools if pool.model == models[0] and pool.replicas[0].worker.expert > 1]
    if not pools:
        problem = "spreads no experts: each replica has them on one group of GPUs"
        raise InvalidInput("--plan", plan.models[models[0]].architecture.name, problem, "plan with --pin expert=8")
    return tuple(_layout(pool, plan.models[models[0]]) for pool in pools)


def _layout(pool: PlannedPool, served: ServedModel) -> PhaseLayout:
    first = pool.replicas[0]
    ranks, hosts = first.worker.expert, list(_stage_hosts(first))
    nodes = list(dict.fromkeys(hosts))
    if ranks % len(nodes) or len({hosts.count(node) for node in nodes}) > 1:
        problem = f"has {ranks} expert groups on {len(nodes)} nodes, which they do not divide into evenly"
        raise InvalidInput(f"--plan replicas[{first.number}]", nodes, problem, "plan on whole nodes")
    return PhaseLayout(
        phase=pool.phase,
        replicas=tuple(replica.number for replica in pool.replicas),
        worker=str(first.worker),
        model=served.architecture.name,
        gpu_kind=pool.gpu_kind,
        ranks=ranks,
        nodes=len(nodes),
        tokens_per_gpu=_step_tokens(pool, served) / first.worker.stage_gpus,
    )


def _stage_hosts(replica: Replica) -> Iterator[str]:
    """The node of each GPU of the first pipeline stage."""
    hosts = [place.node for place in replica.places for _ in place.gpus]
    yield from hosts[: replica.worker.stage_gpus]


def _step_tokens(pool: PlannedPool, served: ServedModel) -> float:
    """Tokens in a step of one of its replicas: of prompts as far as the engine's limit, or one of each sequence."""
    worker, workload = pool.replicas[0].worker, served.workload
    if pool.phase is Phase.PREFILL:
        prompt = workload.new_tokens
        return min(prompt, float(pool.replicas[0].token_limit)) * worker.attention_data
    drafts = 0 if workload.speculation is None else workload.speculation.draft_tokens
    sequences = sum(replica.sequences for replica in pool.replicas) / len(pool.replicas)
    return max(1.0, sequences * (1 + drafts) / worker.pipeline)


def workloads_of(phase: Phase, known: Sequence[str], said: Mapping[Phase, Sequence[str]]) -> list[str]:
    """Names of the workloads that a phase meets: those ``said``, else those called so, else all of ``known``.

    Replicas that do both phases meet those of both.
    """
    phases = SPLIT if phase is Phase.BOTH else (phase,)
    found: dict[str, None] = {}
    for each in phases:
        for name in said.get(each, ()):
            if name not in known:
                remedy = close_name(name, list(known))
                raise InvalidInput(f"--{each}", name, "is not a workload of these counts", remedy)
        named = [name for name in known if str(each) in name.lower()]
        found |= dict.fromkeys(said.get(each, ()) or named)
    return list(found) or list(known)
