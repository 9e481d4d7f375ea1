"""Rules as rows of a program, and an assignment that keeps them all, or the proof that there is none.

``y[k,n]`` is 1 where slot k sits on node n (docs/placement_rules.md):

    y[k,n] = 0                                            n may not take slot k
    sum_{n in p} y[k,n] <= in[g,p],  sum_p in[g,p] <= most    a group of slots sits in at most so many places p
    seen[g,p] <= sum_{k in g, n in p} y[k,n],  seen <= 1,  sum_p seen[g,p] >= fewest    and in at least so many
    fewest <= sum_{k, n in q} y[k,n] <= most              nodes of a quota q in use

With y whole, ``in`` and ``seen`` need not be: they cut off exactly the assignments that break a rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.candidates import IntArray
from solver.compiled import Rules
from solver.ilp import IlpStatus, ModelBuilder, solve_integer
from solver.placement.problem import NO_SLOT
from solver.problem import Backend

MOST_COLUMNS: Final = 50_000
"""Programs for a first assignment with more columns are not solved."""
BRANCH_NODES: Final = 2_000
PROGRAM_TIME_S: Final = 6.0


def add_rule_rows(builder: ModelBuilder, place: IntArray, rules: Rules) -> None:
    """Let ``place`` (K, N), the columns of y, keep the rules."""
    forbidden = place[~rules.eligible]
    if len(forbidden):
        builder.add_row(_sum(forbidden), lower=0.0, upper=0.0)
    for group in range(len(rules.group_slots)):
        slots = rules.group_slots[group]
        slots = slots[slots != NO_SLOT]
        at = rules.places[group]
        columns = [place[np.ix_(slots, np.flatnonzero(at == p))] for p in np.unique(at)]
        _at_least(builder, columns, int(rules.fewest_places[group]))
        _at_most(builder, columns, int(rules.most_places[group]))
    for quota in range(len(rules.most_used)):
        members = np.flatnonzero((rules.quota_of == quota).any(axis=0))
        terms = _sum(place[:, members])
        fewest, most = float(rules.fewest_used[quota]), float(rules.most_used[quota])
        if terms or fewest > 0:
            builder.add_row(terms or [(int(place[0, 0]), 0.0)], lower=fewest, upper=most)


def _at_least(builder: ModelBuilder, columns: list[IntArray], fewest: int) -> None:
    """A group sits in at least ``fewest`` places; ``columns[p]`` (slots, nodes of place p)."""
    if fewest == len(columns[0]):  # no two in one place
        for inside in columns:
            builder.add_row(_sum(inside), upper=1.0)
    elif fewest > 1:
        seen = builder.add_columns(len(columns), upper=1.0)
        for one, inside in zip(seen, columns, strict=True):
            builder.add_row([*_sum(inside), (int(one), -1.0)], lower=0.0)
        builder.add_row(_sum(seen), lower=float(fewest))


def _at_most(builder: ModelBuilder, columns: list[IntArray], most: int) -> None:
    """A group sits in at most ``most`` places."""
    if most == 1:  # every slot is in a place exactly as much as the first one
        for inside in columns:
            for slot in inside[1:]:
                builder.add_row([*_sum(slot), *_sum(inside[0], -1.0)], lower=0.0, upper=0.0)
    elif most < min(len(columns[0]), len(columns)):
        used = builder.add_columns(len(columns), upper=1.0)
        for one, inside in zip(used, columns, strict=True):
            for slot in inside:
                builder.add_row([*_sum(slot), (int(one), -1.0)], upper=0.0)
        builder.add_row(_sum(used), upper=float(most))


def _sum(columns: IntArray, factor: float = 1.0) -> list[tuple[int, float]]:
    return [(int(column), factor) for column in columns.ravel()]


@dataclass(frozen=True, slots=True, eq=False)
class FirstAssignment:
    """An assignment (K,) that keeps all rules, if one was found; ``impossible``: proven that there is none."""

    assignment: IntArray | None
    impossible: bool


def first_assignment(rules: Rules, *, remaining_s: float = np.inf) -> FirstAssignment:
    """Look for an assignment that keeps all rules.

    Nodes that no rule tells apart are one column with a number: the program stays small on large clusters.
    """
    slots, nodes = rules.eligible.shape
    marks = np.vstack([rules.eligible, np.unique(rules.places, axis=0), rules.quota_of])
    _, first, member = np.unique(marks, axis=1, return_index=True, return_inverse=True)
    member = member.reshape(nodes)
    if slots > nodes:
        return FirstAssignment(None, impossible=True)
    if slots * len(first) > MOST_COLUMNS:
        return FirstAssignment(None, impossible=False)
    builder = ModelBuilder()
    place = builder.add_columns(slots * len(first), upper=1.0, integer=True).reshape(slots, len(first))
    for k in range(slots):
        builder.add_row(_sum(place[k]), lower=1.0, upper=1.0)
    for c, size in enumerate(np.bincount(member)):
        builder.add_row(_sum(place[:, c]), upper=float(size))
    alike = rules._replace(
        eligible=rules.eligible[:, first], places=rules.places[:, first], quota_of=rules.quota_of[:, first]
    )
    add_rule_rows(builder, place, alike)
    outcome = solve_integer(
        builder.build(),
        backend=Backend.HIGHS,
        time_limit_s=min(PROGRAM_TIME_S, remaining_s),
        node_limit=BRANCH_NODES,
    )
    if outcome.values is None:
        return FirstAssignment(None, impossible=outcome.status is IlpStatus.INFEASIBLE)
    chosen = outcome.values[place].argmax(axis=1)
    free = [list(np.flatnonzero(member == c)[::-1]) for c in range(len(first))]
    return FirstAssignment(np.array([free[c].pop() for c in chosen], dtype=np.int64), impossible=False)
