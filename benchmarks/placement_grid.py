"""The problem that the placement benchmark measures: nodes on a grid of replicas and stages, links as measured.

    step = max over stages s (max over replicas r (last backward of (r, s)) + all-reduce of s)

1F1B on every replica with equal stages; a transfer is a pure delay of ``activation_bytes`` over the bandwidth of
its direction; the all-reduce of a stage runs round its replicas in the grid's order, ``2 (dp - 1) / dp`` times
``gradient_bytes`` over the slowest link of that ring, and hides behind nothing.
"""

from __future__ import annotations

import argparse
import csv
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

import numpy as np

from cluster_models.errors import MeshwrightError
from cluster_models.units import GBYTE
from solver.candidates import BoolArray, FloatArray, IntArray
from solver.compiled import Arrays
from solver.pipeline.schedule import MOST_EVENTS, build_schedule
from solver.placement.problem import NO_SLOT, PlacementProblem, no_rules, no_uplinks

SLOWEST_GBYTES_PER_S: Final = 1e-6
FASTEST_GBYTES_PER_S: Final = 1e6
LARGEST: Final = 1e18
"""Bytes and seconds beyond it are slips; sums of them might be no numbers any more."""


class InvalidQuestion(MeshwrightError):
    """Request that cannot be answered; the message says what to change."""


class QuestionParser(argparse.ArgumentParser):
    """Raises ``InvalidQuestion`` in place of printing its usage."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the flags."""
        raise InvalidQuestion(message)


@dataclass(frozen=True, slots=True)
class Training:
    """Sizes of one step: ``dp`` replicas of ``pp`` stages, seconds and bytes of a micro-batch on a stage."""

    dp: int
    pp: int
    forward_s: float
    backward_s: float
    activation_bytes: float
    gradient_bytes: float
    micro_batches: int

    def __post_init__(self) -> None:
        for name in ("dp", "pp", "micro_batches"):
            if getattr(self, name) < 1:
                raise InvalidQuestion(f"{_flag(name)} must be at least 1, got {getattr(self, name)}")
        for name in ("forward_s", "backward_s", "activation_bytes", "gradient_bytes"):
            if not 0 <= getattr(self, name) <= LARGEST:
                raise InvalidQuestion(
                    f"{_flag(name)} must lie between 0 and {LARGEST:g}, got {getattr(self, name)}"
                )
        if self.forward_s + self.backward_s <= 0:
            raise InvalidQuestion("--forward-s and --backward-s are both 0: a step without work takes no time")
        events = 2 * self.pp * self.micro_batches
        if events > MOST_EVENTS:
            raise InvalidQuestion(
                f"--pp {self.pp} and --micro-batches {self.micro_batches} make {events:,} forwards and backwards; "
                f"at most {MOST_EVENTS:,} are simulated"
            )

    @property
    def slots(self) -> int:
        """Nodes that take part."""
        return self.dp * self.pp


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@dataclass(frozen=True, slots=True, eq=False)
class Bandwidth:
    """Measured bytes per second from the node of a row to that of a column; NaN = unknown, as is the diagonal."""

    names: tuple[str, ...]
    bytes_per_s: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class KnownLinks:
    """``bytes_per_s`` (N, N) of the nodes that may be used, and which of its entries nobody ``measured``.

    ``left_out`` names nodes without a single measured link that the grid can do without.
    """

    names: tuple[str, ...]
    bytes_per_s: FloatArray
    guessed: BoolArray
    left_out: tuple[str, ...] = field(default=())


