"""The sizes of data parallelism that a job may go on with, and its placement with one of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.remarks import Remark, remark
from cluster_models.training.plan import Configuration, Degrees
from solver.candidates import IntArray
from solver.check.configuration import configuration_violations
from solver.pipeline.schedule import MOST_EVENTS
from solver.replanning.outcome import Placed
from solver.replanning.replica_units import NOBODY, placed_by_parts, regroup
from solver.replanning.site import JobSite, planning_problem, prepared, without_replicas
from solver.replanning.units import Unit, fits_units

MOST_SIZES: Final = 2
"""Data sizes that are tried, the largest legal ones: a smaller one is seldom faster."""


@dataclass(frozen=True, slots=True)
class DataSize:
    """A legal size of data parallelism, with the batch it goes with, in sequences, and the ranks on a node."""

    configuration: Configuration
    global_batch: int
    node_gpus: int

    @property
    def data(self) -> int:
        """Replicas."""
        return self.configuration.degrees.data


def data_sizes(site: JobSite, most: int, node_gpus: int | None = None) -> Iterator[DataSize]:
    """Legal data sizes up to ``most``, the largest first: for each the choices of batch that the job allows.

    The global batch stays where it divides, with the micro-batch as it is, else the nearest smaller and larger
    one that divides; where the job allows it, the batch may shrink with the replicas.  ``node_gpus``: GPUs that are
    used of a node, as many as the job uses now where nothing is said.
    """
    width = site.gpus if node_gpus is None else node_gpus
    plan = site.job.plan
    assert plan.workload is not None
    workload, old = plan.workload, plan.configuration
    batch, per_replica = workload.global_batch, workload.global_batch // old.degrees.data
    for data in range(most, 0, -1):
        sized = old.with_data(data)
        degrees = sized.degrees
        if degrees.gpus < site.job.recovery.least_gpus:
            return
        if not fits_units(degrees, site.candidate.fabric.gpus_per_unit) and site.units.width > 1:
            continue
        choices = []
        if batch % data == 0:
            sizes = _micro_batches(batch // data, old.micro_batch)
            choices += [(replace(sized, micro_batch=size), batch) for size in sizes]
        if site.job.recovery.may_change_batch and batch != per_replica * data:
            choices.append((sized, per_replica * data))
        for configuration, global_batch in choices:
            if _is_legal(site, configuration, global_batch, width * site.units.width):
                yield DataSize(configuration, global_batch, min(width, degrees.gpus))


def _micro_batches(sequences: int, size: int) -> list[int]:
    """``size`` if it divides ``sequences``, else the nearest smaller and the nearest larger divisor."""
    divisors = [divisor for divisor in range(1, min(sequences, 2 * size + 1) + 1) if sequences % divisor == 0]
    if size in divisors:
        return [size]
    smaller = [divisor for divisor in divisors if divisor < size][-1:]
    return smaller + [divisor for divisor in divisors if divisor > size][:1]


def thin_widths(site: JobSite) -> tuple[int, ...]:
    """GPUs of a node, fewer than the job uses of one, that nodes which lost some still have: the most first.

    As many as hold whole tensor groups, and cells and expert blocks share out evenly over.
    """
    if site.units.width > 1:
        return ()
    offered = {len(site.resources.gpus(host)) for host in site.job.nodes if site.resources.offers(host, 1)}
    degrees = site.job.plan.configuration.degrees
    found = {
        next((width for width in range(live, degrees.tensor - 1, -1) if _fits(degrees, width)), 0)
        for live in offered
        if live < site.gpus
    }
    return tuple(sorted(found - {0}, reverse=True))


def thin_hosts(site: JobSite, width: int, spares: Collection[str]) -> list[str]:
    """The job's own nodes that still have ``width`` GPUs for it, and those of its site among ``spares``."""
    others = set(spares).intersection(site.others)
    known = [*dict.fromkeys(site.job.nodes), *(host for host in site.others if host in others)]
    return [host for host in known if site.resources.offers(host, width)]


def _fits(degrees: Degrees, width: int) -> bool:
    """Whether nodes of ``width`` GPUs hold the groups of ``degrees`` as the planner places them."""
    return width % degrees.expert_tensor == 0 and _is_even(degrees, width)


