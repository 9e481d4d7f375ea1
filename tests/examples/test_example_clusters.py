"""The shipped example clusters, read as a user's files are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from app.documents.cluster import ClusterDocument
from app.presentation.sentences import sentences
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.links.model import LinkModel, effective_links
from cluster_models.links.suspicions import suspicions

EXAMPLES = Path(__file__).parents[2] / "examples" / "clusters"
SHARED = Path(__file__).parents[3] / "shared" / "data" / "bandwidth"
SWEEP = SHARED / "nccl_pairwise_clusterB_17node_h100_2025-11.csv"


def read(name: str) -> ClusterSnapshot:
    """The snapshot of one example."""
    document = ClusterDocument.model_validate(yaml.safe_load((EXAMPLES / name).read_text("utf-8")))
    cluster = document.to_cluster()
    return ClusterSnapshot("example", cluster, document.to_samples(cluster))


@pytest.fixture(scope="module")
def h100() -> tuple[ClusterSnapshot, LinkModel]:
    """The 17-node cluster and its links."""
    snapshot = read("h100-17-nodes.yaml")
    return snapshot, effective_links(snapshot)


def same_leaf(snapshot: ClusterSnapshot) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Pairs of different nodes on one leaf (N, N)."""
    leaf = np.array([node.labels["leaf"] for node in snapshot.cluster.nodes])
    return (leaf[:, None] == leaf[None, :]) & ~np.eye(len(leaf), dtype=bool)


def test_every_example_cites_its_source_and_gives_links() -> None:
    """No example is without a source, and each yields a model without a missing time."""
    files = sorted(EXAMPLES.glob("*.yaml"))
    assert len(files) >= 3
    for file in files:
        snapshot = read(file.name)
        assert snapshot.cluster.source
        assert np.isfinite(effective_links(snapshot).transfer_s(2**26, 8)).all()


def test_the_two_leaves_of_the_17_nodes_show_in_the_figures(h100: tuple[ClusterSnapshot, LinkModel]) -> None:
    """Eight flows at once get 12.5 GB/s each inside a leaf and 6 to 10.5 across."""
    snapshot, links = h100
    rates = links.bytes_per_s(2.0**30, 8) / 1e9
    inside = same_leaf(snapshot)
    across = ~inside & ~np.eye(len(inside), dtype=bool)
    assert (rates[inside] > 12).all()
    assert (rates[inside] < 12.7).all()
    assert (rates[across] > 5.5).all()
    assert (rates[across] < 10.6).all()


def test_the_pairs_whose_tests_failed_are_estimated_not_zero(h100: tuple[ClusterSnapshot, LinkModel]) -> None:
    """The five pairs whose eight-GPU all-to-all failed are exactly the estimated ones, at their class's pace."""
    _, links = h100
    flagged = {
        (links.nodes[i][-3:], links.nodes[j][-3:])
        for i, j in zip(*np.nonzero(np.triu(links.estimated(8), 1)), strict=True)
    }
    assert flagged == {("002", "008"), ("003", "008"), ("005", "016"), ("007", "016"), ("008", "009")}
    a, b = links.nodes.index("cnode2-002"), links.nodes.index("cnode2-008")
    assert 7e9 < links.bytes_per_s(2.0**28, 8)[a, b] < 10e9


def test_the_17_nodes_warn_of_slow_links_uplinks_and_failed_tests(h100: tuple[ClusterSnapshot, LinkModel]) -> None:
    """Eight flows slow down between the leaves; 18 pairs failed in some test, two of them in all that are kept."""
    told = sentences(suspicions(h100[0]))
    assert len(told) == 4
    assert told[0].startswith("25 node pairs reach less than 60 % of what others of the same class do")
    assert "the uplinks of a leaf are probably oversubscribed" in told[1]
    assert told[2].startswith("18 of 136 node pairs have failed tests")
    assert told[3].startswith("2 of 136 node pairs")


def test_the_16_a100_nodes_are_directed() -> None:
    """All 240 directed pairs were measured; the two directions differ by up to 17 per cent."""
    links = effective_links(read("a100-16-nodes-hdr.yaml"))
    assert not links.estimated(4)[~np.eye(16, dtype=bool)].any()
    rates = links.bytes_per_s(1e8, 4)
    ratio = np.maximum(rates / rates.T, rates.T / rates)
    assert ratio.max() == pytest.approx(1.17, abs=0.01)


@pytest.mark.skipif(not SWEEP.exists(), reason="the gathered sweep is not beside this repository")
def test_the_figures_are_those_of_the_sweep(h100: tuple[ClusterSnapshot, LinkModel]) -> None:
    """Every figure of the example stands in the gathered sweep."""
    known = set()
    for line in SWEEP.read_text("utf-8").splitlines()[1:]:
        a, b, ranks, collective, size, _, _, bus, *_ = line.split(",")
        if bus:
            known.add((a, b, int(ranks), collective, float(size), float(bus)))
    samples = [one for one in h100[0].samples if one.bytes_per_s is not None]
    assert len(samples) > 2500
    for one in samples:
        figure = round((one.bytes_per_s or 0) / 1e9, 6)
        key = (one.source, one.destination, one.ranks_per_node, str(one.collective), one.message_bytes, figure)
        assert key in known
