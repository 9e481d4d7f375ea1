"""The shipped GPU and node kinds."""

from __future__ import annotations

import csv
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from cluster_models.cluster.catalogue import gpu_kind, gpu_kinds, node_kind, node_kinds
from cluster_models.cluster.gpus import UNTHROTTLED_SHARE, Precision
from cluster_models.errors import InvalidCluster
from cluster_models.units import GIB

SPECS = Path(__file__).parents[3] / "shared" / "data" / "gpu_specs.csv"
SPLIT = {"GH200-96/144GB": ("GH200-96GB", "GH200-144GB"), "MI250X": ("MI250X-GCD",)}


def test_the_h100_is_what_its_data_sheet_and_driver_say() -> None:
    """One entry checked by hand: half of the 900 GB/s printed, 81559 MiB, 794 of 989 TFLOP/s."""
    h100 = gpu_kind("H100-SXM5-80GB")
    assert h100.scale_up_bytes_per_s == 450e9
    assert h100.memory_bytes == 81559 * 2**20
    assert h100.peak_flops == {Precision.BF16: 989e12, Precision.FP16: 989e12, Precision.FP8: 1979e12}
    assert h100.achievable_fraction == pytest.approx(794 / 989)
    assert h100.achievable_source.startswith("measured")


def test_every_kind_cites_its_source_and_says_when_its_efficiency_is_estimated() -> None:
    """No figure without a source; kinds without a measured matrix product say that theirs is estimated."""
    for kind in gpu_kinds().values():
        assert kind.source
        assert kind.achievable_source.split(":")[0] in {"measured", "estimated"}
    assert gpu_kind("V100-SXM2-16GB").achievable_source.startswith("estimated")
    assert all(kind.source for kind in node_kinds().values())


def test_memory_never_exceeds_the_binary_reading_of_the_name() -> None:
    """80 GB of a data sheet is at most 80 GiB of memory, and at least 80 GB less two per cent."""
    for name, stated in (("A100-SXM4-80GB", 80), ("H100-SXM5-80GB", 80), ("L40S", 48), ("B200-SXM-180GB", 180)):
        assert 0.98 * stated * 1e9 <= gpu_kind(name).memory_bytes <= stated * GIB


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("H100", "H100-SXM5-80GB"),
        ("A100-80GB", "A100-SXM4-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("nvidia a100-sxm4-40gb", "A100-SXM4-40GB"),
        ("h200_sxm", "H200-SXM-141GB"),
        ("Tesla T4", "T4"),
        ("nvidia-h100-80gb", "H100-SXM5-80GB"),
        ("nvidia-h100-mega-80gb", "H100-SXM5-80GB"),
        ("nvidia-h200-141gb", "H200-SXM-141GB"),
        ("nvidia-tesla-a100", "A100-SXM4-40GB"),
        ("nvidia-a100-80gb", "A100-SXM4-80GB"),
        ("nvidia-gb200", "GB200"),
    ],
)
def test_usual_spellings_find_their_kind(written: str, name: str) -> None:
    """Short names, driver product names and other dashes or case mean the same GPU."""
    assert gpu_kind(written).name == name


def test_an_unknown_kind_names_the_close_ones() -> None:
    """A typing error is answered with what may have been meant."""
    with pytest.raises(InvalidCluster) as caught:
        gpu_kind("H100-SXM6", field="nodes[3].gpu_kind")
    assert caught.value.field == "nodes[3].gpu_kind"
    assert "H100-SXM5-80GB" in caught.value.remedy
    with pytest.raises(InvalidCluster, match=r"p5en\.48xlarge"):
        node_kind("p5en")


