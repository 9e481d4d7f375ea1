"""Kernel benchmark: its cases are those of real plans, and its comparison is plain arithmetic."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kernel_cases import (
    FAMILIES,
    Attention,
    Direction,
    Grouped,
    Launch,
    Product,
    adam,
    as_row,
    expert_products,
    from_row,
    linear_shapes,
    planned_kernels,
    products,
    small_kernels,
)
from benchmarks.kernels import SHIPPED, compare, main, predicted_s, write_document
from cluster_models.catalogue import gpu_kind
from cluster_models.errors import InvalidConfiguration
from cluster_models.gpus import Precision
from cluster_models.model_catalogue import catalogue_model
from solver.calibration import calibration_of
from solver.compute import matmul_s, processor

H100 = gpu_kind("H100")
CALIBRATION = calibration_of(H100)
ONE_LAUNCH = '{"format": 1, "machine": {"device_name": "H100", "source": ""}, "kernels": [%s]}'


def _document(**machine: Any) -> dict[str, Any]:
    described = {"source": "made up for a test", "device_name": "NVIDIA H100 80GB HBM3"} | machine
    return {"format": 1, "machine": described, "kernels": [], "skipped": []}


def test_llama_70b_over_eight_gpus_has_these_products() -> None:
    """By hand: 8 of 64 heads and 1 of 8 key/value heads of 128, an eighth of twice 28672, and the way back."""
    shapes = linear_shapes(catalogue_model("llama-3-70b"), tokens=4096, tensor=8)
    assert shapes == [(4096, 1280, 8192), (4096, 8192, 1024), (4096, 7168, 8192), (4096, 8192, 3584)]


def test_the_three_products_of_a_linear_layer_do_the_same_arithmetic() -> None:
    """Forward, input gradient and weight gradient each take 2mnk FLOP, on permuted extents."""
    made = [product for product in products(10, 20, 30, tensor=1) if product.precision is Precision.BF16]
    assert [(p.m, p.n, p.k) for p in made] == [(10, 20, 30), (10, 30, 20), (30, 20, 10)]
    assert len({p.direction for p in made}) == 3


def test_experts_share_the_tokens_that_reach_their_rank() -> None:
    """Mixtral over 4 expert ranks: 2 experts each, which see 4096 tokens x 2 choices between them."""
    forward, *_ = expert_products(catalogue_model("mixtral-8x7b"), tokens=4096, ranks=(4,))
    assert forward == Grouped(Direction.FORWARD, groups=2, m=4096, n=2 * 14336, k=4096)


def test_planned_kernels_cover_every_family_once_and_suit_eight_bit_units() -> None:
    """No kernel twice, none missing a family, and 8-bit products only with extents that are multiples of 16."""
    planned = planned_kernels()
    assert len(planned) == len(set(planned))
    assert {type(kernel) for kernel in planned} == set(FAMILIES.values())
    eight_bit = [kernel for kernel in planned if isinstance(kernel, Product) and kernel.precision is Precision.FP8]
    assert eight_bit
    assert all(extent % 16 == 0 for product in eight_bit for extent in (product.m, product.n, product.k))


def test_kernels_survive_their_way_through_json() -> None:
    """What is written is read back equal, further keys left aside."""
    for kernel in small_kernels():
        row = json.loads(json.dumps({**as_row(kernel), "median_s": 1.0}))
        assert from_row(row) == kernel


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"family": "sorting"}, "kernels.family"),
        ({"family": "launch"}, "kernels.queued"),
        ({**as_row(Attention(Direction.FORWARD, 1, 1, 64, 64)), "direction": "sideways"}, "kernels"),
    ],
)
def test_a_row_that_is_no_kernel_is_named(row: dict[str, Any], field: str) -> None:
    """Unknown family, missing extent, unknown direction."""
    with pytest.raises(InvalidConfiguration) as raised:
        from_row(row)
    assert raised.value.field == field


def test_predictions_are_the_cost_models_own() -> None:
    """A product equals ``matmul_s``, Adam its bytes at the memory's rate, a launch the fitted launch."""
    chip = processor(H100, Precision.FP8, CALIBRATION)
    product = Product(Precision.FP8, Direction.FORWARD, 4096, 8192, 1024, tensor=8)
    assert predicted_s(product, H100, CALIBRATION) == float(matmul_s(chip, 4096.0, 8192.0, 1024.0))
    adam_s = predicted_s(adam(10**9), H100, CALIBRATION)
    assert adam_s == pytest.approx(28e9 / chip.memory_bytes_per_s + CALIBRATION.kernel_s)
    assert predicted_s(Launch(10), H100, CALIBRATION) == CALIBRATION.kernel_s


