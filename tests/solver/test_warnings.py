"""What a plan says of the figures behind it."""

from __future__ import annotations

import pytest

from solver.predict import predict
from tests.solver.problems import nodes, planned, problem


@pytest.mark.parametrize(("gpus", "estimated"), [(4, False), (2, True)])
def test_tensor_communication_that_nobody_measured_is_named(gpus: int, estimated: bool) -> None:
    """Published tables cover four H100 of a node, and not two."""
    asked = problem(nodes(1, gpus=gpus), pinned={"tensor": gpus})
    warnings = predict(asked, planned(asked).configuration).warnings
    assert any("Tensor parallel communication of" in warning for warning in warnings) is estimated
