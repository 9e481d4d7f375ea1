"""Compiled: how likely a token needs each node, from the loads of experts and the rule of the router.

Letters: E experts, N nodes, H router groups of which a are active, k experts a token, m source node, n other node.

A set of k experts inside a of the H groups is drawn with a probability in proportion to the product of its weights
(docs/experts.md, section "Which nodes a token needs").  Generating functions in z count experts, in y groups:
with ``P_h(z) = prod_(e in h) (1 + weight_e z)`` all sets weigh ``[y^a z^k] prod_h (1 + y P_h(z))``, and the sets
that leave a node out weigh the same with ``weight_e (1 - share of e served there)``.
"""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.kernels import inner, kernel

_MOST_LIKELY = 0.95
"""Experts that nearly every token selects are taken as this likely, so that their weights stay finite."""
_LEAST_WEIGHT = 1e-12
_MOST_CORRELATED = 1.0 - 1e-7


@kernel
def served_shares(counts: IntArray, served: FloatArray) -> None:
    """Fill (N, N) ``served[m, n]``: of the selections of tokens from m, the share that copies in n serve.

    ``counts`` (N,) copies in each node.  A node with a copy serves its own tokens; those of a node without any go
    to all copies equally.
    """
    nodes = len(counts)
    total = 0
    for node in range(nodes):
        total += counts[node]
    for source in range(nodes):
        for node in range(nodes):
            if counts[source] == 0:
                served[source, node] = counts[node] / total
            else:
                served[source, node] = 1.0 if node == source else 0.0


@inner
def even_shares(counts: IntArray, served: FloatArray) -> None:
    """Fill (1, N) ``served[0, n]``: what copies in n serve of tokens from any node, if each copy is as likely."""
    total = 0
    for copies in counts:
        total += copies
    for node in range(len(counts)):
        served[0, node] = counts[node] / total


@inner
def _multiply_in(product: FloatArray, factor: FloatArray) -> None:
    """Multiply (a + 1, k + 1) ``product`` by ``1 + y factor(z)``, in place."""
    groups, order = product.shape[0] - 1, product.shape[1] - 1
    for chosen in range(groups, 0, -1):
        for degree in range(order, -1, -1):
            added = 0.0
            for part in range(degree + 1):
                added += product[chosen - 1, degree - part] * factor[part]
            product[chosen, degree] += added


@inner
def _group_slopes(factors: FloatArray, active_groups: int, slopes: FloatArray) -> float:
    """Fill (H, k + 1) how the weight of all sets grows with each coefficient of ``factors``; return that weight."""
    groups, order = factors.shape[0], factors.shape[1] - 1
    before = np.zeros((groups + 1, active_groups + 1, order + 1))
    after = np.zeros((groups + 1, active_groups + 1, order + 1))
    before[0, 0, 0] = 1.0
    after[groups, 0, 0] = 1.0
    for group in range(groups):
        before[group + 1] = before[group]
        _multiply_in(before[group + 1], factors[group])
    for group in range(groups - 1, -1, -1):
        after[group] = after[group + 1]
        _multiply_in(after[group], factors[group])
    for group in range(groups):
        for degree in range(order + 1):
            weight = 0.0
            for chosen in range(active_groups):
                left, right = before[group, chosen], after[group + 1, active_groups - 1 - chosen]
                for part in range(order - degree + 1):
                    weight += left[part] * right[order - degree - part]
            slopes[group, degree] = weight
    return float(before[groups, active_groups, order])


@inner
def _group_factors(weights: FloatArray, factors: FloatArray) -> None:
    """Fill (H, k + 1) the polynomial ``prod (1 + weight z)`` of each group of consecutive experts."""
    groups, order = factors.shape[0], factors.shape[1] - 1
    size = len(weights) // groups
    factors[:] = 0.0
    for group in range(groups):
        factors[group, 0] = 1.0
        for expert in range(group * size, (group + 1) * size):
            weight = weights[expert]
            for degree in range(order, 0, -1):
                factors[group, degree] += weight * factors[group, degree - 1]


@inner
def _slope(weight: float, factor: FloatArray, slopes: FloatArray) -> float:
    """How the weight of all sets grows with the weight of one expert of the group with this ``factor``."""
    without, slope = 1.0, slopes[1]
    for degree in range(1, len(factor) - 1):
        without = factor[degree] - weight * without
        slope += without * slopes[degree + 1]
    return float(slope)


@kernel
def router_weights(shares: FloatArray, active: int, groups: int, active_groups: int, rounds: int) -> FloatArray:
    """(E,) weights under which the expected selections of experts come to ``shares`` (of sum 1) as near as can be.

    Each round multiplies every weight by its target over what came of it (iterative proportional fitting).
    """
    experts = len(shares)
    target = np.minimum(np.maximum(shares, 1e-6 / experts) * active, _MOST_LIKELY)
    weights = target / (1.0 - target)
    factors, slopes = np.empty((groups, active + 1)), np.empty((groups, active + 1))
    size = experts // groups
    for _ in range(rounds):
        # loads that no router draws would drive some weights to nothing
        weights = np.maximum(weights * (active / weights.sum()), _LEAST_WEIGHT)
        _group_factors(weights, factors)
        total = _group_slopes(factors, active_groups, slopes)
        worst = 0.0
        for expert in range(experts):
            group = expert // size
            likely = weights[expert] * _slope(weights[expert], factors[group], slopes[group]) / total
            # shares that no weights reach would drive them out of range
            ratio = target[expert] / max(likely, 1e-3 * target[expert])
            worst = max(worst, abs(ratio - 1.0))
            weights[expert] *= ratio
        if worst < 1e-4:
            break
    return np.asarray(weights * (active / weights.sum()))


