"""Every recomputation by trying all policies, sets of modules and numbers of layers, as plainly as ``naive``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cluster_models.training.plan import Configuration, Degrees, RankOrder
from solver.candidates import MODULE_BITS, RECOMPUTE_CODES, modules_of
from solver.check.configuration import configuration_violations
from solver.degrees.layout import chunk_layers
from solver.degrees.stage_costs import excess_bytes_of, kind_rows, layout_of
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem
from tests.solver.cost_cases import candidates


def fitting_mixes(
    asked: PlanningProblem, fabric: Fabric, degrees: Mapping[str, int], mixes: Sequence[Mapping[str, int]]
) -> list[Mapping[str, int]]:
    """Those of ``mixes`` under which a candidate fits; none alone where it fits without any."""
    batch = candidates(*(degrees | mix for mix in mixes))
    layers, kinds = chunk_layers(asked.architecture, layout_of(asked, batch), batch.runs), kind_rows(batch)
    excess = excess_bytes_of(asked, fabric.kinds, batch, layers, kinds, domain=fabric.gpus_per_unit)
    found = [mix for mix, needed in zip(mixes, excess, strict=True) if needed.max() <= 0]
    return found[:1] if found and not any(found[0].values()) else found


def every_mix(asked: PlanningProblem) -> list[Mapping[str, int]]:
    """Codes of all recomputations that the independent checker lets pass, none first."""
    model, most = asked.architecture, 2 ** len(MODULE_BITS)
    codes = [(0, 0, 0), *((1, modules, 0) for modules in range(most)), *((2, 0, n) for n in range(model.layers))]
    found: list[Mapping[str, int]] = []
    for policy, modules, layers in codes:
        tried = Configuration(
            Degrees(),
            micro_batch=1,
            recompute=RECOMPUTE_CODES[policy],
            sharding=asked.workload.sharding[0],
            rank_order=RankOrder.DATA_BEFORE_PIPELINE,
            stage_layers=((model.layers,),),
            recompute_modules=modules_of(modules),
            recompute_layers=layers,
        )
        free = replace(asked.workload, pinned=_of_recomputation(asked.workload.pinned), max_gpus=None)
        free = replace(free, schedule=(tried.schedule,), forbidden=_of_recomputation(asked.workload.forbidden))
        if not list(configuration_violations(tried, replace(asked, workload=free))):
            found.append({"recompute": policy, "modules": modules, "recompute_layers": layers})
    return found


def _of_recomputation(rules: Mapping[str, Any]) -> dict[str, Any]:
    return {name: rule for name, rule in rules.items() if name == "recompute_layers"}
