"""Scale-up domains that a token needs for its experts where nobody counted what a router selects."""

from __future__ import annotations

from functools import lru_cache
from math import comb, prod
from typing import Final

from cluster_models.model.experts import Experts

KEPT: Final = 512


@lru_cache(maxsize=KEPT)
def even_crossing(experts: Experts | None, domains: int, holders: int) -> float:
    """Other domains of ``domains`` that a token needs, experts being selected alike and spread over ``holders``.

    A token selects k of E experts without replacement: none of the E/N of a domain with the probability
    C(E - E/N, k) / C(E, k).  A router that opens M of G groups of consecutive experts (DeepSeek-V3, arXiv
    2412.19437, section 2.1.2) selects among those of M groups; j of the groups of a domain are among them by the
    hypergeometric law, a domain of less than a group has its own opened with M/G.  Domains that do not hold whole
    groups, or whole parts of one, count as without groups.
    """
    if experts is None or domains == 1:
        return 0.0
    held = experts.count / min(domains, holders)
    missed = _missed(float(experts.count), held, experts.active)
    groups, opened = experts.router_groups, experts.active_groups
    size = experts.count / groups
    among = opened * size
    if opened < groups and held >= size and not held % size:
        own = round(held / size)
        open_own = range(max(0, opened + own - groups), min(own, opened) + 1)
        ways = {j: comb(own, j) * comb(groups - own, opened - j) for j in open_own}
        missed = sum(ways[j] * _missed(among, j * size, experts.active) for j in open_own) / comb(groups, opened)
    elif opened < groups and not size % held:
        missed = 1.0 - opened / groups * (1.0 - _missed(among, held, experts.active))
    return (domains - 1) * (1.0 - missed)


def _missed(among: float, held: float, active: int) -> float:
    """Probability that none of ``active`` different ones of ``among`` is one of those ``held``."""
    return prod(max(0.0, among - held - i) / (among - i) for i in range(min(active, int(among))))
