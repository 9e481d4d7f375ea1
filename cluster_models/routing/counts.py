"""How a router spread tokens over experts: what was counted while a workload ran."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture

Counts = NDArray[np.float64]
_ROUNDED: Final = 1e-3
"""Relative excess of shares over what a router can select that is accepted: they may have been rounded."""


@dataclass(frozen=True, slots=True, eq=False)
class RoutedWorkload:
    """Counts of one workload ("prefill", "decode of chats"); all counts are of (token, expert) selections.

    ``layers``: the decoder layers that were counted, from 0, increasing; dense layers are left out.
    ``loads`` (layers, experts): how often each expert was selected.
    ``transitions[i]`` (experts, experts): of ``layers[i]`` and ``layers[i + 1]``, how often a token selected the
    row in the first and the column in the second.
    ``coactivation[i]`` (experts, experts): in ``layers[i]``, how often a token selected both; symmetric, the
    diagonal counts for nothing.  ``tokens``: how many tokens were counted, where known.

    Raises ``InvalidInput`` for other shapes, for counts that are negative or no numbers, and for a layer without
    any count.
    """

    name: str
    layers: tuple[int, ...]
    loads: Counts
    transitions: Mapping[int, Counts] = field(default_factory=dict)
    coactivation: Mapping[int, Counts] = field(default_factory=dict)
    tokens: float | None = None

    def __post_init__(self) -> None:
        if not self.layers or list(self.layers) != sorted(set(self.layers)) or self.layers[0] < 0:
            raise InvalidInput("routing.layers", self.layers, "must be layer numbers, increasing")
        if self.loads.ndim != 2 or len(self.loads) != len(self.layers) or not self.experts:
            problem = f"must be {len(self.layers)} rows of one count per expert"
            raise InvalidInput("routing.loads", self.loads.shape, problem)
        _check_counts("routing.loads", self.loads)
        empty = [layer for layer, total in zip(self.layers, self.loads.sum(axis=1), strict=True) if total <= 0]
        if empty:
            raise InvalidInput(
                "routing.loads", empty[0], "no token of that layer was counted", "leave the layer out"
            )
        for what, tables, last in (
            ("transitions", self.transitions, len(self.layers) - 1),
            ("coactivation", self.coactivation, len(self.layers)),
        ):
            for index, table in tables.items():
                name = f"routing.{what}[{index}]"
                if not 0 <= index < last or table.shape != (self.experts, self.experts):
                    problem = f"must be of one of {last} rows and have {self.experts} x {self.experts} counts"
                    raise InvalidInput(name, table.shape, problem)
                _check_counts(name, table)

    @property
    def experts(self) -> int:
        """Experts of a layer."""
        return int(self.loads.shape[1])

    def shares(self) -> Counts:
        """(layers, experts): the share of each layer's selections that an expert gets; rows sum to 1."""
        return np.asarray(self.loads / self.loads.sum(axis=1, keepdims=True))

    def at(self, layers: Sequence[int]) -> RoutedWorkload:
        """The same at some of its layers, increasing; transitions stay where both layers are still neighbours."""
        if tuple(layers) == self.layers:
            return self
        kept = [self.layers.index(layer) for layer in layers]
        onward = {
            new: self.transitions[old]
            for new, (old, then) in enumerate(pairwise(kept))
            if then == old + 1 and old in self.transitions
        }
        together = {new: self.coactivation[old] for new, old in enumerate(kept) if old in self.coactivation}
        return replace(
            self, layers=tuple(layers), loads=self.loads[kept], transitions=onward, coactivation=together
        )

    def plain(self, weight: float = 1.0) -> ExpertLoads:
        """The loads alone, as a planning problem carries them."""
        rows = tuple(tuple(row) for row in self.loads.tolist())
        return ExpertLoads(self.name, self.layers, rows, weight)


