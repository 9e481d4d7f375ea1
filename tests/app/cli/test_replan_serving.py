"""``meshwright replan`` with deployments among its jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from app.documents.serving_plan import any_plan_from_text
from cluster_models.serving.plan import ServingPlan
from tests.app.failure_files import PLAN, write_files

NODE = (
    "  - {name: n%d, gpu_kind: H100, gpu_count: 8, nics: {count: 8, rate_gbits_per_s: 400, fabric: infiniband}}\n"
)


def _cluster(count: int) -> str:
    return "name: site\nnodes:\n" + "".join(NODE % index for index in range(count))


WORKLOAD = """kind: serving
input_tokens: 1024
output_tokens: 512
concurrency: 16
weights: fp8
modes: [aggregated]
pinned: {tensor: 8}
max_gpus: 16
objective: throughput
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of two replicas of a node each, on a cluster of four."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    Path("site.yaml").write_text(_cluster(4))
    Path("chat.yaml").write_text(WORKLOAD)
    asked = [
        "--cluster",
        "site.yaml",
        "--model",
        "llama-3.1-8b",
        "--workload",
        "chat.yaml",
        "--output",
        "chat.json",
    ]
    assert main(["plan", *asked]) == 0


def _nodes(path: str) -> list[str]:
    plan = any_plan_from_text(Path(path).read_text())
    assert isinstance(plan, ServingPlan)
    return [place.node for replica in plan.replicas for place in replica.places]


def test_a_deployment_gets_a_spare_and_files_that_start_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The replica that lives keeps its node; plan and script of the new one are written."""
    lost, kept = _nodes("chat.json")
    capsys.readouterr()
    arguments = ["replan", "site.yaml", "--job", "chat=chat.json", "--lost", lost, "--spare", "all"]
    assert main([*arguments, "--output", "out"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "Take replica 0 of chat out of the balancer." in words
    assert "100 % of those before" in words
    assert kept in _nodes("out/chat/plan.json")
    assert lost not in _nodes("out/chat/plan.json")
    assert "llama" in Path("out/chat/vllm.sh").read_text().lower()
    answer = json.loads(Path("out/decision.json").read_text())
    assert answer["serving"][0]["action"] == "start_replicas"
    assert answer["jobs"] == []
    assert main([*arguments, "--safe"]) == 0
    assert "Take replica 0 of chat out of the balancer." in " ".join(capsys.readouterr().out.split())


def test_wrong_input_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A cluster without the plan's GPUs, and a policy that is none."""
    lost = _nodes("chat.json")[0]
    Path("policy.yaml").write_text("start_low_s: 300\nstart_high_s: 100\n")
    Path("few.yaml").write_text(_cluster(1))
    for arguments, words in (
        (["few.yaml", "--job", "chat=chat.json"], "is not a plan of the cluster site, which has no GPU 0"),
        (["site.yaml", "--job", "chat=chat.json", "--recovery", "policy.yaml"], "must be at least the lower time"),
        (["site.yaml", "--job", "a=chat.json", "--job", "b=chat.json"], "holds GPU 0"),
        (["site.yaml", "--job", "a=chat.json", "--job", f"b={PLAN}"], "is not a plan of the cluster"),
    ):
        capsys.readouterr()
        assert main(["replan", *arguments, "--lost", lost]) != 0
        assert words in " ".join(capsys.readouterr().err.split())
