"""The shapes that jobs alike may take: priced once for all of them, and searched once for each number of GPUs.

Jobs that train the same model in the same way share one search over all their nodes together; what it finds is then
placed for each of them on nodes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from cluster_models.errors import InvalidInput
from cluster_models.jobs.recovery import RecoveryAction
from cluster_models.links.model import LinkModel
from cluster_models.remarks import remark
from cluster_models.training.offload import place_of_states
from cluster_models.training.plan import Configuration, NoPlan
from cluster_models.training.recompute import default_modules
from cluster_models.training.workload import Offload
from solver.answer.assemble import configuration_of
from solver.candidates import FloatArray, IntArray
from solver.degrees.rule_filter import kept_candidates
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem, SearchOptions
from solver.replanning import options as actions
from solver.replanning.columns import JobColumns, View
from solver.replanning.optimistic import SizeBounds, bounds_of, loose_prices
from solver.replanning.reshaping import asked_on, at_most, plan_found
from solver.replanning.site import without_replicas
from solver.search import SearchSpace, search_space, search_within

FINE: Final = 0.25
"""Share of the gap asked for that a search of shapes may leave open."""


@dataclass(eq=False)
class ShapeBook:
    """All shapes on some nodes.  ``found``: by GPUs at most, the fastest one found, ``None`` where none fits.

    Whatever plans the owner of a job takes otherwise (``choice``): an option is worth what it makes, and a search
    with more time finds none that is slower.
    """

    asked: PlanningProblem
    links: LinkModel
    space: SearchSpace
    gpus: IntArray
    bounds: SizeBounds
    found: dict[int, Configuration | None] = field(default_factory=dict)
    _proven: dict[int, float] = field(default_factory=dict)

    @cached_property
    def is_settled(self) -> bool:
        """Whether what is found for a number of GPUs can be placed on any nodes that have as many."""
        rules = self.asked.workload.placement
        return not (rules.spread or rules.keep_together) and all(map(alike_inside, self.space.fabrics))

    def upper(self) -> SizeBounds:
        """Throughput that no shape with at most so many GPUs beats, with what the searches proved."""
        rates: FloatArray = self.bounds.tokens_per_s.copy()
        for most, rate in self._proven.items():
            small = self.bounds.gpus <= most
            rates[small] = np.minimum(rates[small], rate)
        return replace(self.bounds, tokens_per_s=rates)

    def search(self, most: int, least: int, options: SearchOptions) -> Configuration | None:
        """The best shape of at most ``most`` GPUs; searched once."""
        if most not in self.found:
            self.found[most] = self._searched(most, least, options)
        return self.found[most]

    def _searched(self, most: int, least: int, options: SearchOptions) -> Configuration | None:
        mask = self.space.kept.mask & (self.gpus <= most) & (self.gpus >= least)
        if not ((self.space.priced.excess_bytes <= 0) & mask).any():
            return None
        space = replace(self.space, kept=replace(self.space.kept, mask=mask))
        found = search_within(self.asked, space, options)
        if isinstance(found, NoPlan):
            return None
        state = found.state
        if all(alike_inside(fabric) for fabric in self.space.fabrics):
            # the objective is the step, so its bound is one of the step
            self._proven[most] = self.asked.workload.tokens_per_step / state.bound
        return configuration_of(state.prepared(self.asked, found.chosen.index))


def books_of(
    every: Sequence[JobColumns], *, is_time_up: Callable[[], bool] = lambda: False
) -> dict[str, ShapeBook | None]:
    """Shapes by id of each job that may change its own, ``None`` where none fits; jobs alike have one book.

    Jobs are left out once the time is up.
    """
    books: dict[str, ShapeBook | None] = {}
    for group in _alike(every):
        if is_time_up():
            break
        site = group[0].views[0].site
        nodes = {node for columns in group for node in (*columns.pool, *columns.job.nodes)}
        most = max(columns.job.gpus_at_most for columns in group)
        least = min(columns.job.recovery.least_gpus for columns in group)
        asked = at_most(asked_on(site, nodes - set(site.job.nodes)), most)
        fabrics, priced = loose_prices(asked, site.links)
        batch = priced.batch
        gpus = batch.tensor * batch.context * batch.data * batch.pipeline
        book = None
        if (priced.excess_bytes <= 0).any():
            space = SearchSpace(fabrics, priced, kept_candidates(asked, fabrics, priced))
            book = ShapeBook(asked, site.links, space, gpus, bounds_of(asked, priced, least_gpus=least))
        elif pinned := asked.workload.pinned:
            kept = tuple(f"{name} {size}" for name, size in pinned.items())
            refusal = actions.refused(RecoveryAction.RESHAPE, remark("no_shape_as_pinned", pinned=kept))
            for columns in group:
                columns.add([refusal])
        books |= {columns.job.id: book for columns in group}
    return books


def alike_inside(fabric: Fabric) -> bool:
    """Whether transfers inside all units take the same, so that it does not matter which of them are there."""
    links = fabric.links.kinds.kind
    own = links[fabric.index, fabric.index]
    return fabric.nodes_per_unit == 1 and len(np.unique(own)) == 1 and len(np.unique(fabric.in_use)) == 1


def in_shape(
    view: View, nodes: Sequence[str], configuration: Configuration, options: SearchOptions
) -> actions.Answer:
    """The job in the shape of ``configuration`` on what is left of it and ``nodes``."""
    action, site, degrees = RecoveryAction.RESHAPE, view.site, configuration.degrees
    asked = at_most(asked_on(site, nodes), degrees.gpus)
    pinned = {name: getattr(degrees, name) for name in degrees.__slots__}
    workload = replace(
        asked.workload,
        pinned={
            **pinned,
            "micro_batch": configuration.micro_batch,
            "recompute_layers": configuration.recompute_layers,
            "sharding_ranks": configuration.sharding_ranks,
            "optimizer_offload": configuration.optimizer_offload,
            "offloaded_layers": configuration.offloaded_layers,
            **({"head_ranks": configuration.head_ranks} if configuration.head_ranks else {}),
        },
        recompute=(configuration.recompute,),
        pinned_modules=tuple(configuration.recompute_modules or default_modules(asked.workload.framework)),
        sharding=(configuration.sharding,),
        offload=(
            place_of_states(configuration),
            *[Offload.ACTIVATIONS] * (configuration.offloaded_layers > 0),
        ),
        context_exchange=(configuration.context_exchange,),
        framework=configuration.settings.under(asked.workload.framework),
        free_settings=(),
        schedule=(configuration.schedule,),
    )
    asked = replace(asked, workload=workload)
    try:
        space = search_space(asked, site.links)
    except InvalidInput as contradiction:
        return actions.refused(action, remark("contradiction", problem=str(contradiction)))
    if not ((space.priced.excess_bytes <= 0) & space.kept.mask).any():
        return actions.refused(action, remark("cannot_be_placed", degrees=str(degrees), nodes=len(nodes)))
    found = search_within(asked, space, options)
    if isinstance(found, NoPlan):
        return actions.refused(action, *found.reasons)
    plan = plan_found(site, asked, options, found)
    chosen = replace(plan.configuration, settings=configuration.settings)
    return actions.reshaped(site, replace(plan, configuration=chosen), view.migrate)


def _alike(every: Sequence[JobColumns]) -> list[list[JobColumns]]:
    """Jobs that may change their shape, those together that train the same model in the same way.

    Paused ones stand alone: what they may use is not what others see.
    """
    groups: list[list[JobColumns]] = []
    for columns in every:
        if not columns.job.recovery.may_reshape:
            continue
        for group in groups:
            if not columns.job.is_paused and not group[0].job.is_paused and _same(columns, group[0]):
                group.append(columns)
                break
        else:
            groups.append([columns])
    return groups


def _same(a: JobColumns, b: JobColumns) -> bool:
    first, second = (columns.views[0].site.asked for columns in (a, b))
    return (
        first.architecture == second.architecture
        and without_replicas(first.workload) == without_replicas(second.workload)
        and first.fitted == second.fitted
        and a.job.wanted_batch == b.job.wanted_batch
    )
