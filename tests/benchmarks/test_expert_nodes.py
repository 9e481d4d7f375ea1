"""Options of maps over nodes, and what the command prints of them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from benchmarks import experts
from benchmarks.expert_nodes import model_of, rule_of
from benchmarks.routing_files import generated
from solver.experts.dispatch import RouterRule

NOTHING = argparse.Namespace(active=None, router_groups=None, active_groups=None)


def test_counts_of_one_model_bring_its_router() -> None:
    """58 layers of 256 experts are DeepSeek-V3's; what is given goes before."""
    workload = generated("a", 58, 256, 1)
    found = model_of(workload)
    assert found is not None
    assert found[0] == "deepseek-v3"
    assert rule_of(workload, NOTHING) == RouterRule(8, 8, 4)
    given = argparse.Namespace(active=6, router_groups=1, active_groups=None)
    assert rule_of(workload, given) == RouterRule(6, 1, 1)
    assert rule_of(generated("a", 3, 24, 1), NOTHING) == RouterRule(8)


def test_the_command_weighs_nodes_where_there_are_copies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The router, the speed and the nodes crossed are printed beside the map."""
    path = tmp_path / "loads.json"
    path.write_text(json.dumps({"logical_count": generated("a", 2, 64, 1).loads.tolist()}))
    options = ["--loads", str(path), "--gpus", "8", "--nodes", "2", "--slots", "72", "--active", "6", "--json"]
    assert experts.main(options) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["router"] == {"model": None, "active": 6, "groups": 1, "active_groups": 1}
    assert printed["gbit_per_s"] is None
    assert 0 < printed["nodes_crossed"] < 1
    assert printed["balancedness"] <= printed["bound"]
    assert printed["layer_ms_bound"] < printed["layer_ms"]
    assert printed["copy_choice"] is None
    near, anywhere = printed["choices"]["nearest"], printed["choices"]["any"]
    assert near["nodes_crossed"] <= anywhere["nodes_crossed"]
    assert experts.main(options[:-1]) == 0
    assert "nodes weighed: a layer takes" in capsys.readouterr().out
    assert experts.main([*options, "--copy-choice", "nearest"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["copy_choice"] == "nearest"
    assert told["choices"]["nearest"]["nodes_crossed"] == pytest.approx(told["nodes_crossed"])
    assert experts.main([*options, "--active", "0"]) == 2
    assert "router.active" in capsys.readouterr().err
    assert experts.main([*options, "--active", "60"]) == 2
    assert "loads.loads: " in capsys.readouterr().err


def test_one_map_is_compared_under_every_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Routers with and without groups, both choices, both paces and both widths: a gain at each speed."""
    path = tmp_path / "loads.json"
    path.write_text(json.dumps({"logical_count": generated("a", 2, 32, 1).loads.tolist()}))
    options = ["models", "--loads", str(path), "--gpus", "8", "--nodes", "2", "--slots", "40", "--active", "4"]
    options += ["--router-groups", "4", "--active-groups", "2"]
    assert experts.main([*options, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len({tuple(row[part] for part in ("router", "copy_choice", "pace", "dispatch")) for row in rows}) == 16
    assert all(list(row["gains"]) == ["50.0", "100.0", "200.0", "400.0"] for row in rows)
    parts = {"router": "groups", "copy_choice": "nearest", "pace": "busiest node", "dispatch": "8 bits"}
    usual = next(row["gains"] for row in rows if row.items() >= parts.items())
    assert all(gain > 0 for gain in usual.values())
    assert experts.main(options) == 0
    assert len(capsys.readouterr().out.splitlines()) == 18
