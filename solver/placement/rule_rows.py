"""Rules as rows of the placement program.

``y[k,n]`` is 1 where slot k sits on node n (docs/placement_rules.md):

    y[k,n] = 0                                            n may not take slot k
    sum_{n in p} y[k,n] <= in[g,p],  sum_p in[g,p] <= most    a group of slots sits in at most so many places p
    seen[g,p] <= sum_{k in g, n in p} y[k,n],  seen <= 1,  sum_p seen[g,p] >= fewest    and in at least so many
    fewest <= sum_{k, n in q} y[k,n] <= most              nodes of a quota q in use

With y whole, ``in`` and ``seen`` need not be: they cut off exactly the assignments that break a rule.
"""

from __future__ import annotations

import numpy as np

from solver.candidates import IntArray
from solver.compiled import Rules
from solver.ilp import ModelBuilder
from solver.placement.problem import NO_SLOT


def add_rule_rows(builder: ModelBuilder, place: IntArray, rules: Rules) -> None:
    """Let ``place`` (K, N), the columns of y, keep the rules."""
    forbidden = place[~rules.eligible]
    if len(forbidden):
        builder.add_row(total(forbidden), lower=0.0, upper=0.0)
    for group in range(len(rules.group_slots)):
        slots = rules.group_slots[group]
        slots = slots[slots != NO_SLOT]
        at = rules.places[group]
        columns = [place[np.ix_(slots, np.flatnonzero(at == p))] for p in np.unique(at)]
        at_least(builder, columns, int(rules.fewest_places[group]), len(slots))
        _at_most(builder, columns, int(rules.most_places[group]))
    for quota in range(len(rules.most_used)):
        members = np.flatnonzero((rules.quota_of == quota).any(axis=0))
        terms = total(place[:, members])
        fewest, most = float(rules.fewest_used[quota]), float(rules.most_used[quota])
        if terms or fewest > 0:
            builder.add_row(terms or [(int(place[0, 0]), 0.0)], lower=fewest, upper=most)


def at_least(builder: ModelBuilder, columns: list[IntArray], fewest: int, size: int) -> None:
    """A group of ``size`` slots sits in at least ``fewest`` places.

    ``columns``: for each place, those whose sum is the slots of the group in it.
    """
    if fewest == size:  # no two in one place
        for inside in columns:
            builder.add_row(total(inside), upper=1.0)
    elif fewest > 1:
        seen = builder.add_columns(len(columns), upper=1.0)
        for one, inside in zip(seen, columns, strict=True):
            builder.add_row([*total(inside), (int(one), -1.0)], lower=0.0)
        builder.add_row(total(seen), lower=float(fewest))


def _at_most(builder: ModelBuilder, columns: list[IntArray], most: int) -> None:
    """A group sits in at most ``most`` places; ``columns[p]`` (slots, nodes of place p)."""
    if most == 1:  # every slot is in a place exactly as much as the first one
        for inside in columns:
            for slot in inside[1:]:
                builder.add_row([*total(slot), *total(inside[0], -1.0)], lower=0.0, upper=0.0)
    elif most < min(len(columns[0]), len(columns)):
        used = builder.add_columns(len(columns), upper=1.0)
        for one, inside in zip(used, columns, strict=True):
            for slot in inside:
                builder.add_row([*total(slot), (int(one), -1.0)], upper=0.0)
        builder.add_row(total(used), upper=float(most))


def total(columns: IntArray, factor: float = 1.0) -> list[tuple[int, float]]:
    """The terms of ``factor`` times the sum of ``columns``, for ``ModelBuilder.add_row``."""
    return [(int(column), factor) for column in columns.ravel()]
