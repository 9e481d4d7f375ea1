"""Time and memory of a configuration given in full: no search over degrees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidConfiguration
from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.links.model import effective_links
from cluster_models.remarks import remark
from cluster_models.training.framework_choices import ContextExchange
from cluster_models.training.plan import Certificate, Configuration, Plan
from cluster_models.training.roles import NO_ROLES
from cluster_models.training.run_settings import switches
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import Offload, Recompute, RecomputeModule, Sharding
from solver.answer.assemble import assemble_plan
from solver.answer.robustness import Contender, drift_of, robustness
from solver.answer.survival import survives
from solver.candidates import IntArray, batch_of
from solver.check.configuration import configuration_violations, layer_violations
from solver.compiled import step_seconds
from solver.degrees.enumeration import Grid
from solver.degrees.kind_mixes import stage_kinds
from solver.degrees.rule_filter import check_units
from solver.degrees.stage_costs import StageKinds, kind_rows, objective_weight
from solver.pipeline.schedule import MOST_EVENTS
from solver.placement.bounds import placement_bound_s
from solver.placement.cluster_fabrics import fabrics, mixed_fabrics, regrouped
from solver.placement.fabric import Fabric
from solver.placement.geometry import geometry
from solver.placement.local_search import bad_nodes_together, search_placement
from solver.problem import PlanningProblem, SearchOptions
from solver.refine import Candidate, prepare

MOVES: Final = 4000
"""Local search moves where no hosts are given."""


def predict(
    problem: PlanningProblem,
    configuration: Configuration,
    *,
    hosts: Sequence[str] | None = None,
    gpus_per_node: int | None = None,
    options: SearchOptions | None = None,
) -> Plan:
    """The plan that ``configuration`` makes on ``hosts`` in rank order, or on hosts chosen by local search.

    Hosts may have GPUs of several kinds, as long as all replicas of a stage run on one; where they are chosen, they
    are of one kind if its nodes can carry the configuration. It does not ask what the workload pins or allows, and
    a configuration that misses the memory limit is predicted with a warning.  Raises ``InvalidConfiguration`` where
    it breaks a rule or the hosts cannot carry it, and ``InvalidWorkload`` where nodes that are placed together
    stand in several places of a label that counts.
    """
    options = options or SearchOptions()
    _check_rules(problem, configuration)
    fabric = _fabric(problem, configuration, hosts, gpus_per_node)
    check_units(problem, [fabric])
    if hosts is None:
        candidate, assignment = _placed(problem, configuration, fabric, options)
    else:
        assignment = _assignment(fabric, hosts)
        kinds = _stage_kinds(fabric, configuration, assignment)
        candidate = prepare(problem, fabric, batch_of(configuration), configuration.stage_layers, kinds)
    plan = assemble_plan(
        problem, options, candidate, assignment, certificate=_certificate(problem, candidate, assignment)
    )
    drift = drift_of(problem, options.seed, candidate.batch)
    steps = Contender(drift.step_s(candidate, assignment), weight=1.0)
    policy = RecoveryPolicy(memory_checkpoint=problem.workload.memory_checkpoint)
    return replace(
        plan,
        robustness=robustness(steps, [], drift.spread_of(candidate, assignment)),
        survives=survives(plan, policy, problem.snapshot.cluster),
    )


def unrestricted(problem: PlanningProblem) -> PlanningProblem:
    """The problem without what its workload pins, forbids or leaves out of a search."""
    free = replace(
        problem.workload,
        pinned={},
        forbidden={},
        max_gpus=None,
        max_power_watts=None,
        recompute=tuple(Recompute),
        recompute_modules=tuple(RecomputeModule),
        pinned_modules=None,
        sharding=tuple(Sharding),
        offload=tuple(Offload) if problem.workload.roles == NO_ROLES else problem.workload.offload,
        context_exchange=tuple(ContextExchange),
        schedule=tuple(PipelineSchedule),
        free_settings=tuple(switches(problem.workload.framework)),
    )
    return replace(problem, workload=free)


def _check_rules(problem: PlanningProblem, configuration: Configuration) -> None:
    free = unrestricted(problem)
    for violation in (*configuration_violations(configuration, free), *layer_violations(configuration, free)):
        raise InvalidConfiguration("configuration", str(configuration.degrees), violation)
    degrees = configuration.degrees
    micro_batches = problem.workload.global_batch // (configuration.micro_batch * degrees.data)
    events = 2 * degrees.pipeline * degrees.virtual_pipeline * micro_batches
    if events > MOST_EVENTS:
        raise InvalidConfiguration(
            "configuration",
            str(degrees),
            f"{micro_batches} micro-batches make a schedule of {events} forwards and backwards, "
            f"more than the {MOST_EVENTS} that are simulated",
            "use larger micro-batches, more data parallel ranks or a smaller global batch",
        )


def _fabric(
    problem: PlanningProblem,
    configuration: Configuration,
    hosts: Sequence[str] | None,
    gpus_per_node: int | None,
) -> Fabric:
    """The first fabric that can carry the configuration, its nodes cut to the GPUs used on each.

    Where hosts are given and NVLink joins them, they make the widest units that they and the degrees fill.
    """
    gpus = configuration.degrees.gpus
    _check_hosts(hosts, gpus_per_node)
    if hosts is not None and gpus_per_node is None:
        if gpus % len(hosts):
            raise InvalidConfiguration(
                "hosts", list(hosts), f"{gpus} ranks do not divide by {len(hosts)} hosts", "list other hosts"
            )
        gpus_per_node = gpus // len(hosts)
    problems = []
    links = effective_links(problem.snapshot, bandwidth=problem.workload.link_bandwidth)
    known = fabrics(problem.snapshot, problem.workload, links, fitted=problem.fitted)
    mixed = mixed_fabrics(problem.snapshot, problem.workload, links, fitted=problem.fitted)
    if hosts is None:
        known += mixed
    else:
        known = tuple(fabric for fabric in mixed if _has_kinds_of(fabric, hosts)) or known
        known = tuple(found for fabric in known for found in _of_hosts(fabric, hosts, problem.snapshot.cluster))
    for fabric in known:
        size = min(gpus, gpus_per_node or fabric.gpus_per_node)
        reason = _obstacle(configuration, fabric, size, hosts)
        if reason is None:
            cut = fabric.with_gpus(size)
            if hosts is not None or _ways(problem, configuration, cut):
                return cut
            continue
        problems.append(reason)
    raise InvalidConfiguration(
        "configuration" if hosts is None else "hosts",
        str(configuration.degrees) if hosts is None else list(hosts),
        problems[0] if problems else "no usable node is left",
    )


def _check_hosts(hosts: Sequence[str] | None, gpus_per_node: int | None) -> None:
    if gpus_per_node is not None and gpus_per_node < 1:
        raise InvalidConfiguration("gpus_per_node", gpus_per_node, "must be at least 1")
    if hosts is None:
        return
    if not hosts:
        raise InvalidConfiguration("hosts", [], "names no host", "list the hosts in rank order or leave them out")
    twice = sorted({host for host in hosts if list(hosts).count(host) > 1})
    if twice:
        raise InvalidConfiguration("hosts", twice, "listed twice", "list each host once")


def _of_hosts(fabric: Fabric, hosts: Sequence[str], cluster: Cluster) -> Iterator[Fabric]:
    """``fabric`` if its units are nodes, and before it fabrics of the units that ``hosts`` make, wide first."""
    if fabric.nodes_per_unit > 1:
        return
    if set(hosts) <= set(fabric.names):
        positions = [fabric.names.index(host) for host in hosts]
        domains = [cluster.nodes[fabric.index[position]].nvlink_domain for position in positions]
        for width in (gpus // fabric.gpus_per_node for gpus, _ in fabric.wider):
            chunks = [slice(first, first + width) for first in range(0, len(hosts), width)]
            if len(hosts) % width == 0 and all(len(set(domains[chunk])) == 1 for chunk in chunks):
                yield regrouped(fabric, [positions[chunk] for chunk in chunks])
    yield fabric


def _placed(
    problem: PlanningProblem, configuration: Configuration, fabric: Fabric, options: SearchOptions
) -> tuple[Candidate, IntArray]:
    """The configuration placed by local search; of the ways to lay stages onto kinds one that fits, the fastest."""
    found = []
    for kinds in _ways(problem, configuration, fabric):
        candidate = prepare(problem, fabric, batch_of(configuration), configuration.stage_layers, kinds)
        moves, start = MOVES * options.effort, bad_nodes_together(candidate.placement)
        assignment = search_placement(candidate.placement, moves=moves, seed=options.seed, start=start).assignment
        misfit = bool((candidate.memory.total_bytes > candidate.memory.limit_bytes).any())
        step_s = float(step_seconds(assignment, candidate.placement.arrays)[0])
        found.append((misfit, step_s, candidate, assignment))
    _, _, candidate, assignment = min(found, key=lambda each: each[:2])
    return candidate, assignment


def _ways(problem: PlanningProblem, configuration: Configuration, fabric: Fabric) -> list[StageKinds]:
    """The stage kinds to choose from: the mixes that plans choose from, none on a fabric of one kind."""
    if not fabric.is_mixed:
        return [()]
    degrees = configuration.degrees
    grid = Grid(degrees.tensor, degrees.context, degrees.pipeline, degrees.data)
    return stage_kinds(grid, configuration.rank_order, fabric, problem.workload)


def _assignment(fabric: Fabric, hosts: Sequence[str]) -> IntArray:
    """(K,) the unit of each slot when ``hosts`` are taken in rank order."""
    return np.array([fabric.names.index(host) for host in hosts[:: fabric.nodes_per_unit]], dtype=np.int64)


def _has_kinds_of(fabric: Fabric, hosts: Sequence[str]) -> bool:
    """Whether the units of ``fabric`` are nodes, ``hosts`` among them and of all its GPU kinds."""
    if fabric.nodes_per_unit > 1 or not set(hosts) <= set(fabric.names):
        return False
    return len(np.unique(fabric.kind[_assignment(fabric, hosts)])) == len(fabric.kinds)


def _stage_kinds(fabric: Fabric, configuration: Configuration, assignment: IntArray) -> StageKinds:
    """The GPU kind of each pipeline rank on a mixed fabric.

    Raises ``InvalidConfiguration`` where a stage is on several.
    """
    if not fabric.is_mixed:
        return ()
    shape = geometry(configuration.degrees, configuration.rank_order, fabric.gpus_per_unit)
    found = []
    for stage in range(configuration.degrees.pipeline):
        kinds = np.unique(fabric.kind[assignment[shape.cell_slots[:, stage]]])
        if len(kinds) > 1:
            raise InvalidConfiguration(
                "hosts",
                list(fabric.hosts(assignment)),
                f"stage {stage} would run on {' and '.join(fabric.kinds[kind].name for kind in kinds)}",
                "order the hosts so that all replicas of a stage have GPUs of one kind",
            )
        found.append(int(kinds[0]))
    return tuple(found)


def _obstacle(configuration: Configuration, fabric: Fabric, size: int, hosts: Sequence[str] | None) -> str | None:
    """Why ``size`` GPUs on each of the fabric's nodes cannot carry the configuration, or ``None``."""
    degrees = configuration.degrees
    cell, slots = degrees.tensor * degrees.context, -(-degrees.gpus // size)
    kind = f"{' or '.join(gpu.name for gpu in fabric.kinds)} nodes with {fabric.gpus_per_node} GPUs"
    unit, joined = size * fabric.nodes_per_unit, fabric.nodes_per_unit > 1
    place = f"{fabric.nodes_per_unit} nodes of an NVLink domain with {size} GPUs each" if joined else ""
    uneven = [
        f"{name} = {width}"
        for name, width in (("tensor x context", cell), ("expert x expert tensor", degrees.expert_block))
        if unit % width and width % unit
    ]
    nodes = fabric.hosts(np.arange(fabric.nodes))
    missing = [host for host in hosts or () if host not in nodes]
    reasons = {
        f"needs {size} GPUs on each host, more than {kind} have": size > fabric.gpus_per_node,
        f"needs {slots} {kind}, but only {len(nodes)} are usable": slots > len(nodes),
        f"a tensor group of {degrees.tensor} does not fit into {place or f'a node with {size} GPUs'}": (
            degrees.tensor > unit
        ),
        f"expert tensor groups of {degrees.expert_tensor} do not fill {place or f'a node with {size} GPUs'}": (
            unit % degrees.expert_tensor > 0
        ),
        f"{' and '.join(uneven)} neither divides nor fills {place or f'nodes of {size} GPUs'}": bool(uneven),
        f"{', '.join(missing)} is not among the usable {kind}": bool(missing),
        f"{degrees.gpus} ranks at {size} per node need {slots} hosts": len(hosts or range(slots)) != slots,
        f"{degrees.gpus} ranks do not fill {place}": joined and degrees.gpus % unit > 0,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _certificate(problem: PlanningProblem, candidate: Candidate, assignment: IntArray) -> Certificate:
    """Certificate without a search: a bound over all placements of this one configuration."""
    batch, kinds = candidate.batch, kind_rows(candidate.batch, candidate.stage_kinds)
    weight = float(objective_weight(problem.workload.objective, candidate.fabric.kinds, batch, kinds)[0])
    step_s = step_seconds(assignment, candidate.placement.arrays)[0]
    bound_s = min(placement_bound_s(candidate.placement), step_s)
    basis = remark("configuration_given", gap=(step_s - bound_s) / step_s)
    return Certificate.unsearched(step_s * weight, bound_s * weight, basis)
