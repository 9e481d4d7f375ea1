"""The command that brings the map of one workload to a balance under the counts of another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.rebalancing import changed_slots, main
from benchmarks.routing_files import generated
from cluster_models.training.expert_slots import ExpertSlots


def test_moves_are_counted_beside_a_complete_new_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Targets are reached with fewer moves than a new map needs, and never with fewer than the least."""
    for name, seed in (("old", 1), ("new", 2)):
        loads = generated(name, 3, 32, seed, 0.5).loads.tolist()
        (tmp_path / f"{name}.json").write_text(json.dumps({"logical_count": loads}), encoding="utf-8")
    files = ["--running", str(tmp_path / "old.json"), "--loads", str(tmp_path / "new.json")]
    arguments = [*files, "--gpus", "4", "--nodes", "2", "--slots", "36", "--target", "0.9", "0.95"]
    assert main([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    for row in result["targets"]:
        assert row["balancedness"] >= row["target"] > result["before"]
        assert row["least_moves"] <= row["moves"] < result["complete_new_map"]
    assert main(arguments) == 0
    assert "a complete new map" in capsys.readouterr().out
    assert main([*files, "--gpus", "5", "--slots", "36"]) == 2


def test_ranks_of_a_new_map_are_matched_to_the_running_ones() -> None:
    """Two maps that differ in the order of ranks and one expert: two slots change."""
    running = ExpertSlots((0,), ((0, 1, 2, 3, 4, 5),), 6, 3)
    assert changed_slots(running, ExpertSlots((0,), ((4, 5, 0, 2, 1, 3),), 6, 3)) == 2
