"""Sources of routing statistics, the maps of running engines, and the formats.

A reader is a pure function from a source to what it found.  Layers and tokens that cannot be used are left out with
a notice; ``InvalidInput`` is raised only where nothing of a file can be used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cluster_models.errors import InvalidConfiguration, InvalidInput
from cluster_models.routing.counts import RoutedWorkload
from cluster_models.training.expert_slots import ExpertSlots
from readers.frame.findings import Finding

MOST_EXPERTS: Final = 4096
"""Experts of a layer.  Larger numbers are none: a table of transitions would hold more than 16 million pairs."""
MOST_LAYERS: Final = 1024
MOST_WORKLOADS: Final = 256
"""Workloads of a file."""


@dataclass(frozen=True, slots=True)
class RoutingSource:
    """One file: ``tree`` its value (JSON, YAML, or names with arrays), ``text`` where it is a table of text.

    ``name`` is the file as sent, which notices name; ``stem`` names the workload.  ``experts`` is how many a layer
    of the model has, where that is known.
    """

    name: str
    stem: str
    tree: Any = None
    text: str = ""
    experts: int | None = None


@dataclass(frozen=True, slots=True)
class RunningMap:
    """The map of an engine that runs: ``slots[i][s]`` is the expert in slot ``s`` of ``layers[i]``.

    ``ranks`` where the file says it; most formats leave it to the launch command.
    """

    name: str
    layers: tuple[int, ...]
    slots: NDArray[np.int64]
    ranks: int | None = None

    def on(self, ranks: int) -> ExpertSlots:
        """The slots of ``ranks`` expert ranks, consecutive slots on each; raises ``InvalidConfiguration``."""
        if self.ranks is not None and ranks != self.ranks:
            problem = f"the map was made for {self.ranks} ranks"
            raise InvalidConfiguration("experts.ranks", ranks, problem, "give the ranks of the running engine")
        rows = tuple(tuple(int(expert) for expert in row) for row in self.slots)
        return ExpertSlots(self.layers, rows, int(self.slots.max()) + 1, ranks)


@dataclass(frozen=True, slots=True)
class RoutingContents:
    """Contents of one file, or of a group of files."""

    workloads: tuple[RoutedWorkload, ...] = ()
    maps: tuple[RunningMap, ...] = ()
    notices: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class RoutingFormat:
    """A kind of file: ``fits`` judges a source by its content, ``read`` raises ``InvalidInput`` or finds something.

    ``known_as`` for people.
    """

    name: str
    known_as: str
    fits: Callable[[RoutingSource], bool]
    read: Callable[[RoutingSource], RoutingContents]


def unusable(source: RoutingSource, place: str, value: object, problem: str, remedy: str) -> InvalidInput:
    """The error of a file of which nothing can be used; it names the file and the place in it."""
    return InvalidInput(f"{source.name}: {place}" if place else source.name, value, problem, remedy)
