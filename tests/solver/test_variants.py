"""Steps of a run under many values of its parameters at once."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from cluster_models.calibration.training_run import TrainingRun
from cluster_models.model.catalogue import catalogue_models
from cluster_models.training.framework_choices import ExpertBalance
from cluster_models.training.frameworks import framework
from solver.costs.calibration import PARAMETERS, Owner, calibration_of
from solver.fitting import variants
from solver.fitting.unknowns import Unknown
from solver.runs import predict_runs
from tests.solver.test_fitting import run

OLD = replace(framework("nemo-25.04"), untrained_router=True, expert_balance=ExpertBalance.CAPACITY)
EXPERTS = replace(catalogue_models()["mixtral-8x7b"], layers=8)


def _runs() -> tuple[TrainingRun, ...]:
    dense = run()
    workload = replace(dense.workload, framework=OLD)
    return dense, replace(dense, architecture=EXPERTS, workload=workload)


@pytest.mark.parametrize("each", _runs(), ids=["dense", "experts"])
def test_values_of_all_parameters_are_priced_together(each: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A formula that takes one number alone would make every fit many times as slow."""
    calibration, generation = calibration_of(each.gpu, each.workload.framework), each.workload.framework.name
    columns = {
        Unknown(limits.owner, each.gpu.name if limits.owner is Owner.GPU else generation, name): np.clip(
            getattr(calibration, name) * np.array([0.9, 1.0, 1.1]), limits.low, limits.high
        )
        for name, limits in PARAMETERS.items()
        if limits.owner in (Owner.GPU, Owner.FRAMEWORK) and getattr(calibration, name, None)
    }
    priced = Mock(wraps=predict_runs)
    monkeypatch.setattr(variants, "predict_runs", priced)
    steps = variants.predict_variants(each, None, columns)
    priced.assert_called_once()
    assert steps[1] == pytest.approx(predict_runs([each])[0].step_s, rel=1e-9)
    assert len(set(steps.tolist())) == len(steps)
