"""Steps of reinforcement learning that NVIDIA published for NeMo RL beside predictions of the same degrees.

``python -m benchmarks.reinforcement``.  The table holds GRPO on DGX H100 in BF16 from NeMo RL 0.5 and 0.6
(its page ``performance-summary.md``), as far as the catalogue has the model, with recomputation and the engine's
share of memory as in their recipes (``examples/configs/recipes/llm/performance`` at v0.5.0 and v0.6.0).  Nothing
was fitted to it.  It says mean and longest sequences only: responses are taken as log-normal with ``SIGMA``, cut at
the longest, which one response of a batch has at least, after prompts of ``PROMPT`` tokens.

The last lines say how the ratios lie: the interval that Student's distribution gives the next one, and how many of
a model lie in that of the other models.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist, fmean, geometric_mean, stdev
from typing import Final

from cluster_models.cluster.catalogue import gpu_kind, node_kind
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster, Node
from cluster_models.model.catalogue import catalogue_model
from cluster_models.reinforcement.plan import ReinforcementPlan
from cluster_models.reinforcement.workload import Arrangement, ReinforcementWorkload, rollout_of, update_of
from cluster_models.serving.requests import Lengths
from cluster_models.training.frameworks import framework
from cluster_models.training.workload import Choice, Recompute
from solver.problem import SearchOptions
from solver.reinforcement.plan import plan_reinforcement
from solver.reinforcement.problem import ReinforcementProblem

TABLE: Final = Path(__file__).parent / "data" / "published_reinforcement.csv"
PROMPT: Final = 150.0
SIGMA: Final = 0.6
QUANTILES: Final = 64
STUDENT: Final[Mapping[int, float]] = {5: 2.015, 6: 1.943, 7: 1.895, 8: 1.860}
"""95th percentiles of Student's distribution by degrees of freedom."""
WORDS: Final = frozenset({"model", "arrangement", "step_s", "version", "recompute"})
FRAMEWORK: Final = "megatron-bridge-26.02"


def main() -> None:
    """Print every row, and how far predictions are off."""
    ratios: dict[str, list[float]] = {}
    print("model              nodes  arrangement  rollout  training  weights  predicted  published  their ratio")
    with TABLE.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            plan = plan_reinforcement(problem_of(row), SearchOptions(time_limit_s=120.0, alternatives=0))
            if not isinstance(plan, ReinforcementPlan):
                print(f"{row['model']:18} {row['nodes']:>5}  {row['arrangement']:11}  nothing fits")
                continue
            parts, published = plan.parts, float(row["step_s"])
            ratio = published / parts.step_s
            ratios.setdefault(row["model"], []).append(ratio)
            print(
                f"{row['model']:18} {row['nodes']:>5}  {row['arrangement']:11}  {parts.rollout_s:7.1f}  "
                f"{parts.training_s:8.1f}  {parts.weights_s + parts.offload_s:7.1f}  {parts.step_s:9.1f}  "
                f"{published:9.1f}  {ratio:.2f}"
            )
    every = [ratio for own in ratios.values() for ratio in own]
    print(f"geometric mean {geometric_mean(every):.2f}, from {min(every):.2f} to {max(every):.2f}")
    low, high = next_interval(every)
    inside = 0
    for model, own in ratios.items():
        least, most = next_interval([ratio for other, each in ratios.items() if other != model for ratio in each])
        inside += sum(least <= ratio <= most for ratio in own)
    print(f"90 % interval of the next: {low:.2f} to {high:.2f}; {inside} of {len(every)} in that of other models")


def next_interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Between which the next ratio lies nine times of ten, if logarithms are normal: Student's, of a prediction."""
    logs = [math.log(ratio) for ratio in ratios]
    spread = STUDENT[len(logs) - 1] * stdev(logs) * math.sqrt(1.0 + 1.0 / len(logs))
    return math.exp(fmean(logs) - spread), math.exp(fmean(logs) + spread)


def problem_of(row: dict[str, str]) -> ReinforcementProblem:
    """The problem of a row, with the degrees that it was run with."""
    number = {name: int(row[name]) for name in row if name not in WORDS}
    total = number["prompts"] * number["samples"]
    prompts, lengths = Lengths((PROMPT,)), (number["mean_tokens"], number["longest_tokens"])
    responses = response_lengths(*lengths, responses=total)
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
        recompute=(Recompute(row["recompute"]),),
        pinned=degrees | experts | {"virtual_pipeline": 1},
    )
    arrangement = Arrangement(row["arrangement"])
    workload = ReinforcementWorkload(
        prompts=number["prompts"],
        samples=number["samples"],
        prompt_tokens=prompts,
        response_tokens=responses,
        training=update,
        rollout=rollout_of(
            prompts,
            responses,
            prompts=number["prompts"],
            samples=number["samples"],
            memory_fraction=number["engine_percent"] / 100.0,
        ),
        updates=number["updates"],
        arrangements=(arrangement,),
        staleness=int(arrangement is Arrangement.SEPARATE),
        pinned={"tensor": number["rollout_tensor"], "pipeline": 1, "attention_data": 1},
    )
    return ReinforcementProblem(dgx_h100(number["nodes"]), catalogue_model(row["model"]), workload)


def response_lengths(mean_tokens: float, longest_tokens: float, *, responses: int) -> Lengths:
    """Responses whose mean with a prompt is ``mean_tokens``: log-normal, cut at what is left of the longest.

    One of a batch is as long as that.
    """
    most = longest_tokens - PROMPT
    normal = NormalDist(0.0, SIGMA)
    factors = [math.exp(normal.inv_cdf((index + 0.5) / QUANTILES)) for index in range(QUANTILES)]
    low, high = 1.0, 100.0 * most
    for _ in range(60):
        median = math.sqrt(low * high)
        mean = sum(min(most, median * each) for each in factors) / QUANTILES
        low, high = (median, high) if mean < mean_tokens - PROMPT else (low, median)
    counts = {most: QUANTILES / responses}
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
