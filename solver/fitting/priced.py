"""Own runs under values of the unknowns: their step times, and their peak memory."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cluster_models.calibration.fitted import FittedParameters, FittedValue
from cluster_models.calibration.training_run import TrainingRun
from solver.candidates import FloatArray
from solver.fitting.beliefs import Belief
from solver.fitting.posterior import Rows, steps_of
from solver.fitting.robust import STEP
from solver.fitting.unknowns import KindName, kind_itself, with_values
from solver.fitting.variants import predict_rows
from solver.run_memory import predict_counted_memory
from solver.runs import predict_runs, shared_terms


@dataclass(frozen=True, eq=False)
class OwnRuns(ABC):
    """Measured ``runs`` with the ``beliefs`` of their unknowns upon the parameters ``start``."""

    runs: Sequence[TrainingRun]
    beliefs: Sequence[Belief]
    start: FittedParameters | None
    kind_name: KindName = kind_itself

    @cached_property
    def own(self) -> list[Rows]:
        """For each run the places of the unknowns of its GPU kind and framework."""
        return [
            np.array(
                [j for j, each in enumerate(self.beliefs) if each.unknown.concerns(run, self.kind_name)],
                dtype=np.intp,
            )
            for run in self.runs
        ]

    def parameters(self, free: FloatArray, places: Rows | None = None) -> FittedParameters:
        """The unknowns in ``places`` (default: all) at ``free``, upon the start."""
        chosen = range(len(self.beliefs)) if places is None else places.tolist()
        values = {self.beliefs[j].unknown: self.beliefs[j].to_value(float(free[j])) for j in chosen}
        return with_values(self.start, {each: FittedValue(v, v, v, 0) for each, v in values.items()}, "")

    @abstractmethod
    def residuals(self, free: FloatArray, rows: Rows | None = None) -> FloatArray:
        """(r,) log(predicted / measured) of ``rows`` (default: all) at ``free`` (j,)."""

    @abstractmethod
    def linearised(self, free: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The residuals (r,) at ``free`` and their derivatives (r, j)."""

    def _chosen(self, rows: Rows | None) -> list[int]:
        return list(range(len(self.runs))) if rows is None else [int(row) for row in rows]


class StepTimes(OwnRuns):
    """Runs with a measured step."""

    def residuals(self, free: FloatArray, rows: Rows | None = None) -> FloatArray:
        """(r,) log(predicted / measured) of ``rows`` at ``free``."""
        chosen = [self.runs[row] for row in self._chosen(rows)]
        predictions = predict_runs(chosen, self.parameters(free))
        return np.array(
            [math.log(p.step_s / (run.step_s or 1.0)) for run, p in zip(chosen, predictions, strict=True)]
        )

    def linearised(self, free: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The residuals (r,) and their derivatives (r, j)."""
        residuals, columns = np.zeros(len(self.runs)), np.zeros((len(self.runs), len(free)))
        for rows in self._together:
            places = self.own[rows[0]]
            points = free[places] + steps_of(len(places))
            runs = [self.runs[row] for row in rows for _ in points]
            variants = {
                self.beliefs[j].unknown: np.tile([self.beliefs[j].to_value(float(u)) for u in column], len(rows))
                for j, column in zip(places.tolist(), points.T, strict=True)
            }
            seconds = predict_rows(runs, self.start, variants).reshape(len(rows), -1)
            logs = np.log(seconds / np.array([[self.runs[row].step_s or 1.0] for row in rows]))
            residuals[rows] = logs[:, 0]
            columns[np.ix_(rows, places)] = (logs[:, 1:] - logs[:, :1]) / STEP
        return residuals, columns

    @cached_property
    def _together(self) -> list[Rows]:
        """Places of the runs that are priced at once."""
        found: dict[object, list[int]] = defaultdict(list)
        for row, run in enumerate(self.runs):
            found[shared_terms(run)].append(row)
        return [np.array(rows, dtype=np.intp) for rows in found.values()]


class PeakMemory(OwnRuns):
    """Runs with a measured peak."""

    def residuals(self, free: FloatArray, rows: Rows | None = None) -> FloatArray:
        """(r,) log(predicted / measured) of ``rows`` at ``free``."""
        fitted = self.parameters(free)
        chosen = [self.runs[row] for row in self._chosen(rows)]
        return np.array(
            [math.log(predict_counted_memory(run, fitted) / (run.peak_memory_bytes or 1.0)) for run in chosen]
        )

    def linearised(self, free: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The residuals (r,) and their derivatives (r, j)."""
        points = np.stack([self.residuals(free + step) for step in steps_of(len(free))])
        return points[0], (points[1:] - points[0]).T / STEP
