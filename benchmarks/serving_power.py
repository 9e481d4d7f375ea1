"""Power that GPUs draw as they serve, measured and by the law.

    python -m benchmarks.serving_power --models FOLDER

The folder is ``public/data/models`` of github.com/ml-energy/leaderboard: runs of vLLM on H100 and B200, by model
and requests in flight, with the mean power of all GPUs.  The first table has shares of the boards' power; the
second errors of the law (``cluster_models/data/power_draw.toml``) on runs of models that have a shape, with models
and kinds held out from a fit, and beside them those of the board's power itself.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.optimize import least_squares

from benchmarks.rows import Assumed, Skipped
from benchmarks.scores import score
from benchmarks.serving_models import model_shape
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.draw import DrawLaw, draw_law
from cluster_models.serving.engines import serving_engine
from cluster_models.serving.workload import Pool, ServingConfiguration, ServingWorkload, WeightFormat, Worker
from solver.candidates import BoolArray
from solver.serving.cases import ServingCase, arrays_of
from solver.serving.draw import answers_in_use, prompts_in_use
from solver.serving.loads import FloatArray, Loads, WorkerLinks
from solver.serving.power import drawn_share

KINDS: Final = {"H100": "H100-SXM5-80GB", "B200": "B200-SXM-180GB"}
IN_FLIGHT: Final = (1, 17, 65, 257, 10_000)
"""Bounds of the classes of requests in flight on a GPU's worker."""
PROMPTS: Final = {"lm-arena-chat": 250, "gpqa": 300, "sourcegraph-fim": 1500}
"""Tokens of a prompt, which runs do not state; they count little beside answers of 700 to 9,000 tokens."""
FITTED: Final = ("floor", "experts", "memory", "compute", "exponent")
RANGES: Final = ((0.05, 0.8), (0.0, 0.5), (0.0, 2.0), (0.0, 5.0), (0.25, 1.0))
GRANTED: Final = 0.1
"""Error granted to a run, as |log(predicted / measured)|, from which on it counts less."""
INTERVAL: Final = 0.8


@dataclass(frozen=True, slots=True)
class Run:
    """One run: kind, requests in flight, share of the boards' power; ``case`` where the model has a shape."""

    kind: str
    in_flight: float
    share: float
    requests_per_s: float
    case: ServingCase | None


def runs_of(folder: Path) -> Iterator[Run]:
    """Every run on a known kind that has tokens."""
    for path in sorted(folder.glob("*.json")):
        whole = json.loads(path.read_text("utf-8"))
        for run in whole["configurations"]:
            if (kind := KINDS.get(run["gpu_model"])) is not None and "median_itl_ms" in run:
                watts = run["num_gpus"] * gpu_kind(kind).power_watts
                each = run.get("output_throughput_tokens_per_sec", 0.0) / run.get("avg_output_len", 1.0)
                load = float(run["avg_batch_size"])
                yield Run(kind, load, run["avg_power_watts"] / watts, each, _case(whole, run, kind))


def _case(whole: dict[str, Any], run: dict[str, Any], kind: str) -> ServingCase | None:
    if whole.get("task") not in PROMPTS:
        return None
    try:
        shape = model_shape(whole["model_id"].rpartition("/")[2], Assumed())
    except Skipped:
        return None
    gpu, ways = gpu_kind(kind), run["parallelization"]
    tensor, expert = ways["tensor_parallel"], ways["expert_parallel"]
    data = run["num_gpus"] // tensor if shape.experts else 1
    worker = Worker(tensor, 1, data, expert if shape.experts and tensor * data % expert == 0 else 1)
    weights = WeightFormat.FP8 if whole["weight_precision"] == "fp8" else WeightFormat.BF16
    load = ServingWorkload(
        PROMPTS[whole["task"]],
        max(2, round(run["avg_output_len"])),
        concurrency=max(1.0, run["avg_batch_size"]),
        weights=WeightFormat.MXFP4 if shape.name.startswith("gpt-oss") else weights,
        engine=serving_engine("vllm-0.11"),
    )
    links = WorkerLinks(gpu.scale_up_domain_gpus, gpu.scale_up_bytes_per_s, 35e9, 1e-5)
    return ServingCase(shape, gpu, links, load, ServingConfiguration(Pool(worker)))


