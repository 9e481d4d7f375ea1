"""Rivals of the placement benchmark, compiled: an annealer, restarted descents, and their step time.

The annealer is built from the description of Pipette (Yim et al., "Pipette: Automatic Fine-Grained Large Language
Model Training Configurator for Real-World Clusters", DATE 2024, arXiv 2405.18093): from a random order of nodes,
moves that migrate one node, swap two or reverse a stretch; a worse neighbour is taken with probability
``exp(-d / temperature)``, ``d`` being the loss scaled by a power of ten to between 0.1 and 1; the temperature falls
by a constant factor at every move.  It is given more than the original has: compiled code, and the exact step time
for its objective instead of an estimate.  Code and step time are the benchmark's own; nothing is shared with the
solver.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.kernels import inner, kernel

COOLING: Final = 0.999
FIRST_TEMPERATURE: Final = 1.0


class Step(NamedTuple):
    """A step to time: ``seconds_per_byte`` (N, N), sender first."""

    dp: int
    pp: int
    forward_s: float
    backward_s: float
    activation_bytes: float
    gradient_bytes: float
    micro_batches: int
    seconds_per_byte: FloatArray


@inner
def pipeline_ends(forward_hop: FloatArray, backward_hop: FloatArray, step: Step) -> FloatArray:
    """(pp,) end of each stage's last backward under 1F1B; hops (pp - 1,) between a stage and the next."""
    pp, micro = step.pp, step.micro_batches
    forward, backward = np.full((pp, micro), -1.0), np.full((pp, micro), -1.0)
    free, done = np.zeros(pp), np.zeros(pp, dtype=np.int64)
    left = 2 * pp * micro
    while left > 0:
        for s in range(pp):
            warm_up = min(micro, pp - 1 - s)
            while done[s] < 2 * micro:
                k = done[s]
                steady = k - warm_up
                if k < warm_up or (steady < 2 * (micro - warm_up) and steady % 2 == 0):
                    m = k if k < warm_up else warm_up + steady // 2
                    ready = 0.0 if s == 0 else forward[s - 1, m]
                    if ready < 0.0:
                        break
                    if s > 0:
                        ready += forward_hop[s - 1]
                    free[s] = max(free[s], ready) + step.forward_s
                    forward[s, m] = free[s]
                else:
                    m = steady // 2 if steady < 2 * (micro - warm_up) else k - micro
                    ready = forward[s, m] if s == pp - 1 else backward[s + 1, m]
                    if ready < 0.0:
                        break
                    if s < pp - 1:
                        ready += backward_hop[s]
                    free[s] = max(free[s], ready) + step.backward_s
                    backward[s, m] = free[s]
                done[s] += 1
                left -= 1
    return free


@kernel
def step_time(order: IntArray, step: Step) -> float:
    """Seconds of a step with the nodes ``order``, replica after replica."""
    dp, pp = step.dp, step.pp
    last = np.zeros(pp)
    forward_hop, backward_hop = np.empty(max(0, pp - 1)), np.empty(max(0, pp - 1))
    for r in range(dp):
        for s in range(pp - 1):
            a, b = order[r * pp + s], order[r * pp + s + 1]
            forward_hop[s] = step.activation_bytes * step.seconds_per_byte[a, b]
            backward_hop[s] = step.activation_bytes * step.seconds_per_byte[b, a]
        ends = pipeline_ends(forward_hop, backward_hop, step)
        for s in range(pp):
            last[s] = max(last[s], ends[s])
    total = 0.0
    for s in range(pp):
        slowest = 0.0
        for r in range(dp):
            slowest = max(slowest, step.seconds_per_byte[order[r * pp + s], order[(r + 1) % dp * pp + s]])
        ring = 2.0 * (dp - 1) / dp * step.gradient_bytes * slowest if dp > 1 else 0.0
        total = max(total, last[s] + ring)
    return total


@inner
def _move(order: IntArray, changed: IntArray, kinds: int) -> None:
    """Write a neighbour of ``order`` to ``changed``: two nodes swapped, one migrated, or a stretch reversed."""
    nodes = len(order)
    changed[:] = order
    i, j = np.random.randint(nodes), np.random.randint(nodes)  # noqa: NPY002 - all that compiled code knows
    kind = np.random.randint(kinds)  # noqa: NPY002
    if kind == 0:
        changed[i], changed[j] = order[j], order[i]
    elif kind == 1:
        if i < j:
            changed[i:j] = order[i + 1 : j + 1]
        else:
            changed[j + 1 : i + 1] = order[j:i]
        changed[j] = order[i]
    else:
        low, high = min(i, j), max(i, j)
        changed[low : high + 1] = order[low : high + 1][::-1]


@kernel
def seeded_order(nodes: int, seed: int) -> IntArray:
    """A random order, and the random numbers after it fixed."""
    np.random.seed(seed)  # noqa: NPY002
    return np.random.permutation(nodes)  # noqa: NPY002


@kernel
def anneal_slice(order: IntArray, best: IntArray, temperature: float, step: Step, moves: int) -> float:
    """Anneal ``order`` on for ``moves`` moves, keeping the best met in ``best``; the temperature afterwards."""
    changed = order.copy()
    now, best_s = step_time(order, step), step_time(best, step)
    for _ in range(moves):
        _move(order, changed, 3)
        new = step_time(changed, step)
        take = new <= now
        if not take:
            scaled = (new - now) * 10.0 ** -(np.floor(np.log10(new - now)) + 1)
            take = np.random.random() < np.exp(-scaled / max(temperature, 1e-300))  # noqa: NPY002
        if take:
            order[:] = changed
            now = new
            if now < best_s:
                best[:] = order
                best_s = now
        temperature *= COOLING
    return temperature


@kernel
def descend_slice(order: IntArray, best: IntArray, since: int, patience: int, step: Step, moves: int) -> int:
    """``moves`` random swaps, kept where they do not lose; from a random order again after ``patience`` idle ones.

    Returns how many moves ago the current descent last gained.
    """
    changed = order.copy()
    now, best_s = step_time(order, step), step_time(best, step)
    for _ in range(moves):
        if since >= patience:
            order[:] = np.random.permutation(len(order))  # noqa: NPY002
            now, since = step_time(order, step), 0
        _move(order, changed, 1)
        new = step_time(changed, step)
        since += 1
        if new < now:
            since = 0
        if new <= now:
            order[:] = changed
            now = new
            if now < best_s:
                best[:] = order
                best_s = now
    return since
