"""Steps of reinforcement learning that NVIDIA published for NeMo RL beside predictions of the same degrees.

``python -m benchmarks.reinforcement``.  The table holds GRPO on DGX H100 in BF16 from NeMo RL 0.5 and 0.6
(its page ``performance-summary.md``), as far as the catalogue has the model.  Nothing was fitted to it.  It
says mean and longest sequences only: responses are taken as log-normal with ``SIGMA``, cut at the longest, after
prompts of ``PROMPT`` tokens.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from statistics import NormalDist, geometric_mean
from typing import Final

from cluster_models.cluster.catalogue import gpu_kind, node_kind
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster, Node
from cluster_models.model.catalogue import catalogue_model
from cluster_models.reinforcement.plan import ReinforcementPlan
from cluster_models.reinforcement.workload import Arrangement, ReinforcementWorkload, rollout_of, update_of
from cluster_models.serving.requests import Lengths
from cluster_models.training.frameworks import framework
from cluster_models.training.workload import Choice
from solver.problem import SearchOptions
from solver.reinforcement.plan import plan_reinforcement
from solver.reinforcement.problem import ReinforcementProblem

TABLE: Final = Path(__file__).parent / "data" / "published_reinforcement.csv"
PROMPT: Final = 150.0
SIGMA: Final = 0.6
QUANTILES: Final = 64
FRAMEWORK: Final = "megatron-bridge-26.02"


def main() -> None:
    """Print every row, and how far predictions are off."""
    ratios = []
    print("model              nodes  arrangement  rollout  training  weights  predicted  published  their ratio")
    with TABLE.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            plan = plan_reinforcement(problem_of(row), SearchOptions(time_limit_s=120.0, alternatives=0))
            if not isinstance(plan, ReinforcementPlan):
                print(f"{row['model']:18} {row['nodes']:>5}  {row['arrangement']:11}  nothing fits")
                continue
            parts, published = plan.parts, float(row["step_s"])
            ratios.append(published / parts.step_s)
            print(
                f"{row['model']:18} {row['nodes']:>5}  {row['arrangement']:11}  {parts.rollout_s:7.1f}  "
                f"{parts.training_s:8.1f}  {parts.weights_s + parts.offload_s:7.1f}  {parts.step_s:9.1f}  "
                f"{published:9.1f}  {ratios[-1]:.2f}"
            )
    print(f"geometric mean {geometric_mean(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")


def problem_of(row: dict[str, str]) -> ReinforcementProblem:
    """The problem of a row, with the degrees that it was run with."""
    number = {name: int(row[name]) for name in row if name not in {"model", "arrangement", "step_s", "version"}}
    prompts, responses = Lengths((PROMPT,)), response_lengths(number["mean_tokens"], number["longest_tokens"])
    total = number["prompts"] * number["samples"]
    experts = {"expert": number["expert"], "expert_tensor": 1} if number["expert"] > 1 else {}
    degrees = {name: number[name] for name in ("tensor", "pipeline", "context")}
    update = update_of(
        prompts,
        responses,
        responses=total // number["updates"],
        context_tokens=number["longest_tokens"],
        reference=True,
        framework=framework(FRAMEWORK),
        choice=Choice.FASTEST,
        pinned=degrees | experts | {"virtual_pipeline": 1},
    )
    arrangement = Arrangement(row["arrangement"])
    workload = ReinforcementWorkload(
        prompts=number["prompts"],
        samples=number["samples"],
        prompt_tokens=prompts,
        response_tokens=responses,
        training=update,
        rollout=rollout_of(prompts, responses, prompts=number["prompts"], samples=number["samples"]),
        updates=number["updates"],
        arrangements=(arrangement,),
        staleness=int(arrangement is Arrangement.SEPARATE),
        pinned={"tensor": number["rollout_tensor"], "pipeline": 1, "attention_data": 1},
    )
    return ReinforcementProblem(dgx_h100(number["nodes"]), catalogue_model(row["model"]), workload)


def response_lengths(mean_tokens: float, longest_tokens: float) -> Lengths:
    """Responses whose mean with a prompt is ``mean_tokens``: log-normal, cut at what is left of the longest."""
    most = longest_tokens - PROMPT
    normal = NormalDist(0.0, SIGMA)
    factors = [math.exp(normal.inv_cdf((index + 0.5) / QUANTILES)) for index in range(QUANTILES)]
    low, high = 1.0, 100.0 * most
    for _ in range(60):
        median = math.sqrt(low * high)
        mean = sum(min(most, median * each) for each in factors) / QUANTILES
        low, high = (median, high) if mean < mean_tokens - PROMPT else (low, median)
    counts: dict[float, float] = {}
    for each in factors:
        tokens = float(round(min(most, median * each)))
        counts[tokens] = counts.get(tokens, 0.0) + 1.0
    return Lengths.counted(list(counts.items()))


def dgx_h100(nodes: int) -> ClusterSnapshot:
    """DGX H100 on nominal links."""
    sold, kind = node_kind("DGX H100/H200", field="node_kind"), gpu_kind("H100-SXM5-80GB", field="gpu_kind")
    listed = tuple(
        Node(f"n{index:03}", kind.name, sold.gpu_count, f"domain{index}", nics=sold.nics) for index in range(nodes)
    )
    return ClusterSnapshot(
        f"dgx-{nodes}", Cluster(f"dgx-{nodes}", listed, {kind.name: kind}, source=sold.source), ()
    )


if __name__ == "__main__":
    main()
