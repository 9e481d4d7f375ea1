"""How far off a GPU kind or framework generation would be of which nothing is known but its data sheet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from cluster_models.fitted import FittedParameters, FittedValue
from cluster_models.training_run import TrainingRun
from solver.candidates import FloatArray
from solver.costs.calibration import PARAMETERS, Owner, default_values
from solver.fitting.unknowns import Unknown, with_values
from solver.runs import predict_runs


def unseen_errors(runs: Sequence[TrainingRun], parameters: FittedParameters, owner: Owner) -> FloatArray:
    """(r,) log(measured / predicted) of measured runs, the parameters of ``owner`` at their defaults.

    Not even the estimates for the kind or generation are used, which were made by people who knew its runs; the
    other owner's parameters are those fitted.
    """
    together: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, run in enumerate(runs):
        together[run.gpu.name, run.workload.framework.name].append(i)
    errors = np.empty(len(runs))
    for (kind, framework), rows in together.items():
        name = kind if owner is Owner.GPU else framework
        defaults = {
            Unknown(owner, name, parameter): FittedValue(value, value, value, 0)
            for parameter, value in default_values(runs[rows[0]].gpu).items()
            if PARAMETERS[parameter].owner is owner
        }
        predictions = predict_runs([runs[i] for i in rows], with_values(parameters, defaults, ""))
        for i, found in zip(rows, predictions, strict=True):
            errors[i] = np.log((runs[i].step_s or np.nan) / found.step_s)
    return errors