def test_grouped_products_pay_one_launch_and_the_grouped_share() -> None:
    """Eight experts take eight single products at their share of the rate, launched once."""
    launch, share = CALIBRATION.kernel_s, CALIBRATION.grouped_share
    chip = processor(H100, Precision.BF16, CALIBRATION)
    single = float(matmul_s(chip, 1024.0, 4096.0, 2048.0)) - launch
    grouped = predicted_s(Grouped(Direction.FORWARD, 8, 1024, 4096, 2048), H100, CALIBRATION)
    assert grouped == pytest.approx(8 * single / share + launch)


def test_a_measurement_twice_as_fast_as_predicted_is_an_error_of_one(tmp_path: Path) -> None:
    """Errors are predicted over measured minus one, summed up by family."""
    kernel = Attention(Direction.BACKWARD, 8, 1, 128, 4096)
    document = _document()
    document["kernels"] = [{**as_row(kernel), "median_s": predicted_s(kernel, H100, CALIBRATION) / 2.0}]
    write_document(tmp_path / "half.json", document)
    scores = {line.group: line for line in compare(tmp_path / "half.json").scores}
    assert set(scores) == {"attention backward", "attention backward head size 128"}
    assert scores["attention backward"].bias == pytest.approx(1.0)


def test_published_products_are_predicted_within_an_eighth() -> None:
    """The shipped figures of A100 and H100 lie within 12 % on average."""
    files = sorted(SHIPPED.glob("kernels_*.json"))
    assert files
    for path in files:
        scores = {line.group: line for line in compare(path).scores}
        assert scores["product bf16"].rows > 100
        assert scores["product bf16"].mean_absolute < 0.12


def test_json_report_names_file_kind_and_scores(capsys: pytest.CaptureFixture[str]) -> None:
    """Without arguments every shipped file is compared."""
    assert main(["--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {part["gpu_kind"] for part in printed} >= {"A100-SXM4-80GB", "H100-SXM5-80GB"}
    assert all(part["source"] and part["scores"] for part in printed)


@pytest.mark.parametrize(
    "content",
    [
        "not json",
        "[]",
        '{"format": 99}',
        '{"format": 1, "kernels": []}',
        ONE_LAUNCH % '{"family": "launch", "queued": 1}',
        ONE_LAUNCH % '{"family": "launch", "queued": 1, "median_s": 0}',
    ],
)
def test_a_file_of_another_kind_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    """No traceback, exit status 2, and the file is named: other formats, parts missing, no time at all."""
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    assert main(["--compare", str(path)]) == 2
    assert "other.json" in capsys.readouterr().err


def test_without_pytorch_measuring_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PyTorch is no dependency: its absence is a sentence, and no file is written."""
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["--measure", str(tmp_path / "out.json")]) == 2
    assert "PyTorch" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()


def test_small_kernels_are_measured_on_any_machine_with_pytorch(tmp_path: Path) -> None:
    """Every small kernel runs or says why not, with positive seconds and nothing that names a host."""
    pytest.importorskip("torch", reason="PyTorch is not installed; it is no dependency of the project")
    path = tmp_path / "out.json"
    assert main(["--measure", str(path), "--small"]) == 0
    document = json.loads(path.read_text(encoding="utf-8"))
    assert len(document["kernels"]) + len(document["skipped"]) == len(small_kernels())
    assert {row["family"] for row in document["kernels"]} == set(FAMILIES)
    assert all(0 < row["fastest_s"] <= row["median_s"] <= row["slowest_s"] for row in document["kernels"])
    assert set(document["machine"]) >= {"measured_on", "device_name", "torch"}
