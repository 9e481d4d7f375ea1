"""The steady state of 1F1B as a linear program (docs/pipeline.md derives it).

With warm-up ``w_s = P - 1 - s``, forward and backward times ``F_s, B_s`` and transfer times, the period ``L`` of
one micro-batch is the least ``L`` for which start times ``f_s, b_s`` exist:

    b_s               >= f_s + w_s L + F_s                  a rank's backward follows its newest forward
    f_s + (w_s + 1) L >= b_s + B_s                          a rank's next forward follows that backward
    f_{s+1}           >= f_s + F_s + forward transfer       activations arrive
    b_s               >= b_{s+1} + B_{s+1} + backward transfer    gradients arrive
    b_{P-1}           >= f_{P-1} + F_{P-1}                  the last rank turns round
"""

from __future__ import annotations

from collections.abc import Sequence

from solver.candidates import FloatArray
from solver.ilp import ModelBuilder, Terms, solve_relaxation

Duration = tuple[float, Terms]
"""Seconds plus a linear expression of columns, so that transfers may be decided in the same program."""


def add_period_rows(
    builder: ModelBuilder,
    *,
    period: int,
    forward: Sequence[Duration],
    backward: Sequence[Duration],
    forward_hop: Sequence[Duration],
    backward_hop: Sequence[Duration],
) -> None:
    """Add the program above for one replica to ``builder``.

    ``forward_hop[s]`` leads from rank ``s`` to ``s + 1`` and ``backward_hop[s]``
    from ``s + 1`` to ``s``.
    """
    ranks = len(forward)
    f, b = builder.add_columns(ranks), builder.add_columns(ranks)

    def after(later: Terms, earlier: Terms, duration: Duration) -> None:
        """``later >= earlier + duration`` as a row."""
        terms = [*later, *((column, -factor) for column, factor in (*earlier, *duration[1]))]
        builder.add_row(terms, lower=duration[0])

    for s in range(ranks):
        warm_up = ranks - 1 - s
        after([(b[s], 1.0), (period, -warm_up)], [(f[s], 1.0)], forward[s])
        after([(f[s], 1.0), (period, warm_up + 1.0)], [(b[s], 1.0)], backward[s])
        if s + 1 < ranks:
            after([(f[s + 1], 1.0)], [(f[s], 1.0)], _sum(forward[s], forward_hop[s]))
            after([(b[s], 1.0)], [(b[s + 1], 1.0)], _sum(backward[s + 1], backward_hop[s]))


def _sum(first: Duration, second: Duration) -> Duration:
    return first[0] + second[0], [*first[1], *second[1]]


def pipeline_period(
    forward_s: FloatArray, backward_s: FloatArray, forward_hop_s: FloatArray, backward_hop_s: FloatArray
) -> float:
    """Seconds per micro-batch of a 1F1B pipeline in its steady state.

    ``forward_s`` and ``backward_s`` have one entry per rank, the hops one per neighbouring pair.
    """
    builder = ModelBuilder()
    period = int(builder.add_columns(1, cost=1.0)[0])
    add_period_rows(
        builder,
        period=period,
        forward=[(float(value), ()) for value in forward_s],
        backward=[(float(value), ()) for value in backward_s],
        forward_hop=[(float(value), ()) for value in forward_hop_s],
        backward_hop=[(float(value), ()) for value in backward_hop_s],
    )
    return solve_relaxation(builder.build()).objective