@inner
def all_sets(weights: FloatArray, active: int, groups: int, active_groups: int) -> float:
    """The weight of all sets of experts that a token can select."""
    factors, slopes = np.empty((groups, active + 1)), np.empty((groups, active + 1))
    _group_factors(weights, factors)
    total: float = _group_slopes(factors, active_groups, slopes)
    return total


@inner
def node_needs(
    weights: FloatArray,
    served: FloatArray,
    router: tuple[int, int, int],
    needs: FloatArray,
    slopes: FloatArray,
    with_slopes: bool,
) -> None:
    """Fill (N, N) ``needs[m, n]``: how likely a token from m needs another node n; 0 on the diagonal.

    ``served`` (E, N, N), see ``served_shares``; ``router`` is (k, H, a).  ``slopes`` (E, N, N): how the need grows
    with ``served``, filled if ``with_slopes``; exact for a change of one expert, first-order for more.  Where all
    sources are alike (``even_shares``) there is one row for all of them, without a diagonal.
    """
    active, groups, active_groups = router
    experts, sources, nodes = served.shape
    size = experts // groups
    factors, group_slopes = np.empty((groups, active + 1)), np.empty((groups, active + 1))
    left_out = np.empty(experts)
    everything = all_sets(weights, active, groups, active_groups)
    for source in range(sources):
        for node in range(nodes):
            if node == source and sources > 1:
                needs[source, node] = 0.0
                continue
            for expert in range(experts):
                left_out[expert] = weights[expert] * (1.0 - served[expert, source, node])
            _group_factors(left_out, factors)
            missed = _group_slopes(factors, active_groups, group_slopes)
            needs[source, node] = 1.0 - missed / everything
            if with_slopes:
                for expert in range(experts):
                    group = expert // size
                    slope = _slope(left_out[expert], factors[group], group_slopes[group])
                    slopes[expert, source, node] = weights[expert] * slope / everything


@inner
def measured_needs(
    shares: FloatArray, pairs: FloatArray, active: int, served: FloatArray, needs: FloatArray, slopes: FloatArray
) -> None:
    """Fill ``needs`` and ``slopes`` as ``node_needs`` does, from measured pairs of experts that tokens selected.

    ``pairs`` (E, E): how likely a token selects both, 0 on the diagonal; its sum is k(k - 1).  The number of a
    token's selections that a node serves gets its mean and variance and is taken as beta-binomial: exact for k = 2,
    and for independent selections.
    """
    experts, sources, nodes = served.shape
    for source in range(sources):
        for node in range(nodes):
            if node == source and sources > 1:
                needs[source, node] = 0.0
                continue
            share = together = 0.0
            with_others = np.zeros(experts)
            for expert in range(experts):
                here = served[expert, source, node]
                if here > 0.0:
                    share += shares[expert] * here
                    with_others += here * pairs[expert]
            for expert in range(experts):
                together += with_others[expert] * served[expert, source, node]
            needs[source, node], by_share, by_pairs = _beta_binomial_need(share, together, active)
            for expert in range(experts):
                slopes[expert, source, node] = by_share * shares[expert] + by_pairs * 2.0 * with_others[expert]


@inner
def _beta_binomial_need(share: float, together: float, active: int) -> tuple[float, float, float]:
    """How likely any of k selections falls to a node, and its slopes by ``share`` and by ``together``.

    Each does with probability ``share``, ``together`` ordered pairs of them on average.  Beta-binomial with mean p
    and correlation c: ``1 - prod_(i < k) ((1 - p)(1 - c) + i c) / (1 - c + i c)``.
    """
    if share <= 1e-12 or share >= 1.0 - 1e-12:
        return min(max(share, 0.0), 1.0), 1.0 * active, 0.0
    if active == 1:
        return share, 1.0, 0.0
    spread, possible = share * (1.0 - share), active * (active - 1)
    correlation = (together / possible - share * share) / spread
    least = -0.999 * (1.0 - share) / (active - 2.0 + share)
    free = least < correlation < _MOST_CORRELATED
    correlation = min(max(correlation, least), _MOST_CORRELATED)
    missed, by_share, by_correlation = 1.0, 0.0, 0.0
    for index in range(active):
        above = (1.0 - share) * (1.0 - correlation) + index * correlation
        below = 1.0 - correlation + index * correlation
        missed *= above / below
        by_share -= (1.0 - correlation) / above
        by_correlation += (index - 1.0 + share) / above - (index - 1.0) / below
    if free:
        by_share += by_correlation * (-2.0 * share - correlation * (1.0 - 2.0 * share)) / spread
    return 1.0 - missed, -missed * by_share, -missed * by_correlation / (possible * spread) * free


@kernel
def rank_needs(
    weights: FloatArray, held: IntArray, parts: FloatArray, router: tuple[int, int, int], needs: FloatArray
) -> None:
    """Fill (G,) how likely a token, of whatever node, needs each rank; ``held`` (G, slots of a rank).

    ``parts`` (G, slots of a rank): the share of its expert's selections that each slot serves.
    """
    active, groups, active_groups = router
    factors, group_slopes = np.empty((groups, active + 1)), np.empty((groups, active + 1))
    everything = all_sets(weights, active, groups, active_groups)
    for rank in range(len(held)):
        left_out = weights.copy()
        for slot in range(held.shape[1]):
            left_out[held[rank, slot]] -= weights[held[rank, slot]] * parts[rank, slot]
        _group_factors(left_out, factors)
        needs[rank] = 1.0 - _group_slopes(factors, active_groups, group_slopes) / everything
