"""The command that places experts, the files it reads, and the balancer it is compared with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.eplb import eplb, eplb_global, eplb_hierarchical
from benchmarks.expert_comparison import RULES, compare, page
from benchmarks.experts import main, warm_up
from benchmarks.routing_files import generated, read_workloads
from cluster_models.errors import InvalidInput
from solver.experts.layout import ExpertLayout
from solver.experts.loads import balancedness, replica_counts


def test_the_global_mode_by_hand() -> None:
    """Loads 9, 4, 2, 2 on two ranks of three slots: 9 gets the next copy, and at 4.5 the one after."""
    rows = eplb_global(np.array([[9.0, 4.0, 2.0, 2.0]]), ExpertLayout(2, 1, 6))
    assert replica_counts(rows, 4).tolist() == [[3, 1, 1, 1]]
    # heaviest first: 4 | 3, 3 | 3, then both ranks of 2
    assert balancedness(rows, np.array([[9.0, 4.0, 2.0, 2.0]]), ExpertLayout(2, 1, 6)) == pytest.approx(8.5 / 9)


def test_the_hierarchical_mode_keeps_groups_inside_nodes() -> None:
    """Every expert of a group, and every copy of it, lies on the node of its group."""
    loads, layout = generated("a", 3, 32, 1).loads, ExpertLayout(8, 4, 40)
    rows = eplb_hierarchical(loads, layout, 8)
    nodes = np.arange(40) // 10
    for row in rows:
        assert all(len({nodes[slot] for slot in np.flatnonzero(row // 4 == group)}) == 1 for group in range(8))
        assert set(row) == set(range(32))
    assert (eplb(loads, layout, 8) == rows).all()
    assert (eplb(loads, ExpertLayout(12, 3, 36), 8) == eplb_global(loads, ExpertLayout(12, 3, 36))).all()


def test_every_form_of_counts_is_read(tmp_path: Path) -> None:
    """Zero rows are left out, layers keep their numbers, domains become workloads."""
    forms = {
        "counts": {"logical_count": [[0, 0], [1, 2], [3, 4]]},
        "dump": {"logical_count": [[[0, 0], [1, 2], [3, 4]]]},
        "plain": [[0, 0], [1, 2], [3, 4]],
        "popularity": {"expert_popularity": [[0, 0], [1, 2], [3, 4]]},
    }
    for name, document in forms.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
        (read,) = read_workloads(tmp_path / f"{name}.json")
        assert (read.name, read.layers, read.loads.tolist()) == (name, (1, 2), [[1, 2], [3, 4]])
    domains = {"layers_counted": [0, 7], "domains": {"web": {"expert_counts": [[1, 2], [3, 4]]}}}
    (tmp_path / "d.json").write_text(json.dumps(domains), encoding="utf-8")
    (read,) = read_workloads(tmp_path / "d.json")
    assert (read.name, read.layers) == ("d:web", (0, 7))


@pytest.mark.parametrize("text", ["", "{}", "[]", "[[0, 0]]", "[[1], [2, 3]]", '["a"]', "[[-1, 2]]", "3"])
def test_other_content_is_refused(tmp_path: Path, text: str) -> None:
    """Whatever is wrong, the input is named."""
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput):
        read_workloads(path)


def test_the_command_prints_a_map_for_all_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One row for each layer with experts; the figures are those of the worst workload."""
    paths = []
    for name, seed in (("a", 1), ("b", 2)):
        counts = [[0] * 16, *generated(name, 2, 16, seed).loads.tolist()]
        paths.append(str(tmp_path / f"{name}.json"))
        Path(paths[-1]).write_text(json.dumps({"logical_count": counts}), encoding="utf-8")
    wanted = ["--loads", *paths, "--gpus", "4", "--nodes", "2", "--slots", "20", "--steps", "300", "--json"]
    assert main(wanted) == 0
    first = json.loads(capsys.readouterr().out)
    assert np.array(first["physical_to_logical_map"]).shape == (2, 20)
    assert first["layers"] == [1, 2]
    assert first["balancedness"] == min(first["workloads"].values()) <= first["bound"]
    assert 0.5 <= first["node_local_share"] <= 1
    rows, loads = np.array(first["physical_to_logical_map"]), read_workloads(Path(paths[0]))[0].loads
    assert balancedness(rows, loads, ExpertLayout(4, 2, 20)) == pytest.approx(first["workloads"]["a"])
    assert main(wanted) == 0
    assert json.loads(capsys.readouterr().out)["physical_to_logical_map"] == first["physical_to_logical_map"]


def test_files_of_one_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two files ``a.json`` of two folders are two workloads."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps(generated("a", 1, 8, 1).loads.tolist()), encoding="utf-8")
    assert main(["--loads", str(path), str(path), "--gpus", "4", "--slots", "12", "--steps", "50", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["workloads"]) == {"a", "a (2)"}


def test_layouts_that_cannot_be_end_with_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fewer slots than experts: the message says how many are needed."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps(generated("a", 1, 16, 1).loads.tolist()), encoding="utf-8")
    assert main(["--loads", str(path), "--gpus", "4", "--slots", "12"]) == 2
    assert "take 16 slots" in capsys.readouterr().err


def test_the_comparison_has_every_rule_and_ours_is_never_behind() -> None:
    """On generated counts, in sample, no rule is better than ours; the table has a row for each layout."""
    results = compare({"made up": [generated("a", 2, 8, 1), generated("b", 2, 8, 2)]}, warm_up)
    for result in results:
        ours = np.array(result["in_sample"]["ours"])
        for rule, figures in result["in_sample"].items():
            assert rule in RULES
            assert (ours >= np.array(figures) - 1e-9).all()
        assert (ours <= np.array(result["bound"]) + 1e-9).all()
    assert len(page(results).splitlines()) == 2 + len(results)
