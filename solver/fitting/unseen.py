"""Runs that were predicted without what would have told of them."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_models.calibration.training_run import TrainingRun
from cluster_models.model.architecture import Architecture
from solver.costs.calibration import kind_family
from solver.costs.confidence import Novelty, product_of


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A run with its log(measured / predicted) where ``novelty`` says what was not known.

    ``unit``: whom it errs with, ``source``: who published it.
    """

    run: TrainingRun
    novelty: Novelty
    unit: str
    source: str
    error: float


def unit_of(run: TrainingRun, novelty: Novelty) -> str:
    """Whom a run errs with: those of its model, its GPU kind, or its framework, all generations together.

    Its generations are one program, months apart.
    """
    kind, product = kind_family(run.gpu), product_of(run.workload.framework.name)
    if novelty is Novelty.MODEL:
        return model_of(run.architecture)
    return {Novelty.KIND: kind, Novelty.FRAMEWORK: product}.get(novelty, f"{product} on {kind}")


def model_of(architecture: Architecture) -> str:
    """The model whatever a source calls it."""
    experts = 0 if architecture.experts is None else architecture.experts.count
    return f"{architecture.layers} x {architecture.hidden}, {architecture.mlp_hidden}, {experts} experts"
