"""A placement that is wanted, with all that decides it looked up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from solver.experts.dispatch import LayerRates, RouterRule
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice
from solver.experts.regret import Terms
from solver.experts.transitions import ChangePrices


@dataclass(frozen=True, slots=True)
class NodeTerms:
    """Cost of crossing nodes: the router's rule, rates, and how engines choose among copies of an expert.

    ``speed_given``: the rates of the links are known.  ``choice``: ``None`` where either choice may come.
    """

    rule: RouterRule
    rates: LayerRates
    speed_given: bool
    choice: CopyChoice | None = None

    @property
    def choices(self) -> tuple[CopyChoice, ...]:
        """The choices of copies that may come."""
        return tuple(CopyChoice) if self.choice is None else (self.choice,)

    def compared(self) -> Terms:
        """Measures that maps are compared by: every choice, at every speed, that may come."""
        return Terms.of(self.rates, self.choice, speed_known=self.speed_given)


@dataclass(frozen=True, slots=True)
class ChainTerms:
    """How transitions between layers count: prices of changes of rank, and the share of locality to keep."""

    prices: ChangePrices
    least_locality: float


@dataclass(frozen=True, slots=True)
class Ask:
    """A placement that is wanted.

    ``planned``: names of the workloads to plan for; ``weights`` of each, or ``None`` for the worst of them.
    ``choice``: which copies serve tokens, ``None`` where either choice may come.  ``terms``: what crossing nodes
    costs, ``None`` where loads alone count.  ``chain``: tokens are to stay where
    they are from layer to layer; ``None`` where balance, and time over nodes, is what is wanted.
    """

    layout: ExpertLayout
    planned: tuple[str, ...]
    weights: Mapping[str, float] | None = None
    choice: CopyChoice | None = None
    terms: NodeTerms | None = None
    chain: ChainTerms | None = None
    seed: int = 0
    effort: float = 1.0

    @property
    def judged(self) -> CopyChoice:
        """The choice of copies under which balance counts: any where none was asked for."""
        return self.choice or CopyChoice.ANY