def shares_report(runs: Sequence[Run]) -> Iterator[str]:
    """A line for each kind and class of load: runs, and the 10th, 50th and 90th percentile of the share."""
    yield f"{'kind':<16}{'in flight':>12}{'runs':>6}{'p10':>7}{'median':>8}{'p90':>7}"
    for kind in KINDS.values():
        for low, high in (*pairwise(IN_FLIGHT), (IN_FLIGHT[0], IN_FLIGHT[-1])):
            shares = [run.share for run in runs if run.kind == kind and low <= run.in_flight < high]
            if shares:
                low_share, median, high_share = np.percentile(shares, (10, 50, 90))
                load = f"{low} to {high - 1}"
                yield f"{kind:<16}{load:>12}{len(shares):>6}{low_share:>7.0%}{median:>8.0%}{high_share:>7.0%}"


@dataclass(frozen=True, slots=True, eq=False)
class Used:
    """Runs as the law sees them: loads, shares of bandwidth and peak in use, and measured shares of power."""

    loads: Loads
    memory: FloatArray
    compute: FloatArray
    share: FloatArray

    def errors(self, law: DrawLaw, rows: BoolArray) -> FloatArray:
        """Predicted over measured of ``rows``."""
        return np.asarray(drawn_share(self.loads, self.memory, self.compute, law)[rows] / self.share[rows])

    def fitted(self, rows: BoolArray) -> DrawLaw:
        """The law that ``rows`` show, large errors counting less."""
        start = draw_law()
        found = least_squares(
            lambda values: np.log(self.errors(replace(start, **dict(zip(FITTED, values, strict=True))), rows)),
            [float(np.clip(getattr(start, name), *each)) for name, each in zip(FITTED, RANGES, strict=True)],
            bounds=tuple(zip(*RANGES, strict=True)),
            loss="soft_l1",
            f_scale=GRANTED,
        )
        return replace(start, **dict(zip(FITTED, found.x.tolist(), strict=True)))


def used_of(runs: Sequence[Run]) -> Used:
    """Memory and compute in use by the runs, at the rates and batches that were measured."""
    arrays = arrays_of([run.case for run in runs if run.case is not None])
    rates, batches = (np.array([getattr(run, name) for run in runs]) for name in ("requests_per_s", "in_flight"))
    answers = answers_in_use(arrays.decode, arrays.traffic, rates, batches)
    prompts = prompts_in_use(arrays.prefill, arrays.traffic, rates)
    memory, compute = (one + other for one, other in zip(answers, prompts, strict=True))
    return Used(arrays.decode, memory, compute, np.array([run.share for run in runs]))


def law_report(runs: Sequence[Run]) -> Iterator[str]:
    """The fit, and a line of errors for the law as shipped, with models and kinds held out, and for boards."""
    used = used_of(runs)
    every = np.ones(len(runs), dtype=bool)
    whole = used.fitted(every)
    yield "fitted: " + ", ".join(f"{name} {getattr(whole, name):.3f}" for name in FITTED)
    yield _line("as shipped", used.errors(draw_law(), every))
    for name, groups in (
        ("models held out", np.array([run.case.architecture.name for run in runs if run.case])),
        ("kinds held out", np.array([run.kind for run in runs])),
    ):
        errors = np.empty(len(runs))
        for group in np.unique(groups):
            errors[groups == group] = used.errors(used.fitted(groups != group), groups == group)
        yield _line(name, errors)
        if name == "kinds held out":
            for group in np.unique(groups):
                yield _line(f"  {group} by the other", errors[groups == group])
    yield _line("the board's power", 1.0 / used.share)


def _line(name: str, ratios: FloatArray) -> str:
    found = score(name, (ratios - 1.0).tolist())
    spread = float(np.quantile(np.abs(np.log(ratios)), INTERVAL))
    errors = f"median {found.median_absolute:.0%}, mean {found.mean_absolute:.0%}, bias {found.bias:+.0%}"
    return f"{name:<32}{found.rows:>4} runs, {errors}, four in five within {spread:.2f} in log"


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--models", type=Path, required=True, help="folder with a JSON file for each model and task"
    )
    runs = list(runs_of(parser.parse_args().models))
    print("\n".join([*shares_report(runs), "", *law_report([run for run in runs if run.case is not None])]))


if __name__ == "__main__":
    main()
