"""``meshwright experts serving``: a map for each phase of a serving plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from app.documents.serving_plan import ServingPlanDocument
from app.experts.phases import phase_layouts, workloads_of
from cluster_models.errors import InvalidInput
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.replicas import Phase
from cluster_models.serving.workload import Speculation, Worker
from tests.routing_counts import dump, skewed
from tests.serving_plans import group, planned, replica, served

_NARROW, _WIDE = Worker(tensor=1, attention_data=2, expert=2), Worker(tensor=1, attention_data=4, expert=4)


def _plan(**workload: object) -> ServingPlan:
    """A prefill replica on two expert ranks, a decode replica on four over two nodes; 16 experts in a layer."""
    prefill = replica(0, _NARROW, [("a", (0, 1))], phase=Phase.PREFILL)
    decode = replica(1, _WIDE, [("a", (2, 3)), ("b", (0, 1))], phase=Phase.DECODE)
    return planned([group(prefill, decode)], [served(experts=16, **workload)])


def test_each_phase_has_its_ranks_and_the_tokens_of_its_steps() -> None:
    """Prompts of two attention ranks on two GPUs; sixteen sequences and their drafts on four."""
    prefill, decode = phase_layouts(_plan(prefix_share=0.25), 16)
    assert (prefill.phase, prefill.ranks, prefill.nodes, prefill.tokens_per_gpu) == (Phase.PREFILL, 2, 1, 768.0)
    assert (decode.phase, decode.ranks, decode.nodes, decode.tokens_per_gpu) == (Phase.DECODE, 4, 2, 4.0)
    _, drafted = phase_layouts(_plan(speculation=Speculation(2, 1.25)), 16)
    assert drafted.tokens_per_gpu == 12.0


def test_a_phase_meets_what_is_called_so_or_said() -> None:
    """Replicas of both phases meet both; without a name that says it, everything."""
    known = ["chat-prefill", "chat-decode", "other"]
    assert workloads_of(Phase.PREFILL, known, {}) == ["chat-prefill"]
    assert workloads_of(Phase.BOTH, known, {}) == ["chat-prefill", "chat-decode"]
    assert workloads_of(Phase.DECODE, known, {Phase.DECODE: ["other"]}) == ["other"]
    assert workloads_of(Phase.DECODE, ["a", "b"], {}) == ["a", "b"]
    with pytest.raises(InvalidInput, match="is not a workload of these counts"):
        workloads_of(Phase.DECODE, known, {Phase.DECODE: ["others"]})


def test_plans_that_spread_no_such_experts_are_refused() -> None:
    """Other counts, one group of GPUs, expert ranks that nodes do not divide."""
    with pytest.raises(InvalidInput, match="the counts are of 8 experts"):
        phase_layouts(_plan(), 8)
    whole = planned([group(replica(0, Worker(tensor=2), [("a", (0, 1))]))], [served(experts=16)])
    with pytest.raises(InvalidInput, match="spreads no experts"):
        phase_layouts(whole, 16)
    uneven = replica(0, _WIDE, [("a", (0, 1, 2)), ("b", (0,))])
    with pytest.raises(InvalidInput, match="do not divide into evenly"):
        phase_layouts(planned([group(uneven)], [served(experts=16)]), 16)


def test_each_phase_gets_a_map_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Better for its own workload than the other phase's map, with files in folders of their own."""
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(ServingPlanDocument.from_plan(_plan()).model_dump_json())
    for seed, name in enumerate(("prefill", "decode"), start=1):
        Path(f"{name}.json").write_bytes(dump(skewed(2, 16, seed)))
    words = [
        "experts",
        "serving",
        "--plan",
        "plan.json",
        "--loads",
        "prefill.json",
        "decode.json",
        "--redundant",
        "4",
    ]
    assert main([*words, "--format", "sglang", "--output", "maps"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "2 expert ranks on 1 node, 1,024 tokens of a GPU in a step" in out
    assert "4 expert ranks on 2 nodes, 4 tokens of a GPU in a step" in out
    assert "With this map a decode step takes" in out
    assert "decode_imbalance: 0." in out
    maps = [json.loads(Path(f"maps/{name}/expert_location.json").read_text()) for name in ("prefill-0", "decode-1")]
    assert maps[0] != maps[1]
    assert main([*words, "--json"]) == 0
    for told, own in zip(json.loads(capsys.readouterr().out), ("prefill", "decode"), strict=True):
        reached = {each["name"]: each["balancedness"] for each in told["workloads"]}
        assert told["phase"] == own
        assert reached[own] == max(reached.values()) > 0.9


def test_a_plan_of_training_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So is a plan without such a model."""
    path = tmp_path / "plan.json"
    path.write_text("{}")
    assert main(["experts", "serving", "--plan", str(path), "--loads", str(path)]) != 0
    assert "is not a serving plan" in capsys.readouterr().err
