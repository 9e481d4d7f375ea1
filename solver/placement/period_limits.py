"""How slow each stretch of ranks may be if a step is to end in time (docs/placement.md, "The period bound").

A stretch is ranks a .. b; it takes the forwards and backwards of one micro-batch on them and the transfers between
them, there and back.  Paths of the event graph that go round it again and again limit its seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.ilp import ModelBuilder, solve_relaxation
from solver.pipeline.simulation import critical_path, simulate
from solver.placement.chains import Chains
from solver.placement.problem import PlacementProblem

STRESSES: Final = (1.02, 1.1, 1.5, 3.0)
"""Factors on the transfers of a stretch, so that critical paths go round it."""
CLOSE: Final = 1e-3
"""Share by which a factor must fall to be worth another path."""
TOLERANCE: Final = 1e-9
SPARE: Final = 1e-3
"""Beyond what a stretch may ever take, where no path limits it."""


@dataclass(frozen=True, slots=True, eq=False)
class PeriodLimits:
    """Rows n x (seconds of ranks ``first`` .. ``last``) + ``rest_s`` <= step, ``rounds`` being n.

    ``unit_s`` (P,): forward and backward of a micro-batch on a rank of a node of slowdown 1, mean over its chunks;
    ``most_s`` (P, P): the most that a stretch may ever take; ``end_s`` (P,): least last backward.
    """

    first: IntArray
    last: IntArray
    rounds: FloatArray
    rest_s: FloatArray
    unit_s: FloatArray
    most_s: FloatArray
    end_s: FloatArray

    def at(self, step_s: float) -> FloatArray:
        """(P, P) the most seconds of ranks a .. b in any step of at most ``step_s``."""
        limit_s = self.most_s * (1.0 + SPARE)
        row_s = (step_s * (1.0 + TOLERANCE) - self.rest_s) / self.rounds
        np.minimum.at(limit_s, (self.first, self.last), row_s)
        return limit_s


def period_limits(
    problem: PlacementProblem,
    chains: Chains,
    after_s: FloatArray,
    step_s: float,
    out_of_time: Callable[[], bool],
) -> PeriodLimits | None:
    """The limits of one problem, lowest for steps of about ``step_s``; ``None`` when time is over first.

    ``after_s`` (P,): what follows the last backward of each rank at least, in every replica.
    """
    arrays, schedule = problem.arrays, problem.schedule
    stages, hop_s = schedule.pipeline, arrays.hop_s[~np.eye(problem.nodes, dtype=bool)]
    slow = np.maximum(arrays.slowdown, 1.0)
    duration_s = arrays.duration_s * slow.min() + chains.extra_s
    delay_s = np.zeros((2, stages))
    delay_s[0, :-1] = delay_s[1, 1:] = hop_s.min()
    if schedule.is_closed:
        delay_s[0, -1] = delay_s[1, 0] = chains.least_hop_s
    unit_s = arrays.duration_s.reshape(len(arrays.duration_s), -1, stages).sum(axis=(0, 1)) / schedule.virtual
    least_s, slowest = float(hop_s.min()), float(hop_s.max())

    def critical(a: int, b: int, stress: float) -> tuple[float, float]:
        """Rounds of ranks a .. b on the path that is critical with them so much slower, and seconds of its rest."""
        slower, later = duration_s.copy(), delay_s.copy()
        if a == b:
            slower.reshape(len(slower), -1, stages)[:, :, a] *= stress
        later[0, a:b] *= stress
        later[1, a + 1 : b + 1] *= stress
        ends = simulate(schedule, slower, later)
        s = int((ends[schedule.last] + after_s).argmax())
        work, hops = critical_path(schedule, ends, later, int(schedule.last[s]))
        spent_s = (work * arrays.duration_s).reshape(len(work), -1, stages).sum(axis=(0, 1))
        rounds = _rounds(spent_s, hops, unit_s, a, b)
        total_s = float((work * duration_s).sum() + (hops * delay_s).sum())
        once_s = unit_s[a : b + 1].sum() * slow.min() + 2 * (b - a) * least_s
        return rounds, total_s - rounds * once_s + after_s[s]

    rows = []
    for a in range(stages):
        for b in range(a, stages):
            if out_of_time():
                return None
            transfers_s = 2 * (b - a) * least_s
            for start in (*STRESSES, slowest / least_s) if transfers_s > 0 else STRESSES:
                stress, before = start, np.inf
                while 1.0 < stress < before * (1.0 - CLOSE):
                    rounds, rest_s = critical(a, b, stress)
                    if rounds <= 0:
                        break
                    rows.append((a, b, rounds, rest_s))
                    # again with transfers as slow as this path allows
                    left_s = (step_s - rest_s) / rounds - float(unit_s[a : b + 1].sum()) * slow.min()
                    stress, before = left_s / transfers_s if transfers_s > 0 else 0.0, stress
    table = np.array(rows).reshape(-1, 4)
    most_s = np.add.outer(-np.concatenate([[0.0], np.cumsum(unit_s)[:-1]]), np.cumsum(unit_s)) * slow.max()
    most_s += 2 * hop_s.max() * np.subtract.outer(-np.arange(stages), -np.arange(stages))
    return PeriodLimits(
        first=table[:, 0].astype(np.int64),
        last=table[:, 1].astype(np.int64),
        rounds=table[:, 2],
        rest_s=table[:, 3],
        unit_s=unit_s,
        most_s=most_s,
        end_s=simulate(schedule, duration_s, delay_s)[schedule.last],
    )


def _rounds(spent_s: FloatArray, hops: IntArray, unit_s: FloatArray, a: int, b: int) -> float:
    """How often a path takes all of the ranks a .. b, its work (P,) in seconds, and the transfers between them."""
    busy = unit_s[a : b + 1] > 0
    counts = [
        *(spent_s[a : b + 1][busy] / unit_s[a : b + 1][busy]).tolist(),
        *hops[0, a:b].tolist(),
        *hops[1, a + 1 : b + 1].tolist(),
    ]
    return min(counts, default=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """Limits ``rate_s`` x ranks + ``start_s``[a] + ``end_s``[b] on the seconds of ranks a .. b."""

    rate_s: float
    start_s: FloatArray
    end_s: FloatArray


def bucket(limit_s: FloatArray) -> Bucket | None:
    """The lowest limits of that form, on average, that are nowhere below ``limit_s`` (P, P)."""
    stages = len(limit_s)
    a, b = np.triu_indices(stages)
    builder = ModelBuilder()
    size = float(np.abs(limit_s[a, b]).max()) * 2 + 1.0
    rate = int(builder.add_columns(1, lower=-size, upper=size, cost=float((b - a + 1).sum()))[0])
    parts = [
        builder.add_columns(1, lower=-size * stages, upper=size * stages, cost=float(cost))[0]
        for cost in [*range(stages, 0, -1), *range(1, stages + 1)]
    ]
    for i, j in zip(a.tolist(), b.tolist(), strict=True):
        terms = [(rate, float(j - i + 1)), (int(parts[i]), 1.0), (int(parts[stages + j]), 1.0)]
        builder.add_row(terms, lower=float(limit_s[i, j]))
    values = solve_relaxation(builder.build()).values
    if values is None:
        return None
    start_s, end_s = values[parts[:stages]], values[parts[stages:]]
    reached = float(values[rate]) * (b - a + 1) + start_s[a] + end_s[b]
    return Bucket(
        float(values[rate]), start_s, end_s + max(0.0, float((limit_s[a, b] - reached).max())) + TOLERANCE * size
    )
