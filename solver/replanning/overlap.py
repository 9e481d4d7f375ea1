"""Needs of a new plan from the state that an old one holds: which piece of which part goes to which rank.

A *run* is a set of units that lie on the same pipeline ranks before and after; an *atom* a stretch of a part's axis
that no cut of either plan divides.  Every rank holds whole atoms of whole runs, so that one table answers who has
what.  Letters: U units, K runs, A atoms of a part, Q needs of a part.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import lcm
from typing import TYPE_CHECKING

import numpy as np

from solver.costs.training_state import NOBODY, PlanState, Shares

if TYPE_CHECKING:
    from cluster_models.jobs.recovery import StateKind
    from solver.candidates import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Runs:
    """``run`` (U,) of every unit; ``old`` (K, P) and ``new`` (K, P') the pipeline ranks that hold a run."""

    run: IntArray
    old: BoolArray
    new: BoolArray

    @cached_property
    def old_stages(self) -> IntArray:
        """(K, most) the numbers of the old pipeline ranks that hold a run, padded with ``NOBODY``."""
        run, stage = np.nonzero(self.old)
        counts = self.old.sum(axis=1)
        found = np.full((len(counts), int(counts.max())), NOBODY, dtype=np.int64)
        found[run, np.arange(len(run)) - (np.cumsum(counts) - counts)[run]] = stage
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """Needs of new ranks from one part of the state, and which old ranks hold it.

    By need (Q,): the new ``rank``, its ``run`` and ``atom``, and the ``bytes`` of both.  ``atom_bytes`` (K, A).
    ``held`` are (member, atom) of the old plan as sorted numbers ``member * A + atom``.
    """

    kind: StateKind
    rank: IntArray
    run: IntArray
    atom: IntArray
    bytes: FloatArray
    atom_bytes: FloatArray
    held: IntArray
    runs: Runs

    @property
    def atoms(self) -> int:
        """Number of atoms."""
        return int(self.atom_bytes.shape[1])

    def held_by(self, old: PlanState, ranks: IntArray, needs: IntArray | None = None) -> BoolArray:
        """(Q,) whether the old rank in ``ranks`` (Q,) holds each need; nobody holds nothing.

        ``needs`` takes some of the needs, in their order.
        """
        run, atom = (self.run, self.atom) if needs is None else (self.run[needs], self.atom[needs])
        found = np.zeros(len(ranks), dtype=np.bool_)
        for member in old.members_of.T:
            key = member[ranks] * self.atoms + atom
            place = np.minimum(np.searchsorted(self.held, key), len(self.held) - 1)
            found |= self.held[place] == key
        found &= (ranks != NOBODY) & self.runs.old[run, old.stage[ranks]]
        return found

    def holders(self, old: PlanState) -> IntArray:
        """(A, P, most) the old ranks that hold each atom on each pipeline rank, padded with ``NOBODY``."""
        atom, member = self.held % self.atoms, self.held // self.atoms
        order = np.argsort(atom, kind="stable")
        atom, member = atom[order], member[order]
        counts = np.bincount(atom, minlength=self.atoms)
        place = np.arange(len(atom)) - (np.cumsum(counts) - counts)[atom]
        found = np.full((self.atoms, len(old.rank_of), int(counts.max())), NOBODY, dtype=np.int64)
        found[atom, :, place] = old.rank_of[:, member].T
        return found


def runs_of(old: PlanState, new: PlanState) -> Runs:
    """The runs of two states of one model."""
    both = np.concatenate([old.homes, new.homes], axis=1)
    rows, run = np.unique(both, axis=0, return_inverse=True)
    stages = old.homes.shape[1]
    return Runs(run.reshape(len(both)), rows[:, :stages], rows[:, stages:])


def needs_of(old: PlanState, new: PlanState) -> tuple[Needs, ...]:
    """Needs of every rank of ``new``, part by part; parts without bytes are left out."""
    runs = runs_of(old, new)
    found = []
    for before, after in zip(old.parts, new.parts, strict=True):
        run_bytes = np.zeros(len(runs.old))
        np.add.at(run_bytes, runs.run, after.unit_bytes)
        if run_bytes.any():
            found.append(_part_needs(before.shares, after.shares, after.kind, run_bytes, runs, new))
    return tuple(found)


def _part_needs(
    before: Shares, after: Shares, kind: StateKind, run_bytes: FloatArray, runs: Runs, new: PlanState
) -> Needs:
    grid = lcm(before.grid, after.grid)
    scales = grid // before.grid, grid // after.grid
    ends = [before.low * scales[0], before.high * scales[0], after.low * scales[1], after.high * scales[1]]
    cuts = np.unique(np.concatenate(ends))
    held_member, held_atom = _atoms(before.member, ends[0], ends[1], cuts)
    member, atom = _atoms(after.member, ends[2], ends[3], cuts)
    atom_bytes = run_bytes[:, None] * (np.diff(cuts) / grid)
    run, stage = np.nonzero(runs.new & (run_bytes > 0)[:, None])
    run, stage = np.repeat(run, len(member)), np.repeat(stage, len(member))
    member, atom = (np.tile(each, len(run) // len(member)) for each in (member, atom))
    rank = new.rank_of[stage, member]
    if not new.is_whole:  # a rank that took over others' shares needs what they share with it once
        _, first = np.unique(np.stack([rank, run, atom]), axis=1, return_index=True)
        rank, run, atom = rank[first], run[first], atom[first]
    return Needs(
        kind=kind,
        rank=rank,
        run=run,
        atom=atom,
        bytes=atom_bytes[run, atom],
        atom_bytes=atom_bytes,
        held=np.unique(held_member * (len(cuts) - 1) + held_atom),
        runs=runs,
    )


def _atoms(member: IntArray, low: IntArray, high: IntArray, cuts: IntArray) -> tuple[IntArray, IntArray]:
    """Each (member, atom) that lies in the intervals of members."""
    first, last = np.searchsorted(cuts, low), np.searchsorted(cuts, high)
    count = last - first
    row = np.repeat(np.arange(len(member)), count)
    atom = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + first[row]
    return member[row], atom
