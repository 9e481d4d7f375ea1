"""How fast the planner is: a first plan from the command line, pricing, and proof on sixteen nodes.

    python -m benchmarks.speed [--json]

Prints what was measured on this machine beside what is aimed at on two cores; nothing is asserted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from app.cli.files import read_architecture, read_snapshot, read_workload
from cluster_models.calibration.training_run import TrainingRun
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.links.model import effective_links
from cluster_models.training.plan import Configuration, Degrees, Plan, RankOrder
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.degrees.layout import balanced_layout
from solver.degrees.priced import price_candidates
from solver.placement.cluster_fabrics import fabrics
from solver.problem import PlanningProblem, SearchOptions
from solver.runs import predict_runs
from solver.search import plan

EXAMPLES: Final = Path(__file__).parents[1] / "examples"
DEMO_CLUSTER: Final = EXAMPLES / "clusters" / "h100-17-nodes.yaml"
SIXTEEN_NODES: Final = EXAMPLES / "clusters" / "a100-16-nodes-hdr.yaml"
MODEL: Final = "llama-3-70b"
WORKLOAD: Final = EXAMPLES / "workloads" / "llama-3-70b-8k.yaml"
PRICING_ROUNDS: Final = 3
PREDICTED_RUNS: Final = 10_000
RUN_GPUS: Final = 1280
RUN_MODELS: Final = ("llama-3-70b", "qwen3-235b-a22b", "mixtral-8x22b")
RUN_KINDS: Final = ("H100", "A100", "B200")
SIXTEEN_NODE_GAP: Final = 0.005
SIXTEEN_NODE_LIMIT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure beside its aim."""

    name: str
    measured: float
    unit: str
    aim: str


def command_line_plan(cluster: Path) -> tuple[float, float]:
    """Seconds of ``meshwright plan`` from its start to its end, and the gap of the plan it prints."""
    command = [
        str(Path(sys.executable).with_name("meshwright")),
        "plan",
        *("--cluster", str(cluster), "--model", MODEL, "--workload", str(WORKLOAD), "--json"),
    ]
    started = time.perf_counter()
    ended = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own command
    seconds = time.perf_counter() - started
    return seconds, float(json.loads(ended.stdout)["certificate"]["gap"])


def problem_on(cluster: Path) -> PlanningProblem:
    """The demo's training on the cluster of a file."""
    return PlanningProblem(read_snapshot(str(cluster)), read_architecture(MODEL), read_workload(str(WORKLOAD)))


def pricing(problem: PlanningProblem) -> tuple[int, float, float]:
    """Candidates, and seconds to price them all: the first time, with the curves of the links, and afterwards."""
    usable = fabrics(problem.snapshot, problem.workload, effective_links(problem.snapshot))
    seconds = []
    count = 0
    for _ in range(1 + PRICING_ROUNDS):
        started = time.perf_counter()
        count = len(price_candidates(problem, usable))
        seconds.append(time.perf_counter() - started)
    return count, seconds[0], min(seconds[1:])


def sixteen_nodes() -> tuple[float, float]:
    """Seconds of the search on sixteen nodes (128 GPUs), and the gap it ends with."""
    options = SearchOptions(gap=SIXTEEN_NODE_GAP, time_limit_s=SIXTEEN_NODE_LIMIT_S)
    started = time.perf_counter()
    answer = plan(problem_on(SIXTEEN_NODES), options)
    seconds = time.perf_counter() - started
    assert isinstance(answer, Plan)
    return seconds, answer.certificate.gap


def runs(model: str, kind: str, *, at_most: int) -> list[TrainingRun]:
    """Configurations of one model on ``RUN_GPUS`` GPUs of one kind, over degrees, micro-batches and policies."""
    architecture = read_architecture(model)
    workload = TrainingWorkload(sequence_length=4096, global_batch=RUN_GPUS)
    found = []
    for tensor, pipeline, context, virtual, micro_batch, recompute, sharding in itertools.product(
        (1, 2, 4, 8), (1, 2, 4, 5, 8, 10, 16, 20), (1, 2, 4, 8), (1, 2, 4), (1, 2, 4, 8), Recompute, Sharding
    ):
        data = RUN_GPUS // (tensor * pipeline * context)
        fits = data * tensor * pipeline * context == RUN_GPUS and workload.global_batch >= micro_batch * data
        if not fits or pipeline * virtual > architecture.layers or (virtual > 1 and pipeline == 1):
            continue
        layout = balanced_layout(architecture, workload.sequence_length, pipeline, virtual)
        degrees = Degrees(tensor, pipeline, data, context, 1, virtual)
        configuration = Configuration(
            degrees, micro_batch, recompute, sharding, RankOrder.DATA_BEFORE_PIPELINE, layout
        )
        name = f"{model} on {kind}"
        found.append(TrainingRun(name, architecture, workload, configuration, gpu_kind(kind), 8, 8, 50e9))
    return found[:at_most]


def prediction_ms(asked: list[TrainingRun]) -> float:
    """Milliseconds that the prediction of one run takes when all are asked for at once."""
    predict_runs(asked[:100])
    started = time.perf_counter()
    predict_runs(asked)
    return 1e3 * (time.perf_counter() - started) / len(asked)


def figures() -> list[Figure]:
    """All figures, measured one after the other."""
    demo_s, demo_gap = command_line_plan(DEMO_CLUSTER)
    candidates, first_s, again_s = pricing(problem_on(DEMO_CLUSTER))
    proof_s, proof_gap = sixteen_nodes()
    one_model = runs(RUN_MODELS[0], RUN_KINDS[0], at_most=PREDICTED_RUNS)
    share = PREDICTED_RUNS // (len(RUN_MODELS) * len(RUN_KINDS))
    mixed = [run for model in RUN_MODELS for kind in RUN_KINDS for run in runs(model, kind, at_most=share)]
    return [
        Figure("demo plan, start-up included", demo_s, "s", "under 20"),
        Figure("gap of the demo plan", 100 * demo_gap, "%", "-"),
        Figure("candidates of the demo", candidates, "", "-"),
        Figure("priced per second, first time", candidates / first_s, "/s", "50,000"),
        Figure("priced per second, afterwards", candidates / again_s, "/s", "50,000"),
        Figure("16 nodes: search", proof_s, "s", f"under {SIXTEEN_NODE_LIMIT_S:.0f}"),
        Figure(f"{len(one_model):,} runs of one model: each", prediction_ms(one_model), "ms", "under 1"),
        Figure(f"{len(mixed):,} runs of nine sorts: each", prediction_ms(mixed), "ms", "under 1"),
        Figure("16 nodes: gap", 100 * proof_gap, "%", f"at most {100 * SIXTEEN_NODE_GAP:g}"),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description="measures the planner's speed")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    asked = parser.parse_args(arguments)
    measured, cores = figures(), os.cpu_count()
    if asked.json:
        print(json.dumps({"cores": cores, "figures": [asdict(figure) for figure in measured]}, indent=2))
        return 0
    print(f"{cores} cores; aims are for two cores of a common server")
    print(f"{'':<32} {'measured':>12}      aim")
    for figure in measured:
        print(f"{figure.name:<32} {figure.measured:>12,.2f} {figure.unit:<3}  {figure.aim}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