@dataclass(frozen=True, slots=True)
class ExpertLoads:
    """Loads of one workload in plain numbers, and what it weighs beside other workloads.

    ``loads[i][e]``: how often expert ``e`` of decoder layer ``layers[i]`` was selected.  ``weight`` 0: experts are
    placed without regard to it, and what the plan means for it is reported.  Raises ``InvalidInput``.
    """

    name: str
    layers: tuple[int, ...]
    loads: tuple[tuple[float, ...], ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise InvalidInput("routing.weight", self.weight, "must be a number from 0 on")
        lengths = {len(row) for row in self.loads}
        if len(lengths) != 1:
            problem = f"must be rows of equally many counts, not of {sorted(lengths)}"
            raise InvalidInput("routing.loads", len(self.loads), problem)
        self.counted()

    @property
    def experts(self) -> int:
        """Experts of a layer."""
        return len(self.loads[0])

    def counted(self) -> RoutedWorkload:
        """The same as arrays; raises ``InvalidInput`` as that does."""
        return RoutedWorkload(self.name, self.layers, np.array(self.loads, dtype=np.float64))


def loads_of_model(architecture: Architecture, given: Sequence[ExpertLoads]) -> tuple[ExpertLoads, ...]:
    """The loads under the layer numbers of the model.

    Rows may be numbered without the model's dense layers where there is one for each layer with experts.  Raises
    ``InvalidInput`` where they are not of this model, or not of the same layers.
    """
    if not given:
        return ()
    if architecture.experts is None:
        raise InvalidInput("routing", given[0].name, f"{architecture.name} has no experts", "leave it out")
    names = [each.name for each in given]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidInput("routing", twice[0], "is given twice", "give each workload a name of its own")
    if not any(each.weight for each in given):
        raise InvalidInput("routing.weight", 0.0, "is 0 for all workloads", "weigh at least one")
    found = tuple(_of_model(architecture, architecture.experts.count, each) for each in given)
    experts = architecture.experts
    for each in found:
        shares = each.counted().shares()
        check_selectable(
            shares,
            each.layers,
            active=experts.active,
            groups=(experts.router_groups, experts.active_groups),
            field=f"routing.{each.name}.loads",
        )
    for each in found[1:]:
        if each.layers != found[0].layers:
            problem = f"are not those of {found[0].name}: {len(each.layers)} and {len(found[0].layers)} layers"
            raise InvalidInput(f"routing.{each.name}.layers", list(each.layers), problem, "count the same layers")
    return found


def check_selectable(
    shares: Counts, layers: Sequence[int], *, active: int, groups: tuple[int, int], field: str
) -> None:
    """Raise ``InvalidInput`` where no router selects ``active`` different experts a token in these shares.

    ``shares`` (layers, experts) of sum 1; ``groups``: how many groups consecutive experts fall into, and how many
    of them a token's experts may come from.  A token selects an expert once, so that none gets more than
    1 / ``active``; a group is open at least as often as its hottest expert is selected.
    """
    count, open_groups = groups
    selected = shares * active
    hottest = selected.max(axis=1)
    remedy = "count every expert of a token, and name the model or router that was recorded"
    worst = int(hottest.argmax())
    if hottest[worst] > 1 + _ROUNDED:
        problem = (
            f"expert {int(selected[worst].argmax())} of layer {layers[worst]} got {hottest[worst] / active:.1%} of "
            f"the selections: a token that selects {active} different experts gives none more than {1 / active:.1%}"
        )
        raise InvalidInput(field, float(shares[worst].max()), problem, remedy)
    needed = selected.reshape(len(shares), count, -1).max(axis=2).sum(axis=1)
    worst = int(needed.argmax())
    if needed[worst] > open_groups * (1 + _ROUNDED):
        problem = (
            f"layer {layers[worst]} needs {needed[worst]:.2f} of {count} router groups open for a token, and the "
            f"router opens {open_groups}"
        )
        raise InvalidInput(field, float(needed[worst]), problem, remedy)


def _of_model(architecture: Architecture, experts: int, given: ExpertLoads) -> ExpertLoads:
    if given.experts != experts:
        problem = f"{architecture.name} has {experts} experts in a layer"
        raise InvalidInput(f"routing.{given.name}.loads", given.experts, problem, "give counts of this model")
    sparse = tuple(layer for layer in range(architecture.layers) if architecture.is_sparse_layer(layer))
    wrong = [layer for layer in given.layers if layer not in sparse]
    if not wrong:
        return given
    if given.layers == tuple(range(len(sparse))):
        return replace(given, layers=sparse)
    problem = (
        f"is not a layer with experts: {architecture.name} has {len(sparse)} of them, {sparse[0]} to {sparse[-1]}"
    )
    remedy = f"number decoder layers from 0, or give one row for each of the {len(sparse)}"
    raise InvalidInput(f"routing.{given.name}.layers", wrong[0], problem, remedy)


def _check_counts(name: str, counts: Counts) -> None:
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise InvalidInput(name, "", "counts must be numbers from 0 on")
    counts.setflags(write=False)
