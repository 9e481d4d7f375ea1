"""Links that stand out from their class, on real measurements and on planted ones."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.documents.cluster import ClusterDocument
from app.presentation.sentences import sentence
from cluster_models.links.slow_links import FEWEST_LINKS, SlowLink, rates_of, slow_links
from cluster_models.links.suspicions import suspicions
from cluster_models.links.tables import Recency, link_tables
from tests.cluster_models.clusters import host, sample, snapshot
from tests.test_architecture import ROOT

Rates = dict[tuple[float, float], dict[tuple[str, str], float]]


def _pairs(links: tuple[SlowLink, ...]) -> set[tuple[str, str]]:
    return {(link.source, link.destination) for link in links}


@pytest.fixture(scope="module")
def shipped() -> tuple[SlowLink, ...]:
    """The slow links of the shipped cluster of 17 nodes."""
    text = (ROOT / "examples" / "clusters" / "h100-17-nodes.yaml").read_text()
    document = ClusterDocument.model_validate(yaml.safe_load(text))
    cluster = document.to_cluster()
    return slow_links(cluster, rates_of(link_tables(document.to_samples(cluster), Recency())))


def test_the_slow_pairs_of_the_shipped_cluster_stand_out(shipped: tuple[SlowLink, ...]) -> None:
    """Eight pairs fall from 13.5 to below 2 GB/s with one flow and large messages; others only with four flows."""
    worst = [link for link in shipped if link.flows == 1]
    numbers = [(1, 4), (2, 3), (2, 6), (4, 6), (4, 9), (11, 12), (13, 16), (13, 17)]
    expected = {(f"cnode2-{a:03}", f"cnode2-{b:03}") for a, b in numbers}
    assert _pairs(tuple(worst)) == expected | {(b, a) for a, b in expected}
    assert all(1.4e9 < link.bytes_per_s < 2e9 and 13e9 < link.class_bytes_per_s < 14e9 for link in worst)
    assert {link.flows for link in shipped} == {1, 4}


def test_ninety_one_planted_links_among_8128_are_found_and_no_other() -> None:
    """At 30 % of their class, where the leaves differ and every link strays by 3 %."""
    draw = np.random.default_rng(1)
    nodes = [host(f"n{index}", leaf=f"leaf-{index // 32}") for index in range(128)]
    pairs = list(combinations(range(128), 2))
    planted = {pairs[index] for index in draw.choice(len(pairs), 91, replace=False)}
    rates = {
        (f"n{a}", f"n{b}"): (42e9 if a // 32 == b // 32 else 30e9)
        * float(draw.normal(1, 0.03))
        * (0.3 if (a, b) in planted else 1)
        for a, b in pairs
    }
    found = slow_links(snapshot(nodes).cluster, {(8.0, 2.0**28): rates})
    assert _pairs(found) == {(f"n{a}", f"n{b}") for a, b in planted}


def test_a_class_that_strays_by_nature_has_no_outliers() -> None:
    """Rates spread evenly over a factor of three: the slowest is not a fault."""
    pairs = [f"{a}{b}" for a, b in combinations("abcdefghij", 2)]
    rates = {(pair[0], pair[1]): 10e9 * (1 + 2 * index / len(pairs)) for index, pair in enumerate(pairs)}
    cluster = snapshot([host(name) for name in "abcdefghij"]).cluster
    assert slow_links(cluster, {(1.0, 2.0**28): rates}) == ()


def test_a_size_that_few_links_were_measured_at_is_judged_by_the_curve() -> None:
    """One link alone at 64 MiB, between 32 and 128 MiB where all have 20 and 40 GB/s."""
    nodes = [host(name) for name in "abcd"]
    pairs = ["ab", "ac", "ad", "bc", "bd", "cd"]
    samples = [sample(pair[0], pair[1], rate, mib=mib) for pair in pairs for mib, rate in ((32, 20), (128, 40))]
    samples.append(sample("a", "b", 7, mib=64))
    (link, _) = slow_links(snapshot(nodes).cluster, rates_of(link_tables(samples, Recency())))
    assert (link.source, link.destination) == ("a", "b")
    assert link.class_bytes_per_s == pytest.approx((20e9 * 40e9) ** 0.5, rel=0.01)


@given(scale=st.floats(1e-3, 1e3), factor=st.floats(0.05, 0.5))
def test_units_change_no_verdict(scale: float, factor: float) -> None:
    """The same links stand out in any unit, by the same share."""
    names = "abcdef"
    rates: Rates = {(1.0, 2.0**28): dict.fromkeys(combinations(names, 2), 1e9 * scale)}
    rates[1.0, 2.0**28]["a", "b"] *= factor
    (link,) = slow_links(snapshot([host(name) for name in names]).cluster, rates)
    assert link.share == pytest.approx(factor)


def test_too_few_links_have_no_class_to_fall_behind() -> None:
    """Two of four links differ by ten: nobody knows which is at fault."""
    rates = dict(zip(combinations("abc", 2), (1e9, 10e9, 10e9), strict=True))
    assert len(rates) < FEWEST_LINKS
    assert slow_links(snapshot([host(name) for name in "abc"]).cluster, {(1.0, 2.0**28): rates}) == ()


def test_one_sentence_names_the_slowest_and_counts_the_rest() -> None:
    """Seven slow pairs of one node among 105: five are named."""
    names = [f"n{index:02}" for index in range(15)]
    samples = [
        sample(a, b, 5 if (a, b) in {("n00", f"n{k:02}") for k in range(1, 8)} else 40)
        for a, b in combinations(names, 2)
    ]
    told = sentence(*suspicions(snapshot([host(name) for name in names], samples)))
    assert told.startswith("7 node pairs reach less than 60 % of what others of the same class do")
    assert "n00 to n01 5 GB/s where 40 is usual (1 flow)" in told
    assert "and 2 more" in told
