"""Small planning problems on made-up but realistic clusters: real nodes, real samples, real snapshots.

Rates are in GB/s of one GPU-to-GPU flow while all GPUs of a node send, as ``point_to_point`` samples give them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from cluster_models.cluster.measurements import Collective, Direction, Sample
from cluster_models.cluster.topology import Node
from cluster_models.links.model import effective_links
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import Experts
from cluster_models.training.plan import NoPlan, Plan
from cluster_models.training.workload import Choice, Recompute, Sharding, TrainingWorkload
from solver.candidates import CandidateBatch
from solver.degrees.priced import price_candidates
from solver.placement.cluster_fabrics import fabrics
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem, SearchOptions
from solver.refine import Candidate, prepare
from solver.search import plan
from tests.cluster_models.clusters import host, sample, snapshot
from tests.solver.cost_cases import candidates

DENSE = Architecture(
    name="tiny-dense",
    layers=8,
    hidden=2048,
    heads=16,
    kv_heads=8,
    head_size=128,
    mlp_hidden=5632,
    vocabulary=32000,
    gated_mlp=True,
    tied_embeddings=False,
)
SPARSE = replace(DENSE, name="tiny-sparse", layers=4, mlp_hidden=0, experts=Experts(count=4, active=2, hidden=2816))
EXACT = SearchOptions(gap=0.0, time_limit_s=60.0, alternatives=2)
"""The whole proof: no candidate that could still be better is left aside."""

Rates = Mapping[tuple[str, str], float]


def names(count: int) -> tuple[str, ...]:
    """``count`` node names."""
    return tuple(f"n{index}" for index in range(count))


def nodes(
    count: int,
    *,
    gpus: int = 2,
    slowdown: Mapping[str, float] | None = None,
    gpu: str = "H100-SXM5-80GB",
) -> tuple[Node, ...]:
    """Equal nodes ``n0``, ``n1``, ... with one network card for each GPU; ``slowdown`` makes some slow."""
    plain = (host(name, gpu=gpu, gpus=gpus, cards=gpus) for name in names(count))
    return tuple(replace(node, compute_slowdown=(slowdown or {}).get(node.name, 1.0)) for node in plain)


def pair_samples(rates: Rates, *, flows: int, direction: Direction = Direction.BOTH) -> tuple[Sample, ...]:
    """Samples of ``rates`` at 1 and 256 MiB; small messages get half of them, as latency has it."""
    return tuple(
        sample(
            a,
            b,
            rate * (0.5 if mib < 16 else 1.0),
            collective=Collective.POINT_TO_POINT,
            ranks=flows,
            mib=mib,
            direction=direction,
        )
        for (a, b), rate in rates.items()
        for mib in (1.0, 256.0)
    )


def rates_of(count: int, values: Sequence[float]) -> dict[tuple[str, str], float]:
    """Rates of all pairs of ``count`` nodes, in the order of ``itertools.combinations``."""
    return dict(zip(combinations(names(count), 2), values, strict=True))


def problem(
    hosts: Sequence[Node],
    samples: Sequence[Sample] = (),
    *,
    model: Architecture = DENSE,
    **changes: Any,
) -> PlanningProblem:
    """Eight sequences of 2048 tokens, without recomputation, optimizer sharding only; ``changes`` go on top."""
    workload = TrainingWorkload(
        choice=Choice.FASTEST,
        sequence_length=2048,
        global_batch=8,
        recompute=(Recompute.NONE,),
        sharding=(Sharding.OPTIMIZER,),
    )
    return PlanningProblem(snapshot(hosts, samples), model, replace(workload, **changes))


def fabrics_of(asked: PlanningProblem) -> tuple[Fabric, ...]:
    """The fabrics of a problem."""
    return fabrics(asked.snapshot, asked.workload, effective_links(asked.snapshot))


def candidate(asked: PlanningProblem, **degrees: int) -> Candidate:
    """One candidate on the first fabric, ready to be placed."""
    return prepare(asked, fabrics_of(asked)[0], candidates(degrees))


def every_candidate(asked: PlanningProblem, first: int = 0, step: int = 1) -> dict[int, Candidate]:
    """Legal candidates on all fabrics by the row of their prices: every ``step``-th from ``first`` on."""
    usable = fabrics_of(asked)
    priced = price_candidates(asked, usable)
    rows = range(first, len(priced.fabric), step)
    return {index: prepare(asked, usable[int(priced.fabric[index])], row(priced.batch, index)) for index in rows}


def row(batch: CandidateBatch, index: int) -> CandidateBatch:
    """One row of a batch, as a batch."""
    return candidates({name: int(getattr(batch, name)[index]) for name in CandidateBatch.__slots__})


def planned(asked: PlanningProblem, options: SearchOptions = EXACT) -> Plan:
    """The plan of a problem that has one."""
    answer = plan(asked, options)
    assert isinstance(answer, Plan), answer
    return answer


def not_planned(asked: PlanningProblem, options: SearchOptions = EXACT) -> NoPlan:
    """The refusal of a problem that has no plan."""
    answer = plan(asked, options)
    assert isinstance(answer, NoPlan), answer
    return answer
