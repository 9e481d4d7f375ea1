"""Units that carry a smaller or larger grid of replicas so that few ranks change what they hold.

Data ranks hold copies of the same weights, so of two broken replicas the live parts make one whole.  The slots of
the new grid are matched to units by what their ranks hold already (docs/replanning.md).  Letters: K slots of the
new grid, N units, R ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from cluster_models.training.plan import Configuration, Degrees, RankOrder
from solver.candidates import BoolArray, FloatArray, IntArray
from solver.compiled import step_seconds, violations
from solver.placement.geometry import coordinates
from solver.placement.problem import PlacementProblem
from solver.replanning.values import WORTH_MOVING

SAME_PART: Final = 1000.0
"""Weight of a rank that keeps its part against one that keeps its replica as well."""
FORBIDDEN: Final = 1e12
SEARCHED_EVENTS: Final = 1e7
"""Forwards and backwards simulated while units of equal parts are exchanged, about 3 ns each."""
MOST_SEARCHED: Final = 2000
NOTICEABLE: Final = 1e-6
"""Share of a step below which two assignments are as fast."""
NOBODY: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Contents of a grid's ranks (R,): ``part`` is equal where weights and experts are, ``replica`` its copy."""

    part: IntArray
    replica: IntArray


def parts_of(degrees: Degrees, order: RankOrder) -> Parts:
    """The parts of a grid's ranks; comparable between grids that differ in the data degree alone.

    Ranks of one stage hold equal parts where tensor ranks and places in expert blocks are equal: every so many
    ranks, the least common multiple of both widths, things repeat.
    """
    tensor, context, data, stage = coordinates(degrees, order)
    cell = degrees.tensor * degrees.context
    inside = tensor + degrees.tensor * context + cell * data
    period = int(np.lcm(cell, degrees.expert_block))
    return Parts(np.asarray(stage * period + inside % period), data)


def regroup(
    old: Configuration, new: Configuration, alive: BoolArray, old_unit: IntArray, usable: Sequence[int], gpus: int
) -> FloatArray:
    """State that each unit of ``usable`` keeps on each slot of ``new`` (K, N).

    ``alive`` (R,) and ``old_unit`` (R,): whether the ranks of ``old`` live, and on which unit they sit (``NOBODY``:
    on none).  Among ``gpus`` ranks on a slot, those that find their part there count ``SAME_PART`` each, those that
    find their replica as well one more.
    """
    before = parts_of(old.degrees, old.rank_order)
    after = parts_of(new.degrees, new.rank_order)
    kept = _living_replicas(old.degrees, new.degrees, before, alive)
    slots = -(-new.degrees.gpus // gpus)
    slot = np.arange(new.degrees.gpus) // gpus
    known = alive & (old_unit != NOBODY)
    worth = np.zeros((slots, len(usable)))
    column = {unit: index for index, unit in enumerate(usable)}
    parts = int(max(before.part.max(), after.part.max())) + 1
    held = np.zeros((len(usable), parts))
    same = np.zeros((len(usable), new.degrees.gpus), dtype=np.bool_)
    wanted = after.part * old.degrees.data + np.array(kept)[after.replica]
    for unit, part, replica in zip(
        old_unit[known].tolist(), before.part[known].tolist(), before.replica[known].tolist(), strict=True
    ):
        if unit in column:
            held[column[unit], part] += 1
            same[column[unit]] |= wanted == part * old.degrees.data + replica
    for index in range(slots):
        own = slot == index
        needed, count = np.unique(after.part[own], return_counts=True)
        worth[index] = SAME_PART * np.minimum(held[:, needed], count).sum(axis=1) + same[:, own].sum(axis=1)
    return worth


def _living_replicas(old: Degrees, new: Degrees, before: Parts, alive: BoolArray) -> list[int]:
    """The old replica that each new one goes on with, those first of which most ranks live.

    Replicas that share an expert block stay together.
    """
    cell = old.tensor * old.context
    block = int(np.lcm(cell, old.expert_block)) // cell
    living = np.bincount(before.replica, weights=alive, minlength=old.data).reshape(-1, block).sum(axis=1)
    count = -(-new.data // block)
    order = np.argsort(-living, kind="stable")
    chosen = sorted(order[:count].tolist()) + [0] * max(0, count - len(order))
    return [group * block + place for group in chosen for place in range(block)][: new.data]


def placed_by_parts(placement: PlacementProblem, worth: FloatArray, *, allowed: int = 0) -> IntArray | None:
    """The assignment (K,) that keeps most, then the fastest of those that keep as much by exchanging two units.

    ``worth`` (K, N) as of ``regroup``.  ``None`` where more than ``allowed`` placement rules would be broken.
    """
    arrays = placement.arrays
    eligible = arrays.rules.eligible
    cost = np.where(eligible, -worth, FORBIDDEN)
    assignment = scipy.optimize.linear_sum_assignment(cost)[1].astype(np.int64)
    if not eligible[np.arange(len(assignment)), assignment].all():
        return None
    kept = np.floor(worth / SAME_PART)
    best = _exchanged(placement, assignment, kept, allowed)
    return None if int(violations(best, arrays.rules)) > allowed else best


def _exchanged(placement: PlacementProblem, assignment: IntArray, kept: FloatArray, allowed: int) -> IntArray:
    """``assignment`` improved by replacing units with unused ones and exchanging two, as many parts kept.

    Where it breaks too many rules, parts may go to mend that.
    """
    arrays, work = placement.arrays, 2 * len(placement.schedule.rank) * placement.replicas
    most = int(min(MOST_SEARCHED, 1 + SEARCHED_EVENTS / work))

    def judged(entry: IntArray) -> tuple[int, float]:
        broken = max(0, int(violations(entry, arrays.rules)) - allowed)
        return broken, float(step_seconds(entry, arrays)[0])

    best, tries = assignment, 0
    broken, step_s = judged(assignment)
    found_better = True
    while found_better and tries < most:
        found_better = False
        for changed, least_gain in _neighbours(best, kept, any_part=broken > 0):
            tries += 1
            now_broken, now_s = judged(changed)
            if now_broken < broken or (now_broken == broken and now_s < step_s * (1 - least_gain)):
                best, broken, step_s, found_better = changed, now_broken, now_s, True
                break
            if tries >= most:
                break
    return best


def _neighbours(assignment: IntArray, kept: FloatArray, *, any_part: bool) -> Iterator[tuple[IntArray, float]]:
    """Assignments that differ in one or two slots, and the share of the step that each must save."""
    unused = np.setdiff1d(np.arange(kept.shape[1]), assignment)
    slots = np.arange(len(assignment))
    has = kept[slots, assignment]
    for slot in slots:
        for unit in unused[any_part | (kept[slot, unused] >= has[slot])]:
            changed = assignment.copy()
            changed[slot] = unit
            yield changed, NOTICEABLE
        others = slots[slot + 1 :]
        after = kept[slot, assignment[others]] + kept[others, assignment[slot]]
        for other in others[any_part | (after >= has[slot] + has[others])]:
            changed = assignment.copy()
            changed[slot], changed[other] = assignment[other], assignment[slot]
            yield changed, WORTH_MOVING