def _is_even(degrees: Degrees, width: int) -> bool:
    """Whether cells and expert blocks fill units of ``width`` GPUs evenly, or these them."""
    groups = (degrees.tensor * degrees.context, degrees.expert_block)
    return all(width % group == 0 or group % width == 0 for group in groups)


def _is_legal(site: JobSite, configuration: Configuration, global_batch: int, unit_gpus: int) -> bool:
    asked = site.asked
    free = replace(without_replicas(asked.workload), global_batch=global_batch, max_gpus=None)
    if any(configuration_violations(configuration, replace(asked, workload=free))):
        return False
    degrees, micro_batches = configuration.degrees, configuration.micro_batches(global_batch)
    return (
        _is_even(degrees, min(unit_gpus, degrees.gpus))
        and 2 * degrees.pipeline * degrees.virtual_pipeline * micro_batches <= MOST_EVENTS
    )


def usable_units(site: JobSite, spares: Sequence[str]) -> list[Unit]:
    """The units that serve with no other nodes than the job's own and ``spares``; the job's own come first.

    A unit made whole from spares stands for what is left of the broken one.
    """
    return [site.units.members[unit] for unit in np.flatnonzero(site.takes(spares))]


def most_replicas(site: JobSite, units: int, node_gpus: int | None = None) -> int:
    """Replicas for which ``units`` units have room, of whose nodes ``node_gpus`` GPUs are used."""
    degrees = site.job.plan.configuration.degrees
    unit_gpus = site.units.width * (site.gpus if node_gpus is None else node_gpus)
    return units * unit_gpus // (degrees.gpus // degrees.data)


def no_size(site: JobSite, most: int) -> Remark:
    """Why there is no legal data size up to ``most``."""
    plan = site.job.plan
    assert plan.workload is not None
    return remark(
        "no_legal_size",
        most=most,
        global_batch=plan.workload.global_batch,
        batch_may_change=site.job.recovery.may_change_batch,
    )


def best_size(site: JobSite, sizes: Sequence[DataSize], members: Sequence[Unit]) -> Placed | None:
    """The fastest placement with the ``MOST_SIZES`` largest data sizes that fit; ``None`` where none does."""
    found: list[Placed] = []
    for size in sizes:
        if len({int(placed.candidate.batch.data[0]) for placed in found} | {size.data}) > MOST_SIZES:
            break
        placed = placed_with(site, size, members)
        if placed is not None and placed.misfit_bytes <= 0:
            found.append(placed)
    return max(found, key=lambda placed: placed.tokens_per_s, default=None)


def placed_with(site: JobSite, size: DataSize, members: Sequence[Unit]) -> Placed | None:
    """The job with another data size on units of ``members``, moving as few ranks as it can.

    ``None`` where no assignment keeps the placement rules.
    """
    old = site.job.plan.configuration
    asked = planning_problem(site.resources, size.configuration, global_batch=size.global_batch)
    gpus = size.node_gpus
    candidate = prepared(site.resources, members, asked, size.configuration, gpus)
    ranks = site.job.plan.placement.ranks
    alive = np.zeros(old.degrees.gpus, dtype=np.bool_)
    unit_of = _unit_of_ranks(site, members)
    alive[[place.rank for place in ranks if (place.node, place.gpu) not in site.state_lost]] = True
    worth = regroup(old, size.configuration, alive, unit_of, range(len(members)), gpus * site.units.width)
    assignment = placed_by_parts(candidate.placement, worth, allowed=site.rules_broken(site.home))
    return None if assignment is None else Placed(asked, candidate, assignment)


def _unit_of_ranks(site: JobSite, members: Sequence[Unit]) -> IntArray:
    """(R,) the unit of ``members`` that each rank of the running plan sits on, ``NOBODY`` where on none."""
    unit_of_host = {host: unit for unit, hosts in enumerate(members) for host in hosts}
    found = np.full(site.job.plan.configuration.degrees.gpus, NOBODY, dtype=np.int64)
    for place in site.job.plan.placement.ranks:
        found[place.rank] = unit_of_host.get(place.node, NOBODY)
    return found
