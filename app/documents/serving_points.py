"""A CSV table of measured points of serving, one a line; ``docs/calibrating.md`` explains the columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from app.documents.reading import InvalidDocument, problems_of
from app.documents.table_cells import Line, problems_of_lines, read_lines
from cluster_models.cluster.gpus import GpuKind
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.model.catalogue import catalogue_model
from cluster_models.serving.checks import check_serving
from cluster_models.serving.engines import serving_engine
from cluster_models.serving.hardware import check_gpu
from cluster_models.serving.workload import (
    MOST_DEGREE,
    MOST_DRAFTS,
    MOST_REPLICAS,
    MOST_REQUESTS,
    CacheFormat,
    Pool,
    ServingConfiguration,
    ServingWorkload,
    Speculation,
    WeightFormat,
    Worker,
)
from cluster_models.units import GBIT, MILLISECOND
from solver.serving.cases import CROSS_LATENCY_S, ServingCase
from solver.serving.loads import FloatArray, WorkerLinks

MOST_POINTS: Final = 1000
MOST_TOKENS: Final = 10**8
REQUIRED: Final = ("engine", "gpu", "model", "input_tokens", "output_tokens", "concurrency")
DEGREES: Final = ("tp", "pp", "attention_dp", "ep", "replicas")
FIGURES: Final = ("tpot_ms", "ttft_ms", "output_tok_s")
COLUMNS: Final = (
    "id",
    *REQUIRED,
    *FIGURES,
    *DEGREES,
    *(f"prefill_{name}" for name in DEGREES),
    "weights",
    "attention_weights",
    "kv_cache",
    "draft_tokens",
    "accepted_tokens",
    "prefix_share",
    "memory_fraction",
    "gpus_per_domain",
    "network_gbits_per_gpu",
    "sweep_id",
    "source",
    "notes",
)
"""Every column; the last two are for people and are not read."""
_WEIGHTS: Final = {str(each): each for each in WeightFormat}
_CACHES: Final = {str(each): each for each in CacheFormat}


@dataclass(frozen=True, slots=True, eq=False)
class ServingPoints:
    """n points by name, as cases, with their figures (n, 3) and the sweep of each.

    Figures are seconds per output token, seconds to the first token and requests a second, NaN where not measured.
    """

    names: tuple[str, ...]
    cases: tuple[ServingCase, ...]
    figures: FloatArray
    sweeps: tuple[str, ...]


def read_serving_points(text: str, *, what: str = "serving") -> ServingPoints:
    """The points of a CSV text; raises ``InvalidInput`` with lines, column and remedy of all that is wrong."""
    lines = list(read_lines(text, known=COLUMNS, required=REQUIRED, most=MOST_POINTS, what=what))
    found = [_point(line) for line in lines]
    if problems := problems_of_lines(lines):
        raise InvalidDocument(problems)
    if not found:
        raise InvalidInput(what, "", "holds no point", "put one point on each line below the head")
    cases, figures = zip(*(each for each in found if each is not None), strict=True)
    sweeps = tuple(
        line.cells.get("sweep_id") or f"{case.architecture.name} {case.configuration} {case.workload.weights}"
        for line, case in zip(lines, cases, strict=True)
    )
    names = tuple(line.text("id") or f"line {line.number}" for line in lines)
    return ServingPoints(names, cases, np.array(figures, dtype=np.float64), sweeps)


def _point(line: Line) -> tuple[ServingCase, tuple[float, ...]] | None:
    """The case of a line and its figures, or ``None`` with the problems noted."""
    engine = line.named("engine", serving_engine, required="name an engine generation, like vllm-0.16")
    gpu = line.gpu()
    architecture = line.named(
        "model", catalogue_model, required="name a model of the catalogue, like llama-3.1-70b"
    )
    tokens = [
        line.whole(name, required="mean tokens", most=MOST_TOKENS) for name in ("input_tokens", "output_tokens")
    ]
    concurrency = line.number_in("concurrency", required="requests in flight, all replicas together")
    figures = [line.number_in(name) for name in FIGURES]
    pools = {prefix: [_degree(line, f"{prefix}{name}") for name in DEGREES] for prefix in ("", "prefill_")}
    options = _options(line)
    if not line.problems and not any(figures):
        line.problem(FIGURES[0], "is missing, and so are the other figures", f"give one of {', '.join(FIGURES)}")
    if line.problems or engine is None or gpu is None or architecture is None or concurrency is None:
        return None
    try:
        input_tokens, output_tokens = (each or 0 for each in tokens)
        workload = ServingWorkload(
            input_tokens, output_tokens, concurrency=min(concurrency, MOST_REQUESTS), engine=engine, **options
        )
        split = any(line.text(f"prefill_{name}") for name in DEGREES)
        configuration = ServingConfiguration(_pool(pools[""]), _pool(pools["prefill_"]) if split else None)
        check_serving(architecture, workload, configuration)
        check_gpu(workload, gpu)
        case = _case(line, architecture, gpu, workload, configuration)
    except InvalidInput as error:
        line.problems += [replace(found, field=f": {found.field}") for found in problems_of(error)]
        return None
    token, first, output = (np.nan if each is None else each for each in figures)
    return case, (token * MILLISECOND, first * MILLISECOND, output / output_tokens)


def _case(
    line: Line,
    architecture: Architecture,
    gpu: GpuKind,
    workload: ServingWorkload,
    configuration: ServingConfiguration,
) -> ServingCase:
    domain = line.whole("gpus_per_domain", most=MOST_DEGREE) or gpu.scale_up_domain_gpus
    network = line.number_in("network_gbits_per_gpu")
    largest = max(pool.worker.gpus for pool in configuration.pools)
    crosses = largest > domain or (configuration.is_split and configuration.gpus > domain)
    if network is None and crosses:
        what = f"is missing: {configuration.gpus} GPUs reach beyond {domain} joined by NVLink"
        raise InvalidInput("network_gbits_per_gpu", None, what, "give what the network carries per GPU, like 400")
    cross = gpu.scale_up_bytes_per_s if network is None else network * GBIT
    links = WorkerLinks(domain, gpu.scale_up_bytes_per_s, cross, CROSS_LATENCY_S)
    return ServingCase(architecture, gpu, links, workload, configuration, transfer_bytes_per_s=cross)


def _options(line: Line) -> dict[str, Any]:
    """Formats and settings of the engine, those that are stated."""
    found: dict[str, Any] = {
        "weights": line.choice("weights", _WEIGHTS),
        "attention_weights": line.choice("attention_weights", _WEIGHTS),
        "cache": line.choice("kv_cache", _CACHES),
        "prefix_share": line.number_in("prefix_share", zero=True),
        "memory_fraction": line.number_in("memory_fraction"),
    }
    drafts = line.whole("draft_tokens", most=MOST_DRAFTS)
    accepted = line.number_in("accepted_tokens", required="tokens that stay" if drafts else "", zero=True)
    if drafts and accepted is not None:
        try:
            found["speculation"] = Speculation(drafts, accepted)
        except InvalidInput as error:
            line.problem("accepted_tokens", error.problem, error.remedy)
    return {name: value for name, value in found.items() if value is not None}


def _degree(line: Line, column: str) -> int:
    return line.whole(column, most=MOST_REPLICAS if column.endswith("replicas") else MOST_DEGREE) or 1


def _pool(degrees: list[int]) -> Pool:
    *worker, replicas = degrees
    return Pool(Worker(*worker), replicas)
