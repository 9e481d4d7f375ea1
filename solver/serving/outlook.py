"""Outlook of a serving problem before its search: which replicas fit and meet the limits, and about how many GPUs.

Replicas are priced with the best links of their kind and nothing is placed, so the answer comes in seconds and
promises no more than that a plan may look like it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.serving.goal import ServingGoal
from cluster_models.serving.refusal import NoServingPlan
from cluster_models.serving.workload import ServingConfiguration
from solver.problem import SearchOptions
from solver.serving.plan import check_problem, provenance_of
from solver.serving.planning.islands import site_of
from solver.serving.planning.offers import Priced, capacities, demand, priced
from solver.serving.planning.pricing import take
from solver.serving.planning.refusal import obstacle, raised_limits, without_gpus
from solver.serving.planning.zones import Zone, zones_of
from solver.serving.problem import ServingProblem

LONGEST_PRICING_S: Final = 2.0
"""Seconds after which no further model is priced beside a form; a search prices them all."""


@dataclass(frozen=True, slots=True)
class ModelOutlook:
    """One model of the problem: its smallest replica, and the kind of group that takes the load on fewest GPUs.

    ``shapes`` are the workers that were enumerated, ``too_large`` of them do not hold a request.  ``least_gpus``
    hold the model and one request.  A group takes ``concurrency`` requests in flight within the limits and then
    answers ``requests_per_s`` with ``first_token_s`` and ``token_s``, in the mean.  ``needed_gpus``: so many does
    the whole load take in such groups.  Where the objective asks for as much load as there can be it is 0, and the
    group is the one that answers most on each GPU.
    """

    name: str
    shapes: int
    too_large: int
    least_gpus: int
    gpu_kind: str
    configuration: ServingConfiguration
    group_gpus: int
    concurrency: float
    requests_per_s: float
    output_tokens_per_s: float
    first_token_s: float
    token_s: float
    needed_gpus: int


@dataclass(frozen=True, slots=True)
class ServingOutlook:
    """Facts about a problem before a search; ``models`` are the first ones of it, those that there was time for."""

    gpus: int
    models: tuple[ModelOutlook, ...]
    is_complete: bool


def serving_outlook(
    problem: ServingProblem, *, pricing_s: float = LONGEST_PRICING_S
) -> ServingOutlook | NoServingPlan:
    """The outlook of a problem, or what stands against every plan; raises ``InvalidWorkload`` as a search does."""
    ends = time.monotonic() + pricing_s
    check_problem(problem)
    provenance = provenance_of(problem, SearchOptions())
    site = site_of(problem.snapshot, problem.goal)
    if not site.islands:
        return without_gpus(problem, provenance)
    zones = zones_of(site, optimistic=True)
    found: list[ModelOutlook] = []
    for number, served in enumerate(problem.models):
        if found and time.monotonic() >= ends:
            break
        prices = priced(number, served, site, zones, problem.goal)
        if (against := obstacle(prices, zones)) is not None:
            reason, nearest = against
            remedies = tuple(raised_limits(prices)) if nearest else ()
            return NoServingPlan(problem.goal, problem.models, number, reason, nearest, remedies, provenance)
        found.append(_of_model(prices, zones, problem.goal))
    gpus = sum(len(island.gpus) for island in site.islands)
    return ServingOutlook(gpus, tuple(found), len(found) == len(problem.models))


def _of_model(prices: Priced, zones: tuple[Zone, ...], goal: ServingGoal) -> ModelOutlook:
    """Facts about groups at the highest load at which each meets the limits; there is one that does."""
    able, wanted = np.flatnonzero(prices.top >= 0), demand(prices.served, goal)
    top = take(prices.points, prices.top[able]) if wanted.is_exact else capacities(prices, able)
    taken = top.requests_per_s if prices.served.workload.concurrency is None else top.concurrency
    gpus = np.array([prices.groups[row].gpus for row in able])
    per_gpu = np.where(top.meets, taken if wanted.load else top.requests_per_s, np.nan) / gpus
    needed = np.ceil(wanted.load / (per_gpu * gpus) - 1e-9) * gpus
    best = int(np.nanargmin(needed - per_gpu / np.nanmax(per_gpu) / 2))  # of as few GPUs the fullest
    group = prices.groups[able[best]]
    rate = float(top.requests_per_s[best])
    return ModelOutlook(
        name=prices.served.architecture.name,
        shapes=prices.shapes,
        too_large=prices.too_large,
        least_gpus=min(each.gpus for each in prices.groups),
        gpu_kind=zones[group.zone].gpu.name,
        configuration=group.configuration,
        group_gpus=group.gpus,
        concurrency=float(top.concurrency[best]),
        requests_per_s=rate,
        output_tokens_per_s=rate * prices.served.workload.output_tokens,
        first_token_s=float(top.first_token_s[best]),
        token_s=float(top.token_s[best]),
        needed_gpus=int(needed[best]),
    )
