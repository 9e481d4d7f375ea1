"""An assignment that keeps all rules, or the proof that there is none: rules alone, no times.

Slots of the same groups are alike, and so are nodes that no rule tells apart.  ``x[a,c]`` counts slots of kind
``a`` on nodes of kind ``c`` (docs/placement_rules.md):

    sum_c x[a,c] = slots of kind a,  sum_a x[a,c] <= nodes of kind c,  x[a,c] = 0 where they may not
    sum_{c in p} x[a,c] <= slots of a * in[g,p],  sum_p in[g,p] <= most       a of g; ``in`` binary
    seen[g,p] <= sum_{a in g, c in p} x[a,c],  seen <= 1,  sum_p seen[g,p] >= fewest
    fewest <= sum_{a, c in q} x[a,c] <= most                                  of every quota q

Any way to hand the counted nodes to the counted slots keeps the rules, because a kind of slots lies in each group
as a whole or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.candidates import IntArray
from solver.compiled import Rules
from solver.ilp import IlpStatus, ModelBuilder, solve_integer
from solver.placement.problem import NO_SLOT
from solver.placement.rule_rows import at_least, total
from solver.problem import Backend

MOST_COLUMNS: Final = 60_000
"""Programs with more columns are not solved."""
BRANCH_NODES: Final = 2_000
PROGRAM_TIME_S: Final = 6.0


@dataclass(frozen=True, slots=True, eq=False)
class FirstAssignment:
    """An assignment (K,) that keeps all rules, if one was found; ``impossible``: proven that there is none."""

    assignment: IntArray | None
    impossible: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Kinds:
    """Kinds of slots ``slot`` (K,) and of nodes ``node`` (N,), and the first of each kind."""

    slot: IntArray
    node: IntArray
    first_slot: IntArray
    first_node: IntArray


def first_assignment(rules: Rules, *, remaining_s: float = np.inf) -> FirstAssignment:
    """Look for an assignment that keeps all rules."""
    slots, nodes = rules.eligible.shape
    kinds = _kinds(rules)
    shape = len(kinds.first_slot), len(kinds.first_node)
    if slots > nodes:
        return FirstAssignment(None, impossible=True)
    if shape[0] * shape[1] > MOST_COLUMNS:
        return FirstAssignment(None, impossible=False)
    builder = ModelBuilder()
    count = builder.add_columns(shape[0] * shape[1], integer=True).reshape(shape)
    for a, size in enumerate(np.bincount(kinds.slot)):
        builder.add_row(total(count[a]), lower=float(size), upper=float(size))
    for c, size in enumerate(np.bincount(kinds.node)):
        builder.add_row(total(count[:, c]), upper=float(size))
    _add_rules(builder, count, rules, kinds)
    outcome = solve_integer(
        builder.build(),
        backend=Backend.HIGHS,
        time_limit_s=min(PROGRAM_TIME_S, remaining_s),
        node_limit=BRANCH_NODES,
    )
    if outcome.values is None:
        return FirstAssignment(None, impossible=outcome.status is IlpStatus.INFEASIBLE)
    return FirstAssignment(_handed_out(outcome.values[count].astype(np.int64), kinds), impossible=False)


def _kinds(rules: Rules) -> _Kinds:
    slots, nodes = rules.eligible.shape
    belongs = np.zeros((slots, len(rules.group_slots)), dtype=np.int64)
    for group, members in enumerate(rules.group_slots):
        belongs[members[members != NO_SLOT], group] = 1
    of_slot = np.column_stack([belongs, rules.eligible])
    of_node = np.vstack([rules.eligible, np.unique(rules.places, axis=0), rules.quota_of]).T
    _, first_slot, slot = np.unique(of_slot, axis=0, return_index=True, return_inverse=True)
    _, first_node, node = np.unique(of_node, axis=0, return_index=True, return_inverse=True)
    return _Kinds(slot.reshape(slots), node.reshape(nodes), first_slot, first_node)


def _add_rules(builder: ModelBuilder, count: IntArray, rules: Rules, kinds: _Kinds) -> None:
    forbidden = count[~rules.eligible[np.ix_(kinds.first_slot, kinds.first_node)]]
    if len(forbidden):
        builder.add_row(total(forbidden), lower=0.0, upper=0.0)
    for group, members in enumerate(rules.group_slots):
        own = np.unique(kinds.slot[members[members != NO_SLOT]])
        at = rules.places[group][kinds.first_node]
        columns = [count[np.ix_(own, np.flatnonzero(at == place))] for place in np.unique(at)]
        sizes = np.bincount(kinds.slot)[own]
        at_least(builder, columns, int(rules.fewest_places[group]), int(sizes.sum()))
        _at_most(builder, columns, int(rules.most_places[group]), sizes)
    for quota in range(len(rules.most_used)):
        inside = (rules.quota_of[:, kinds.first_node] == quota).any(axis=0)
        fewest, most = float(rules.fewest_used[quota]), float(rules.most_used[quota])
        terms = total(count[:, inside]) or [(int(count[0, 0]), 0.0)]
        builder.add_row(terms, lower=fewest, upper=most)


def _at_most(builder: ModelBuilder, columns: list[IntArray], most: int, sizes: IntArray) -> None:
    if most >= min(int(sizes.sum()), len(columns)):
        return
    used = builder.add_columns(len(columns), upper=1.0, integer=True)
    for one, inside in zip(used, columns, strict=True):
        for a, size in enumerate(sizes):
            builder.add_row([*total(inside[a]), (int(one), -float(size))], upper=0.0)
    builder.add_row(total(used), upper=float(most))


def _handed_out(count: IntArray, kinds: _Kinds) -> IntArray:
    """(K,) an assignment with ``count`` (kinds of slots, kinds of nodes), the first nodes of a kind first."""
    assignment = np.empty(len(kinds.slot), dtype=np.int64)
    free = [list(np.flatnonzero(kinds.node == c)[::-1]) for c in range(count.shape[1])]
    for a in range(count.shape[0]):
        chosen = np.repeat(np.arange(count.shape[1]), count[a])
        assignment[kinds.slot == a] = [free[c].pop() for c in chosen]
    return assignment
