"""The one tree of errors that a user can cause.

    MeshwrightError
    ├── InvalidInput            a value that a user gave is wrong: field, value, problem, remedy
    │   ├── InvalidCluster
    │   ├── InvalidModel
    │   ├── InvalidWorkload
    │   └── InvalidConfiguration
    └── SolverFailed            a solver back end broke; the input was fine

"No plan fits" is not an error but a result (see ``cluster_models.training.plan.NoPlan``).
"""

from __future__ import annotations

import re
from typing import Final

_ENUM: Final = re.compile(r"<\w+\.\w+: ([^<>]+)>")
"""An enumeration's member as Python shows it; users know its value."""


class MeshwrightError(Exception):
    """Anything the product reports to its user in one sentence."""


class InvalidInput(MeshwrightError):
    """A value given by the user is wrong.

    ``field`` is the dotted path as the user wrote it, ``problem`` says what is wrong with ``value``, and
    ``remedy`` what to do instead.
    """

    def __init__(self, field: str, value: object, problem: str, remedy: str = "") -> None:
        self.field = field
        self.value = value
        self.problem = problem
        self.remedy = remedy
        super().__init__(self._sentence())

    def __reduce__(self) -> tuple[object, ...]:
        """Itself for another process: made again of what it was made of."""
        return type(self), (self.field, self.value, self.problem, self.remedy)

    def _sentence(self) -> str:
        shown = _ENUM.sub(r"\1", repr(self.value))
        if len(shown) > 120:
            shown = shown[:117] + "..."
        got = "" if shown == "''" else f" (got {shown})"
        sentence = f"{self.field}: {self.problem}{got}"
        return f"{sentence}; {self.remedy}" if self.remedy else sentence


class InvalidCluster(InvalidInput):
    """A cluster, node or measurement is wrong."""


class InvalidModel(InvalidInput):
    """A model architecture is wrong, incomplete or unknown."""


class InvalidWorkload(InvalidInput):
    """A workload is wrong or contradicts itself."""


class InvalidConfiguration(InvalidInput):
    """A configuration given in full breaks a rule of the framework, the model or the cluster."""


class SolverFailed(MeshwrightError):
    """A solver back end ended without an answer that its input explains."""
