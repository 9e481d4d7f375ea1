"""Words about alternatives of serving plans."""

from __future__ import annotations

from dataclasses import replace

from app.presentation.serving_tables import loss_words
from cluster_models.serving.plan import LossReason, ServingAlternative
from cluster_models.serving.workload import Pool, ServingConfiguration, Worker


def test_an_alternative_that_is_as_good_is_not_called_worse() -> None:
    """By the objective, which may leave several plans open."""
    whole = ServingConfiguration(Pool(Worker(tensor=4)))
    other = ServingAlternative(
        0, "H100", whole, 0.2, 0.02, 600.0, 4.0, 0.25, LossReason.OBJECTIVE, 0.25, slowest_part="dense_s"
    )
    assert loss_words(other).startswith("worse by the objective: a decode step spends more on")
    assert loss_words(replace(other, worse_by=0.0, reason_value=0.0)) == "as good by the objective"
