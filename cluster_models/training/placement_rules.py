"""Rules of a user for the nodes under a plan: who must sit apart or together, and which nodes stay free.

Groups are the process groups that the framework makes.  Places are the values of a label (``leaf``, ``rack``,
``zone``, ...); ``node`` and ``nvlink_domain`` are labels that every node has.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cluster_models.errors import InvalidWorkload


class RankGroup(StrEnum):
    """Ranks that a rule speaks of; every group of the kind must keep it."""

    DATA = "data"
    """The replicas of one rank: equal in all coordinates but the data rank.  They hold copies of the same weights;
    where experts lie over several cells, those data ranks that hold the same experts."""
    PIPELINE = "pipeline"
    """All ranks of one replica."""
    STAGE = "stage"
    """All ranks of one pipeline rank, of all replicas."""
    TENSOR = "tensor"
    CONTEXT = "context"
    """The ranks of one tensor x context group: a cell."""
    EXPERT = "expert"
    JOB = "job"
    """All ranks."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The ranks of each ``group`` sit in at least ``at_least`` places of the label ``over``.

    ``None``: no two in one place.  A group with fewer ranks than ``at_least`` cannot keep the rule.
    """

    group: RankGroup
    over: str
    at_least: int | None = None

    def __post_init__(self) -> None:
        if self.at_least is not None and self.at_least < 1:
            raise InvalidWorkload("workload.placement.spread.at_least", self.at_least, "must be at least 1")

    @property
    def label(self) -> str:
        """The label that tells places apart."""
        return self.over

    def __str__(self) -> str:
        share = "" if self.at_least is None else f" (at least {self.at_least})"
        return f"spread {self.group} over {self.over}{share}"


@dataclass(frozen=True, slots=True)
class KeepTogether:
    """The ranks of each ``group`` sit in at most ``at_most`` places of the label ``within``."""

    group: RankGroup
    within: str
    at_most: int = 1

    def __post_init__(self) -> None:
        if self.at_most < 1:
            raise InvalidWorkload("workload.placement.keep_together.at_most", self.at_most, "must be at least 1")

    @property
    def label(self) -> str:
        """The label that tells places apart."""
        return self.within

    def __str__(self) -> str:
        share = "" if self.at_most == 1 else f" (at most {self.at_most})"
        return f"keep {self.group} together within {self.within}{share}"


@dataclass(frozen=True, slots=True)
class Spares:
    """``count`` nodes stay out of the plan: in all, or in each place of the label ``per`` that the plan uses.

    Nodes in state ready count that the plan could have used: of its GPU kinds, with as many GPUs as it takes.
    """

    count: int
    per: str | None = None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidWorkload("workload.placement.spares.count", self.count, "must be at least 1")

    def __str__(self) -> str:
        return f"{self.count} spare{'s' if self.count > 1 else ''}" + (f" per {self.per}" if self.per else "")


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """All rules; a plan keeps every one.  ``require_nodes`` must be among the hosts."""

    spread: tuple[Spread, ...] = ()
    keep_together: tuple[KeepTogether, ...] = ()
    spares: tuple[Spares, ...] = ()
    require_nodes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is asked."""
        return bool(self.spread or self.keep_together or self.spares or self.require_nodes)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that the rules speak of, each once."""
        named = [rule.label for rule in self.neighbours]
        return tuple(dict.fromkeys([*named, *(spares.per for spares in self.spares if spares.per)]))

    @property
    def neighbours(self) -> tuple[Spread | KeepTogether, ...]:
        """The rules on groups."""
        return (*self.spread, *self.keep_together)


NOTHING_ASKED: Final = PlacementRules()
