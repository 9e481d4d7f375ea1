"""Domains that tokens need for their experts, against drawn selections."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_models.model.catalogue import catalogue_model
from cluster_models.model.experts import Experts
from solver.serving.crossing import even_crossing

DRAWS = 20_000
DEEPSEEK = catalogue_model("deepseek-v3").experts


def drawn(experts: Experts, domains: int) -> float:
    """Mean number of other domains, tokens starting on any with the same probability."""
    random = np.random.default_rng(7)
    scores = random.random((DRAWS, experts.count))
    groups = random.random((DRAWS, experts.router_groups)).argsort(axis=1)[:, : experts.active_groups]
    is_open = np.zeros((DRAWS, experts.router_groups), dtype=bool)
    np.put_along_axis(is_open, groups, values=True, axis=1)
    scores[~np.repeat(is_open, experts.count // experts.router_groups, axis=1)] = 2.0
    chosen = scores.argpartition(experts.active - 1, axis=1)[:, : experts.active]
    needed = np.zeros((DRAWS, domains), dtype=bool)
    np.put_along_axis(needed, chosen // (experts.count // domains), values=True, axis=1)
    return float((needed.sum(axis=1) * (1 - 1 / domains)).mean())


@pytest.mark.parametrize("domains", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("groups", [(1, 1), (8, 4), (4, 1)])
def test_as_many_domains_as_drawn_selections_need(domains: int, groups: tuple[int, int]) -> None:
    """Without a limit, in four groups of eight, and in one of four."""
    experts = Experts(count=64, active=6, hidden=8, router_groups=groups[0], active_groups=groups[1])
    assert even_crossing(experts, domains, domains) == pytest.approx(drawn(experts, domains), rel=0.01)


def test_node_limited_routing_saves_a_third_over_eight_nodes() -> None:
    """A token of DeepSeek-V3 has experts on 3.6 nodes, at most four; on 5.3 without the limit."""
    assert DEEPSEEK is not None
    free = replace(DEEPSEEK, router_groups=1, active_groups=1)
    assert even_crossing(DEEPSEEK, 8, 8) == pytest.approx(3.2, abs=0.05)
    assert even_crossing(free, 8, 8) == pytest.approx(4.65, abs=0.05)


def test_odd_numbers_of_domains_lie_between_their_neighbours() -> None:
    """Experts and groups that domains do not hold whole are shared out evenly."""
    experts = Experts(count=64, active=6, hidden=8)
    assert even_crossing(experts, 4, 4) < even_crossing(experts, 5, 5) < even_crossing(experts, 6, 6)
    assert even_crossing(experts, 1, 1) == even_crossing(None, 8, 8) == 0.0
    assert even_crossing(experts, 4, 2) == 3 * even_crossing(experts, 2, 2)