def read_bandwidth(path: Path) -> Bandwidth:
    """A square CSV of GB/s: names in the first row and column, senders in rows; empty = unknown."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidQuestion(f"--bandwidth {path} cannot be read: {reason}") from error
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if any(row)]
    except csv.Error as error:
        raise InvalidQuestion(f"--bandwidth {path} is not a CSV file: {error}") from error
    if not rows or len(rows[0]) < 2:
        raise InvalidQuestion(
            f"--bandwidth {path} holds no matrix: names are wanted in the first row and column, "
            "commas between the cells"
        )
    columns, names = rows[0][1:], [row[0] for row in rows[1:]]
    _check_names(path, columns, names)
    table = np.full((len(names), len(columns)), np.nan)
    for i, row in enumerate(rows[1:]):
        if len(row) != len(columns) + 1:
            raise InvalidQuestion(
                f"--bandwidth {path}: row {names[i]!r} has {len(row) - 1} values for {len(columns)} nodes"
            )
        for j, cell in enumerate(row[1:]):
            if names[i] != columns[j] and cell:
                table[i, j] = GBYTE * _bandwidth(path, names[i], columns[j], cell)
    order = [columns.index(name) for name in names]
    return Bandwidth(tuple(names), table[:, order])


def _check_names(path: Path, columns: list[str], names: list[str]) -> None:
    if len(columns) != len(names):
        raise InvalidQuestion(
            f"--bandwidth {path} is not square: {len(names)} rows and {len(columns)} columns of values"
        )
    for where, given in (("row", names), ("column", columns)):
        if "" in given:
            raise InvalidQuestion(f"--bandwidth {path}: {where} {given.index('') + 1} has no node name")
        twice = sorted({name for name in given if given.count(name) > 1}) if len(set(given)) < len(given) else []
        if twice:
            raise InvalidQuestion(f"--bandwidth {path}: {where} name {twice[0]!r} stands twice")
    strangers = sorted(set(names) ^ set(columns))
    if strangers:
        raise InvalidQuestion(f"--bandwidth {path}: node {strangers[0]!r} has a row or a column, but not both")


def _bandwidth(path: Path, sender: str, receiver: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not SLOWEST_GBYTES_PER_S <= value <= FASTEST_GBYTES_PER_S:
        raise InvalidQuestion(
            f"--bandwidth {path}: {sender} to {receiver} is {cell!r}; "
            f"a bandwidth lies between {SLOWEST_GBYTES_PER_S:g} and {FASTEST_GBYTES_PER_S:g} GB/s, "
            "and is left empty where it is unknown"
        )
    return value


def known_links(bandwidth: Bandwidth, slots: int) -> KnownLinks:
    """Every link of the nodes that may be used.

    An unknown link is as fast as its reverse, or else as the slowest measured one: a pair that nobody could
    measure may be broken, so a plan avoids it.  Nodes without any measured link serve only where too few others
    are left.
    """
    nodes = len(bandwidth.names)
    if slots > nodes:
        raise InvalidQuestion(
            f"--dp times --pp asks for {slots} nodes, but the matrix has {nodes}; ask for fewer, or measure more"
        )
    measured = np.isfinite(bandwidth.bytes_per_s)
    if slots > 1 and not measured.any():
        raise InvalidQuestion("the matrix holds no measured link, and the grid needs some: fill it in")
    blind = ~(measured.any(axis=0) | measured.any(axis=1))
    spare = max(0, min(int(blind.sum()), nodes - slots))
    dropped = np.flatnonzero(blind)[::-1][:spare]
    kept = np.setdiff1d(np.arange(nodes), dropped)
    known = bandwidth.bytes_per_s[np.ix_(kept, kept)]
    known = np.where(np.isfinite(known), known, known.T)
    guessed = ~np.isfinite(known)
    np.fill_diagonal(guessed, val=False)
    slowest = float(np.nanmin(bandwidth.bytes_per_s)) if measured.any() else 1.0
    known = np.where(np.isfinite(known), known, slowest)
    names = tuple(bandwidth.names[n] for n in kept)
    return KnownLinks(names, known, guessed, tuple(bandwidth.names[n] for n in sorted(dropped)))


def grid_slots(training: Training) -> IntArray:
    """(dp, pp) the slot of each place of the grid: rows are replicas."""
    return np.arange(training.slots).reshape(training.dp, training.pp)


def grid_problem(bytes_per_s: FloatArray, training: Training) -> PlacementProblem:
    """The placement problem of ``training`` on links (N, N); the diagonal is not looked at."""
    nodes, (dp, pp) = len(bytes_per_s), (training.dp, training.pp)
    slots = grid_slots(training)
    schedule = build_schedule(pp, 1, training.micro_batches)
    seconds_per_byte = 1.0 / bytes_per_s
    np.fill_diagonal(seconds_per_byte, 0.0)
    hop_pairs = np.full((dp, 2, pp, 1, 2), NO_SLOT, dtype=np.int64)
    hop_pairs[:, 0, :-1, 0] = np.stack([slots[:, :-1], slots[:, 1:]], axis=-1)
    hop_pairs[:, 1, 1:, 0] = np.stack([slots[:, 1:], slots[:, :-1]], axis=-1)
    ring_pairs = np.full((1, pp, dp, 2), NO_SLOT, dtype=np.int64)
    if dp > 1:
        ring_pairs[0] = np.stack([slots, np.roll(slots, -1, axis=0)], axis=-1).swapaxes(0, 1)
    ring_s = 2 * (dp - 1) / dp * training.gradient_bytes * seconds_per_byte
    cross_pairs = np.full((1, dp, pp, 1, 2), NO_SLOT, dtype=np.int64)
    none = np.zeros((1, pp))
    arrays = Arrays(
        events=schedule.events,
        last=schedule.last,
        duration_s=np.repeat([[training.forward_s], [training.backward_s]], pp, axis=1),
        local_hop_s=0.0,
        slowdown=np.ones(nodes),
        hop_pairs=hop_pairs,
        hop_s=training.activation_bytes * seconds_per_byte,
        cross_pairs=cross_pairs,
        cross_s=np.zeros((1, nodes, nodes)),
        cross_count=np.zeros((1, 2, pp)),
        cross_hidden_s=np.zeros((1, 2)),
        cell_slots=np.ascontiguousarray(slots[..., None]),
        ring_pairs=ring_pairs,
        ring_times=np.zeros((1, pp), dtype=np.int64),
        reduce_s=ring_s[None],
        gather_s=np.zeros((1, nodes, nodes)),
        reduce_local_s=none,
        gather_local_s=none.copy(),
        reduce_hidden_s=np.zeros(pp),
        gather_hidden_s=np.zeros(pp),
        optimizer_s=np.zeros(pp),
        rules=no_rules(training.slots, nodes),
        uplinks=no_uplinks(hop_pairs, cross_pairs, ring_pairs, nodes),
    )
    return PlacementProblem(training.slots, nodes, schedule, arrays)


def rank_orders(training: Training) -> tuple[IntArray, IntArray]:
    """Assignments (K,) that take the nodes as they come: by stage as in Megatron, and by replica."""
    by_replica = np.arange(training.slots)
    by_stage = np.ascontiguousarray(by_replica.reshape(training.pp, training.dp).T.reshape(-1))
    return by_stage, by_replica
