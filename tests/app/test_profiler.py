"""The script that measures a GPU node: its pure parts, its language level, and a real run on CPU tensors."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from app.documents.hardware_profile import HardwareProfileDocument
from app.documents.reading import parse_text, problems_of, read_document
from app.profiler import gpu_profile
from app.profiler.gpu_profile import attention_shapes, group_sizes, matmul_shapes, summary
from app.profiler.script import script_text
from cluster_models.errors import InvalidInput
from tests.app.calibration_bodies import profile_body

SCRIPT = Path(gpu_profile.__file__)
TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not TORCH, reason="PyTorch is not installed here; the script itself needs it")


def test_each_extent_goes_down_alone() -> None:
    """For m, n and k there are products in which only that extent is small, and others that fill no tile."""
    shapes = matmul_shapes(8192)
    for position in range(3):
        alone = {
            shape[position]
            for shape in shapes
            if all(shape[other] == 8192 for other in range(3) if other != position) and shape.batch == 1
        }
        assert {64, 128, 256, 512, 1024, 2048, 4096, 8192} <= alone
        assert any(extent % 128 for extent in alone)
    assert any(shape.batch > 1 for shape in shapes)
    assert max(Counter(shapes).values()) == 1


def test_attention_varies_sequence_and_head_size_one_at_a_time() -> None:
    """Longer sequences come with fewer of them, so that each call has the same tokens."""
    shapes = attention_shapes(16384)
    assert {size for _, _, size, sequence in shapes if sequence == 4096} == {32, 64, 96, 128, 256}
    by_length = [(batch, sequence) for batch, _, size, sequence in shapes if size == 128]
    assert {batch * sequence for batch, sequence in by_length} == {16384}


def test_groups_are_powers_of_two_the_node_and_all_ranks() -> None:
    """Two nodes of 6 GPUs: 2 and 4 of a node, the node, and both."""
    assert group_sizes(12, 6) == [2, 4, 6, 12]
    assert group_sizes(1, 1) == []
    assert group_sizes(2, 2) == [2]


def test_a_summary_has_median_and_tenths() -> None:
    """For 0..10 in any order: 5, and 1 and 9 beside it."""
    for times in ([*range(11)], [*range(10, -1, -1)]):
        assert summary(list(map(float, times))) == {"median_s": 5.0, "low_s": 1.0, "high_s": 9.0, "samples": 11}


def test_the_script_is_python_3_8_and_needs_only_torch() -> None:
    """It parses as Python 3.8, and imports nothing outside the standard library by name."""
    tree = ast.parse(script_text(), feature_version=(3, 8))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= set(sys.stdlib_module_names)
    assert "removeprefix" not in script_text()


@pytest.mark.skipif(TORCH, reason="PyTorch is installed here")
def test_without_torch_one_line_says_so(tmp_path: Path) -> None:
    """Exit code 2, a sentence on standard error, and no file."""
    done = subprocess.run(
        [sys.executable, SCRIPT, "--output", tmp_path / "profile.json"], capture_output=True, check=False, text=True
    )
    assert done.returncode == 2
    assert "PyTorch cannot be loaded" in done.stderr
    assert not (tmp_path / "profile.json").exists()


@needs_torch
@pytest.mark.slow
def test_a_quick_run_on_cpu_tensors_gives_a_profile(tmp_path: Path) -> None:
    """The file is a profile by the rules of the document, with every kind of kernel in it."""
    output = tmp_path / "profile.json"
    command = [sys.executable, SCRIPT, "--device", "cpu", "--quick", "--output", output]
    subprocess.run(command, check=True, capture_output=True)
    document = read_document(
        HardwareProfileDocument, parse_text(output.read_text(), what="profile"), what="profile"
    )
    profile = document.to_profile()
    assert not profile.is_gpu
    assert profile.matmuls
    assert profile.streams
    assert profile.launches


def test_a_profile_is_read_as_it_was_written() -> None:
    """Every kernel is there with its figures."""
    body = profile_body()
    profile = read_document(HardwareProfileDocument, json.loads(json.dumps(body)), what="profile").to_profile()
    assert profile.is_gpu
    assert [row.time.median_s for row in profile.matmuls] == [row["median_s"] for row in body["matmuls"]]
    assert [row.nbytes for row in profile.streams] == [row["bytes"] for row in body["streams"]]
    assert [row.backward for row in profile.attentions] == [
        row["direction"] == "backward" for row in body["attentions"]
    ]
    assert profile.skipped == (("matmul fp8 sustained", "too large"),)
    assert profile.facts["host"] == "node-7"


def test_times_out_of_order_are_named() -> None:
    """A median above its own 90th percentile is a mistake of the file; each entry is named."""
    body = profile_body()
    for row in itertools.islice(body["matmuls"], 2):
        row["low_s"] = 2 * row["median_s"]
    with pytest.raises(InvalidInput) as caught:
        read_document(HardwareProfileDocument, body, what="profile").to_profile()
    assert [problem.field for problem in problems_of(caught.value)] == [
        "matmuls[0].median_s",
        "matmuls[1].median_s",
    ]