def test_a_node_kind_has_the_figures_of_its_maker() -> None:
    """A DGX is sold with two kinds of GPU, a cloud instance with one."""
    dgx = node_kind("DGX H100/H200")
    assert (dgx.gpu_count, dgx.nics.count, dgx.nics.bytes_per_s) == (8, 8, 50e9)
    assert dgx.gpu_kinds == ("H100-SXM5-80GB", "H200-SXM-141GB")
    assert node_kind("p5.48xlarge").gpu_kinds == ("H100-SXM5-80GB",)


def test_node_kinds_only_name_known_gpu_kinds() -> None:
    """Every GPU kind that a node kind names exists."""
    assert {name for node in node_kinds().values() for name in node.gpu_kinds} <= set(gpu_kinds())


@pytest.mark.skipif(not SPECS.exists(), reason="the gathered specifications are not beside this repository")
def test_the_catalogue_holds_every_gathered_kind() -> None:
    """All 31 gathered kinds are there with their peak, bandwidth and power."""
    for row in csv.DictReader(SPECS.open(encoding="utf-8")):
        for name in SPLIT.get(row["name"], (row["name"],)):
            kind = gpu_kinds()[name]
            share = 0.5 if name == "MI250X-GCD" else 1.0
            assert kind.power_watts == share * float(row["tdp_w"])
            if row["bf16_dense_tflops"]:
                assert kind.peak_flops[Precision.BF16] == share * float(row["bf16_dense_tflops"]) * 1e12
            else:
                assert Precision.BF16 not in kind.peak_flops
            assert kind.verified is (row["confidence"] == "v")


def test_a_kind_of_a_measured_process_is_judged_by_its_power() -> None:
    """An H20 has the power of 3.8 H100 for each FLOP and no clock to lose; a PCIe card has two thirds of it."""
    measured = gpu_kind("H100-SXM5-80GB").achievable_fraction
    assert gpu_kind("H20-96GB").achievable_fraction == UNTHROTTLED_SHARE
    assert gpu_kind("H800-SXM-80GB").achievable_fraction == pytest.approx(measured)
    scarce = gpu_kind("H100-PCIe-80GB").achievable_fraction
    assert scarce == pytest.approx(measured * (350 / 756 / (700 / 989)) ** 0.4)
    assert gpu_kind("H100-SXM5-96GB-HBM2e").achievable_fraction == pytest.approx(measured * (500 / 700) ** 0.4)


def test_a_graphics_card_is_judged_by_its_own_products_or_those_of_its_chip() -> None:
    """Ada at 350 W keeps less than an H100's process allows, its 300 W card less by the power; medians stay."""
    card = gpu_kind("L40S")
    assert card.achievable_fraction == pytest.approx(269 / 362)
    assert card.achievable_source.startswith("measured: ")
    scarce = gpu_kind("RTX 6000 Ada").achievable_fraction
    assert scarce == pytest.approx(269 / 362 * (300 / 364 / (350 / 362)) ** 0.4)
    assert gpu_kind("RTX PRO 6000 Server").achievable_fraction == pytest.approx(413 / 468)
    assert gpu_kind("A10").achievable_fraction < 413 / 468


def test_usual_hosts_are_those_of_kinds_of_the_catalogue() -> None:
    """Each kind has one host at most, with a source; PCIe that GPUs share is cut among them, NVLink-C2C is not."""
    tables = tomllib.loads((resources.files("cluster_models") / "data" / "hosts.toml").read_text("utf-8"))
    named = [kind for entry in tables.values() for kind in entry["gpu_kinds"]]
    assert set(named) <= set(gpu_kinds())
    assert len(named) == len(set(named))
    assert all(entry["source"] for entry in tables.values())
    a100, grace, card = (gpu_kinds()[name] for name in ("A100-SXM4-80GB", "GB200", "L40S"))
    assert a100.host_share.link_bytes_per_s == pytest.approx(31.5e9 / 2, rel=0.01)
    assert a100.host_share.memory_bytes_per_s == pytest.approx(51.2e9)
    assert grace.host_share.link_bytes_per_s == 225e9
    assert card.host_share.source.startswith("other server")
