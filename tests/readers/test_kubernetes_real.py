"""Lists and labels of real Kubernetes nodes."""

from __future__ import annotations

from typing import Any

import pytest

from readers.frame.facts import NameKind
from readers.frame.reading import Format
from tests.readers.kubernetes_samples import LABELS, NODES, codes, hosts
from tests.readers.real_files import real, understood


@pytest.mark.parametrize(
    ("file", "form", "count", "spot", "expected_codes"),
    [
        (
            "aws_eks_topology_labels_dump.json",
            NODES,
            3,
            {"labels": {"level1": "nn-6666666666example", "level3": "nn-4444444444example", "zone": "us-west-2b"}},
            [],
        ),
        ("gfd_labels_h100_nvl_vm.json", LABELS, 1, {"gpu_count": 1}, ["no-node-name"]),
        ("mig_labels_partial.json", LABELS, 1, {"gpu_count": None, "gpu_in_slices": True}, ["mig", "no-node-name"]),
        (
            "oke_gb300_four_workers_labels.txt",
            LABELS,
            1,
            {"scale_up_domain": "a2221497-dbce-4964-8826-684c3694fd45.2478"},
            ["no-node-name"],
        ),
    ],
)
def test_real_files(file: str, form: Format, count: int, spot: dict[str, Any], expected_codes: list[str]) -> None:
    """Every real file gives its nodes, one figure of them, and the doubts that it deserves."""
    source = real(f"topology/kubernetes/{file}")
    read = understood(form, source)
    assert len(read.facts) == count
    assert read.refusals == ()
    assert codes(read) == expected_codes
    fact = hosts(read)[min(1, count - 1)]
    for name, value in spot.items():
        said = getattr(fact, name)
        assert (dict(said) | value == said) if isinstance(value, dict) else said == value


def test_nodes_of_a_real_dump_share_only_the_upper_layer() -> None:
    """Layer 1 of AWS is the top: two nodes that share it alone are on different leaves."""
    second, third = hosts(understood(NODES, real("topology/kubernetes/aws_eks_topology_labels_dump.json")))[1:]
    assert second.labels["level3"] == third.labels["level3"]
    assert second.labels["leaf"] != third.labels["leaf"]
    assert second.origin.first_line == 16
    assert third.names[1].kind is NameKind.INSTANCE
