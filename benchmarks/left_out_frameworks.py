"""Frameworks as if nobody had measured them: what is then known of them, and of the GPUs that they ran on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from benchmarks.measured import Measured
from benchmarks.step_fit import weights_of_groups
from cluster_models.calibration.fitted import FittedParameters, FittedValue
from cluster_models.calibration.training_run import TrainingRun
from solver.costs.calibration import (
    PARAMETERS,
    Owner,
    calibration_of,
    default_values,
    kind_family,
    shipped_parameters,
)
from solver.fitting.beliefs import beliefs_of
from solver.fitting.least_squares import Problem, Solution
from solver.fitting.left_out import free_without
from solver.fitting.priced import StepTimes
from solver.fitting.report import FitOptions, estimated_prior
from solver.fitting.unknowns import MEMORY_PARAMETERS, Unknown, prior_value

STRANGE = "unmeasured-framework"


def as_unmeasured(run: TrainingRun) -> TrainingRun:
    """The run under a framework with the same facts, of which nothing was measured or estimated."""
    facts = replace(run.workload.framework, name=STRANGE, measured_as="", like="")
    return replace(run, workload=replace(run.workload, framework=facts))


class Knowledge:
    """Parameters fitted to ``measured`` runs, and those fitted without the runs of a framework."""

    def __init__(self, measured: Sequence[Measured]) -> None:
        self.measured = measured

    def others(self, framework: str) -> FittedParameters:
        """Parameters fitted for all other frameworks, and for GPUs on their runs."""
        shipped, kept = shipped_parameters(), self._gpus_without(framework)
        gpus = {
            family: {
                name: replace(value, value=kept[unknown])
                for name, value in entry.items()
                if (unknown := Unknown(Owner.GPU, family, name)) in kept
            }
            for family, entry in shipped.gpus.items()
        }
        frameworks = {name: entry for name, entry in shipped.frameworks.items() if name != framework}
        return FittedParameters(gpus, frameworks, f"without {framework}")

    def gpus_of(self, framework: str) -> FittedParameters:
        """The parameters of each GPU kind of its runs, as they are known without these."""
        kept = self._gpus_without(framework)
        alone = self._only_under(framework)
        gpus: dict[str, dict[str, FittedValue]] = {}
        for run in self._runs:
            if run.workload.framework.name == framework and run.gpu.name not in gpus:
                family = kind_family(run.gpu)
                values = _of_gpus(default_values(run.gpu)) if family in alone else _shipped(run)
                values |= {each.parameter: value for each, value in kept.items() if each.name == family}
                gpus[run.gpu.name] = {name: FittedValue(value, value, value, 0) for name, value in values.items()}
        return FittedParameters(gpus, {}, f"without {framework}")

    @cached_property
    def _runs(self) -> list[TrainingRun]:
        return [each.run for each in self.measured]

    @cached_property
    def optimum(self) -> tuple[Problem, Solution]:
        """The shipped parameters as the optimum that they are, with derivatives."""
        shipped = shipped_parameters()
        believed = [each for each in self.measured if not each.doubt]
        runs = [each.run for each in believed]
        options = FitOptions(prior_of=estimated_prior, kind_name=kind_family)
        used = {(Owner.GPU, kind_family(run.gpu)) for run in runs}
        used |= {(Owner.FRAMEWORK, run.workload.framework.name) for run in runs}
        unknowns = [
            Unknown(owner, name, parameter)
            for owner, tables in ((Owner.GPU, shipped.gpus), (Owner.FRAMEWORK, shipped.frameworks))
            for name, entry in tables.items()
            if (owner, name) in used
            for parameter in entry
            if parameter not in MEMORY_PARAMETERS
        ]
        priors = {each: prior_value(each, runs, estimated_prior, kind_family) for each in unknowns}
        problem = Problem(runs, weights_of_groups([each.group for each in believed]), priors, options)
        values = {
            each: (shipped.gpus if each.owner is Owner.GPU else shipped.frameworks)[each.name][each.parameter].value
            for each in unknowns
        }
        beliefs = [
            replace(belief, switched=False, middle=each.to_free(values[each]), value=values[each])
            for each, belief in beliefs_of(
                unknowns, runs, shipped, prior_of=estimated_prior, kind_name=kind_family
            ).items()
        ]
        free = np.array([each.middle for each in beliefs])
        residuals, columns = StepTimes(runs, beliefs, None, kind_family).linearised(free)
        nothing = dict.fromkeys(unknowns, 0)
        solution = Solution(dict(zip(unknowns, free.tolist(), strict=True)), nothing, nothing, residuals, columns)
        return problem, solution

    def _gpus_without(self, framework: str) -> Mapping[Unknown, float]:
        """The fitted parameters of GPU kinds that other frameworks ran on as well."""
        problem, solution = self.optimum
        rows = [i for i, run in enumerate(problem.runs) if run.workload.framework.name == framework]
        alone = self._only_under(framework)
        return {
            each: each.to_value(free)
            for each, free in free_without(problem, solution, np.array(rows, dtype=np.intp)).items()
            if each.owner is Owner.GPU and each.name not in alone
        }

    def _only_under(self, framework: str) -> set[str]:
        used = {(kind_family(run.gpu), run.workload.framework.name == framework) for run in self._runs}
        return {kind for kind, own in used if own and (kind, False) not in used}


def _of_gpus(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if PARAMETERS[name].owner is Owner.GPU}


def _shipped(run: TrainingRun) -> dict[str, float]:
    calibration = calibration_of(run.gpu, run.workload.framework)
    return _of_gpus({name: getattr(calibration, name) for name in PARAMETERS})
