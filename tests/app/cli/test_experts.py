"""``meshwright experts``: what it reads, what it says, what it writes, and how it ends."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from app.cli import main
from tests.routing_counts import dump, skewed, traced


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with counts of two unlike workloads, inside the folder we work in."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "counts"
    folder.mkdir()
    for seed, name in enumerate(("prefill", "decode"), start=1):
        (folder / f"{name}.json").write_bytes(dump(skewed(3, 16, seed), dense=1))
    return folder


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of ``meshwright experts``."""
    code = main(["experts", *words])
    out, err = capsys.readouterr()
    return code, " ".join(out.split()), err


def test_a_placement_is_told_to_a_person(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before, after, bound and the command that writes the files; typing that command does so."""
    code, out, err = run(
        capsys, "place", "--loads", "counts/prefill.json", "counts/decode.json", "--ranks", "4", "--slots", "24"
    )
    assert (code, err) == (0, "")
    assert "3 layers of 16 experts in 24 slots on 4 ranks" in out
    assert "contiguous this map at most" in out
    command = out[out.index("meshwright experts place") :]
    code, out, _ = run(capsys, *shlex.split(command)[2:])
    assert code == 0
    assert "the files for sglang are in maps" in out
    table = json.loads(Path("maps/expert_location.json").read_text())["physical_to_logical_map"]
    assert [len(row) for row in table] == [24] * 4
    assert "--ep-num-redundant-experts 8" in Path("maps/flags.txt").read_text()


def test_a_map_by_transitions_is_told_with_what_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before and after, bound and limits; the command that follows writes the same map; refusals name options."""
    monkeypatch.chdir(tmp_path)
    full = traced("chat", 1)
    tables = [table["counts"] for table in full["transitions"]]
    counted = {"name": "chat", "layers": [0, 1, 2, 3], "loads": full["logical_count"], "transitions": tables}
    Path("chat.json").write_text(json.dumps({"workloads": [counted]}))
    words = ("place", "chat.json", "--ranks", "4", "--nodes", "2", "--objective", "locality", "--link-speed", "50")
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert "Tokens that stay on their GPU, and in their node, from layer to layer" in out
    assert "the best found without regard to balance keeps" in out
    command = out[out.index("meshwright experts place") :]
    assert "--link-speed 50 --objective locality" in command
    answer = json.loads(run(capsys, *shlex.split(command)[2:], "--json")[1])
    written = json.loads(Path("maps/expert_location.json").read_text())["physical_to_logical_map"]
    assert written == answer["placement"]["physical_to_logical_map"]
    for more, option in ((("--redundant", "8"), "--redundant"), (("--least-locality", "2"), "--least-locality")):
        code, _, err = run(capsys, *words, *more)
        assert code == 2
        assert option in err


def test_json_is_the_answer_of_the_service(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights choose what is planned for; the other workload is judged and warned of."""
    words = ("place", "counts", "--ranks", "4", "--nodes", "2", "--redundant", "8", "--json")
    code, out, _ = run(capsys, *words, "--workloads", "prefill=1")
    answer = json.loads(out)
    assert code == 0
    assert [each["planned"] for each in answer["workloads"]] == [False, True]
    assert answer["workloads"][1]["weight"] == 1.0
    assert "decode would run at" in answer["warnings"][0]
    assert answer["placement"]["layers"] == [1, 2, 3]
    both = json.loads(run(capsys, *words, "--worst")[1])
    assert both["warnings"] == []


def test_orders_that_mix_router_groups_are_not_written_for_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Megatron forms DeepSeek-V3's 8 groups by position; engines that keep the experts' numbers take the map."""
    monkeypatch.chdir(tmp_path)
    Path("loads.json").write_text(json.dumps({"logical_count": skewed(1, 256, 1)}))
    words = ("place", "loads.json", "--ranks", "8", "--model", "deepseek-v3", "--output", "maps", "--format")
    code, _, err = run(capsys, *words, "megatron")
    assert code == 2
    assert "--format" in err
    assert "would mix the 8 router groups of layer 0" in err
    assert run(capsys, *words, "vllm-ascend")[0] == 0
    words = ("place", "loads.json", "--ranks", "8", "--router", "8,8,4", "--output", "maps", "--format")
    assert "would mix the 8 router groups" in run(capsys, *words, "megatron")[2]


def test_faster_ranks_get_more(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Speeds of ranks, one by one or so many of one: as over HTTP, and again in the command to type next."""
    words = ("place", "counts/decode.json", "--ranks", "4", "--slots", "24", "--json")
    even = json.loads(run(capsys, *words)[1])
    listed, counted = (
        json.loads(run(capsys, *words, "--speeds", text)[1]) for text in ("1,1,0.5,0.5", "1x2,0.5x2")
    )
    assert listed == counted
    assert listed["placement"] != even["placement"]
    assert listed["balancedness"] > 0.9
    assert "--speeds 1x2,0.5x2" in run(capsys, *words[:-1], "--speeds", "1x2,0.5x2")[1]


def test_nodes_are_weighed_where_the_router_is_known(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Times are shown, and what they assume."""
    code, out, _ = run(
        capsys, "place", "counts", "--ranks", "4", "--nodes", "2", "--router", "4", "--link-speed", "50"
    )
    assert code == 0
    assert "With 50 Gb/s per GPU between nodes" in out
    assert "Assumptions" in out


def test_show_says_skew_and_likeness(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For a person and as JSON; unlike workloads are pointed out."""
    code, out, _ = run(capsys, "show", "counts")
    assert code == 0
    assert "2 workloads of 16 experts in a layer" in out
    assert "A map for one would serve the other badly" in out
    code, out, _ = run(capsys, "show", "counts", "--json")
    told = json.loads(out)
    assert [each["name"] for each in told["workloads"]] == ["decode", "prefill"]
    assert told["correlations"][0][0] == 1.0
    assert told["notices"] == []


def test_a_bad_layer_is_told_and_the_rest_used(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line on standard error; the table goes on."""
    (counts / "odd.json").write_text('{"logical_count": [[1, 2, 3, 4], [5, -6, 7, 8]]}')
    code, _, err = run(capsys, "show", "counts/odd.json")
    assert code == 0
    assert "odd.json" in err
    assert "logical_count[1]" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("counts", "--ranks", "3"), "--slots"),
        (("counts", "--ranks", "4", "--nodes", "3"), "--nodes"),
        (("counts", "--ranks", "4", "--slots", "15"), "--slots"),
        (("counts", "--ranks", "4", "--slots", "1000000"), "--slots"),
        (("counts", "--ranks", "4", "--slots", "24", "--redundant", "8"), "--redundant"),
        (("counts", "--ranks", "4", "--workloads", "prefil"), "did you mean 'prefill'"),
        (("counts", "--ranks", "4", "--workloads", "prefill=x"), "--workloads"),
        (("counts", "--ranks", "4", "--workloads", "prefill=-1,decode=2"), "--workloads.prefill"),
        (("counts", "--ranks", "4", "--workloads", "prefill=nan"), "--workloads.prefill"),
        (("counts", "--ranks", "4", "--workloads", "prefill=1,decode"), "--workloads"),
        (("counts", "--ranks", "4", "--workloads", "prefill=1", "--worst"), "--worst"),
        (("counts", "--ranks", "4", "--format", "sglan", "--output", "x"), "did you mean 'sglang'"),
        (("counts", "--ranks", "4", "--format", "sglang"), "--output"),
        (("counts", "--ranks", "4", "--output", "x"), "--format"),
        (("counts", "--ranks", "4", "--model", "llama-3-8b"), "has no experts"),
        (("counts", "--ranks", "4", "--model", "mixtral-8x7b"), "8"),
        (("counts", "--ranks", "4", "--router", "a"), "--router"),
        (("counts", "--ranks", "4", "--nodes", "2", "--router", "99"), "--router"),
        (("counts", "--ranks", "4", "--nodes", "2", "--link-speed", "-1"), "--link-speed"),
        (("counts", "--ranks", "4", "--speeds", "1x2,fast"), "--speeds"),
        (("counts", "--ranks", "4", "--speeds", "1x0"), "--speeds"),
        (("counts", "--ranks", "4", "--speeds", "1x9999999999"), "--speeds"),
        (("counts", "--ranks", "4", "--speeds", "1x3"), "must be one speed for each of 4 ranks"),
        (("counts", "--ranks", "4", "--speeds", "1,1,1,0"), "--speeds[3]"),
        (("nowhere", "--ranks", "4"), "nowhere"),
        (("--ranks", "4"), "--loads"),
    ],
)
def test_what_is_wrong_ends_with_code_2(
    counts: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    """One line that names the option; nothing on standard output."""
    code, out, err = run(capsys, "place", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_running_map_is_rebalanced(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The map in a file, counts in others: a verdict, the moves, and the new map as files."""
    rows = [[slot % 16 for slot in range(24)]] * 4
    Path("running.json").write_text(json.dumps({"physical_to_logical_map": rows}))
    words = ("rebalance", "--running", "running.json", "--loads", "counts/decode.json", "--ranks", "4")
    code, out, err = run(capsys, *words, "--expert-bytes", "1e6", "--format", "trtllm", "--output", "maps")
    assert (code, err) == (0, "")
    assert out.startswith("Move. ")
    assert "Earned back after" in out
    assert "where the nearest copy serves" in out
    assert "the files for trtllm are in maps" in out
    assert {path.name for path in Path("maps").iterdir()} == {"load_balancer.yaml", "config.yaml"}
    answer = json.loads(run(capsys, *words, "--expert-bytes", "1e6", "--target", "0.8", "--json")[1])
    assert answer["placement"]["layers"] == [1, 2, 3]
    assert answer["balancedness"] >= 0.8
    for more, said in (
        ((), "--expert-bytes"),
        (("--expert-bytes", "1", "--target", "2"), "--target"),
        (("--expert-bytes", "1", "--ranks", "5"), "--running"),
        (("--expert-bytes", "1", "--running", "counts/decode.json"), "--running"),
    ):
        code, out, err = run(capsys, *words, *more)
        assert (code, out) == (2, "")
        assert said in err
