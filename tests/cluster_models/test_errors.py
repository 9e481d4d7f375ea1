"""Sentences of errors."""

from cluster_models.errors import InvalidInput
from cluster_models.training.workload import Objective


def test_members_of_enumerations_are_shown_as_users_write_them() -> None:
    assert (
        str(InvalidInput("objective", Objective.ENERGY, "is not known")) == "objective: is not known (got 'energy')"
    )
    assert "(got ('energy', '<b>'))" in str(InvalidInput("objectives", (Objective.ENERGY, "<b>"), "are not known"))
