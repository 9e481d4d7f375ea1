"""``meshwright sensitivity``: tables of plans by GPUs and of changes, the same as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from cluster_models.training.plan import NoPlan
from cluster_models.training.sensitivity import Sensitivity
from solver.sensitivity import sensitivity
from tests.app.command_files import WORKLOAD


def test_plans_by_gpus_and_changes_are_shown_and_are_the_same_as_json(
    files: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fastest plan ends the front, and an overlap that pays is written as its user would; searched for once."""
    Path("workload.yaml").write_text(WORKLOAD + "pinned: {micro_batch: 1, context: 1, tensor: 4}\n")
    seen: list[Sensitivity | NoPlan] = []

    def once(*asked: Any, **callbacks: Any) -> Sensitivity | NoPlan:
        if not seen:
            seen.append(sensitivity(*asked, **callbacks))
        return seen[0]

    monkeypatch.setattr("app.cli.planning.sensitivity.sensitivity", once)
    assert main(["sensitivity", *files, "--time-limit", "4"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("On so many GPUs", "What would change the fastest", "one more node", "overlap_tensor: true"):
        assert words in shown
    assert main(["sensitivity", *files, "--time-limit", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    gpus = [point["gpus"] for point in found["front"]]
    assert gpus == sorted(gpus)
    assert {effect["change"] for effect in found["effects"]} == {"node", "links", "memory", "overlap_tensor"}
    assert all(point["bound_step_time_s"] <= point["step_time_s"] for point in found["front"])


def test_nothing_is_compared_where_nothing_fits(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The same words and exit code as of a plan."""
    larger = [name.replace("llama-3-8b", "llama-3.1-405b") for name in files]
    assert main(["sensitivity", *larger]) == 3
    assert "no plan fits" in capsys.readouterr().err
