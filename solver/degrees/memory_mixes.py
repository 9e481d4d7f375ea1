"""Mixes of memory options that a workload allows (docs/memory_options.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.training.framework_choices import CudaGraphs
from cluster_models.training.frameworks import Framework
from cluster_models.training.offload import must_offload_layers
from cluster_models.training.recompute import INSIDE_MOE, default_modules, recomputable_modules
from cluster_models.training.workload import Recompute, RecomputeModule, TrainingWorkload
from solver.candidates import RECOMPUTE_CODES, CandidateBatch, IntArray, module_code, modules_of
from solver.costs.recomputation import RecomputePolicies
from solver.problem import PlanningProblem

PLAIN, SELECTIVE, FULL = map(RECOMPUTE_CODES.index, (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL))


class Mix(NamedTuple):
    """Recomputation of every layer, in the codes of ``CandidateBatch``."""

    recompute: int
    modules: int = 0

    @property
    def extent(self) -> int:
        """How many modules run again, those inside others included."""
        modules = modules_of(self.modules)
        return len(modules | INSIDE_MOE if RecomputeModule.MOE in modules else modules)


NOTHING = Mix(PLAIN)


def mixes_of(problem: PlanningProblem) -> tuple[Mix, ...]:
    """Every mix for all layers that the workload allows and the framework has for the model."""
    return _mixes(problem.architecture, problem.workload)


@lru_cache(maxsize=256)
def _mixes(architecture: Architecture, workload: TrainingWorkload) -> tuple[Mix, ...]:
    name = "recompute_layers"
    if workload.pinned.get(name) or 0 in workload.forbidden.get(name, ()):
        return ()
    found = [NOTHING] * (Recompute.NONE in workload.recompute)
    if must_offload_layers(workload) or not workload.optimizer.runs_backward:
        return tuple(found)
    if Recompute.SELECTIVE in workload.recompute:
        found += [Mix(SELECTIVE, code) for code in _module_codes(architecture, workload)]
    return (*found, *[Mix(FULL)] * _may_repeat_layers(workload))


def _may_repeat_layers(workload: TrainingWorkload) -> bool:
    """Whether whole layers may run again, which graphs of parts of them exclude (``TransformerConfig``)."""
    allowed = Recompute.FULL in workload.recompute and workload.optimizer.runs_backward
    return allowed and workload.framework.cuda_graphs is not CudaGraphs.PARTIAL


def limits_of(problem: PlanningProblem, most: int) -> list[int]:
    """Numbers of layers, increasing, to which full recomputation of chunks of up to ``most`` may be limited."""
    workload, name = problem.workload, "recompute_layers"
    allowed = _may_repeat_layers(workload) and not must_offload_layers(workload)
    if not allowed or not workload.framework.recompute_blocks:
        return []
    pinned = workload.pinned.get(name)
    sizes: Sequence[int] = range(1, most) if pinned is None else [pinned] * (pinned > 0)
    return [size for size in sizes if size not in workload.forbidden.get(name, ())]


def modules_used(problem: PlanningProblem) -> frozenset[RecomputeModule]:
    """Modules that some mix runs again."""
    own = default_modules(problem.workload.framework)
    return own.union(*(modules_of(mix.modules) for mix in mixes_of(problem)))


def levels_of(problem: PlanningProblem) -> list[tuple[Mix, int]]:
    """For each policy the mix that frees most, and the layers it is limited to; the least freeing policy first."""
    most = {mix.recompute: (mix, 0) for mix in sorted(mixes_of(problem), key=lambda mix: mix.extent)}
    if FULL not in most and (limits := limits_of(problem, problem.architecture.layers)):
        most[FULL] = Mix(FULL), limits[-1]
    return [most[policy] for policy in sorted(most)]


def policies_of(mixes: Sequence[Mix], framework: Framework) -> RecomputePolicies:
    """(m, 1) policies of mixes for any candidates."""
    return _coded(tuple(mixes), framework)


@lru_cache(maxsize=256)
def _coded(mixes: tuple[Mix, ...], framework: Framework) -> RecomputePolicies:
    codes = np.array([(*mix, 0) for mix in mixes], dtype=np.int64).reshape(-1, 3)
    recompute, modules, layers = codes.T[:, :, None]
    return RecomputePolicies.coded(recompute, modules, layers, framework)


def with_mix(batch: CandidateBatch, mix: Mix, limit: IntArray | int = 0) -> CandidateBatch:
    """``batch`` with a mix, full recomputation limited to ``limit`` (n,) layers of each chunk."""
    every = np.ones(len(batch), dtype=np.int64)
    return replace(
        batch, recompute=mix.recompute * every, modules=mix.modules * every, recompute_layers=limit * every
    )


def _module_codes(architecture: Architecture, workload: TrainingWorkload) -> Iterator[int]:
    """Codes of the sets of modules that selective recomputation may run again; 0: the framework's own choice."""
    framework = workload.framework
    usual = default_modules(framework)
    named = recomputable_modules(architecture, framework, workload.precision)
    if workload.pinned_modules is not None:
        pinned = frozenset(workload.pinned_modules)
        if pinned == usual or pinned <= named:
            yield 0 if pinned == usual else module_code(pinned)
        return
    allowed = sorted(named & set(workload.recompute_modules))
    if usual <= set(workload.recompute_modules):
        yield 0
    for size in range(1, len(allowed) + 1):
        for modules in map(frozenset, combinations(allowed, size)):
            if modules != usual and not (RecomputeModule.MOE in modules and modules & INSIDE_MOE):
                yield module_code(modules)
