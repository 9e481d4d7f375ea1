"""Transitions from files, and maps made from them on other tokens."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.chain_comparison import chain_table, compare_chains
from benchmarks.experts import main
from benchmarks.transition_files import read_counted, with_transitions
from cluster_models.errors import InvalidInput


def trace(tokens: int = 60, layers: int = 4) -> list[list[list[int]]]:
    """Tokens that go from expert e and its neighbour to the same or to the next ones, of 8."""
    generator = np.random.default_rng(5)
    first = generator.integers(8, size=(tokens, 1)) + np.cumsum(
        generator.integers(2, size=(tokens, layers)), axis=1
    )
    return [[[int(e % 8), int((e + 1) % 8)] for e in row] for row in first]


def written(path: Path, document: object) -> Path:
    """A file with ``document``."""
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_traces_and_bare_tables_tell_the_same_transitions(tmp_path: Path) -> None:
    """Counted pair by pair, from a trace, from tables by name and from plain ones."""
    path = written(tmp_path / "trace.json", {"experts": trace()})
    loads = read_counted(path)
    traced = with_transitions(loads, path)
    assert traced.transitions[0].sum() == 60 * 4
    assert traced.transitions[1][3, 4] == sum(
        here in token[1] and there in token[2] for token in trace() for here, there in [(3, 4)]
    )
    tables = [traced.transitions[index].tolist() for index in range(3)]
    for document in (tables, {"transitions": tables}):
        other = with_transitions(loads, written(tmp_path / "tables.json", document))
        assert all((other.transitions[index] == traced.transitions[index]).all() for index in range(3))


def test_the_command_prints_what_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The map, the share that stays and its proof; in words without --json."""
    path = written(tmp_path / "trace.json", {"experts": trace()})
    counts = written(tmp_path / "loads.json", read_counted(path)[0].loads.tolist())
    arguments = ["--loads", str(counts), "--transitions", str(path), "--gpus", "4", "--nodes", "2", "--slots", "8"]
    assert main([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["exact"]
    assert 0.25 < result["transition_stay_share"] <= result["transition_bound"] + 1e-12
    assert result["transition_worth"] >= 0.98 * result["transition_best"] - 1e-12
    assert result["balancedness"] <= result["bound"] + 1e-12
    assert [sorted(row) for row in result["physical_to_logical_map"]] == [list(range(8))] * 4
    assert main([*arguments, "--inside-price", "0.2"]) == 0
    assert "the optimum" in capsys.readouterr().out


def test_maps_are_used_on_other_tokens(tmp_path: Path) -> None:
    """A map from one half stays below its own bound, and the other half is another's."""
    written(tmp_path / "trace.json", {"experts": trace()})
    written(tmp_path / "other.json", {"nothing": 1})
    rows = compare_chains(tmp_path)
    assert {(row.made, row.used) for row in rows} == {
        (made, used)
        for made in ("trace", "first half", "second half")
        for used in ("trace", "first half", "second half")
    }
    for row in rows:
        assert row.exact
        assert row.stays <= row.bound + 1e-12
    assert len(chain_table(rows).splitlines()) == len(rows) + 2
    with pytest.raises(InvalidInput, match="no file with transitions"):
        compare_chains(tmp_path / "none")


def test_files_that_do_not_fit_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No transitions, and loads of other experts, end with exit code 2."""
    path = written(tmp_path / "trace.json", {"experts": trace()})
    counts = written(tmp_path / "loads.json", np.ones((4, 16)).tolist())
    few = written(tmp_path / "few.json", np.ones((4, 8)).tolist())
    for loads, transitions in ((few, few), (few, tmp_path / "none.json"), (counts, counts)):
        arguments = ["--loads", str(loads), "--transitions", str(transitions), "--gpus", "2", "--slots", "8"]
        assert main(arguments) == 2
        assert "transitions" in capsys.readouterr().err
    assert main(["--loads", str(few), "--transitions", str(path), "--gpus", "2", "--slots", "10"]) == 2
