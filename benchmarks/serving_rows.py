"""Rows of measured serving runs as cases: what a row states, and what is taken where it is silent.

Columns: see the README beside the table.  A row that cannot be told apart from others in what decides its time
(no lengths, no worker, a model without a shape) is skipped with a reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.rows import Assumed, Row, Skipped, number, text, whole
from benchmarks.serving_contradictions import contradictions
from benchmarks.serving_models import model_shape
from benchmarks.serving_workers import configuration_of
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import GpuKind
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.serving.engines import ServingEngine, serving_engine
from cluster_models.serving.workload import (
    MOST_REQUESTS,
    CacheFormat,
    ServingConfiguration,
    ServingWorkload,
    Speculation,
    WeightFormat,
)
from solver.serving.cases import CROSS_LATENCY_S, ServingCase
from solver.serving.loads import WorkerLinks

MEAN_OF_RANDOM_LENGTHS: Final = 0.9
"""InferenceMAX draws lengths evenly between 0.8 of the stated ones and these (``--random-range-ratio 0.8``)."""
DRAFTS: Final = Speculation(draft_tokens=2, accepted_tokens=1.2)
"""Where a row says only that tokens were predicted: recipes draft 1 to 3 tokens, 0.6 of each being accepted."""
NETWORK_BYTES_PER_S: Final = 50e9
"""One NIC of 400 Gb/s a GPU, the usual node of these kinds."""
CROSS_SHARE: Final = 0.7
MEASURED_MEMORY_FRACTION: Final = 0.95
"""Benchmarks give engines as much memory as they can."""
_GPUS: Final = (
    ("rtx pro 6000", "RTX PRO 6000 Server"), ("gb300", "GB300"), ("gb200", "GB200"), ("b300", "B300-SXM-288GB"),
    ("b200", "B200-SXM-180GB"), ("h200-nvl", "H200-SXM-141GB"), ("h200", "H200-SXM-141GB"),
    ("h800", "H800-SXM-80GB"), ("h100", "H100-SXM5-80GB"), ("a100", "A100-SXM4-80GB"),
    ("mi355x", "MI355X"), ("mi325x", "MI325X"), ("mi300x", "MI300X"),
)  # fmt: skip
_ENGINES: Final = (
    (r"vllm-based prototype", "vllm-2023"),
    (r"atom", "atom-0.1"),
    (r"dynamo-sglang.*0\.5\.[5-7]|sglang.*0\.5\.[5-7](?!\d)", "sglang-0.5.5"),
    (r"sglang.*0\.5\.[0-4](?!\d)|sglang.*(may|jun|jul) 2025", "sglang-0.5.1"),
    (r"sglang.*nan", "sglang-0.5.5"),
    (r"sglang", "sglang-0.5.8"),
    (r"trtllm 1\.3", "trtllm-1.3"),
    (r"dynamo-trt|trtllm (1\.2|0\.[78]\.)|later docs", "trtllm-1.2"),
    (r"trtllm (1\.1|nan)", "trtllm-1.1"),
    (r"trtllm|tensorrt", "trtllm-1.0"),
    (r"v?llm.*0\.1[2-4](?!\d)", "vllm-0.13"),
    (r"v?llm.*0\.1[5-9](?!\d)|feb 2026|nightly", "vllm-0.16"),
    (r"v?llm.*(0\.(9|10|11)(?!\d)|nan|dec 2025)", "vllm-0.11"),
    (r"vllm", "vllm-0.6"),
)  # fmt: skip
_MLPERF_TOKENS: Final = {
    "llama2-70b": (294, 294),
    "llama3.1-405b": (9428, 684),
    "mixtral-8x7b": (291, 145),
    "deepseek-r1": (800, 3886),
    "llama3.1-8b": (870, 128),
}
"""Mean input and output tokens of the data sets (MLPerf Inference 5.1, its reference code; inputs roughly)."""


@dataclass(frozen=True, slots=True)
class MeasuredServing:
    """A row as a case, what was measured (``None``: not stated), and what was assumed.

    ``output_tok_s_per_gpu`` counts every GPU of the deployment.  ``doubt`` says why a row leaves open what decides
    its time; such rows are scored by themselves.  ``contradiction`` is what the row contradicts among all that were
    read with it.
    """

    row: Row
    case: ServingCase
    ttft_s: float | None
    tpot_s: float | None
    output_tok_s_per_gpu: float | None
    assumed: tuple[str, ...]
    doubt: str
    contradiction: str = ""

    @property
    def name(self) -> str:
        """The row's id."""
        return text(self.row, "id")

    @property
    def mode(self) -> str:
        """Kind of run: aggregated, split, offline (as many requests as fit) or static (one batch, no refilling)."""
        if self.case.client == "static":
            return "static batch"
        if self.case.client == "offline":
            return "offline"
        return "split" if self.case.configuration.is_split else "aggregated"


def serving_runs(rows: Iterable[Row]) -> tuple[list[MeasuredServing], Counter[str]]:
    """The rows that can be priced, and how many cannot, by reason."""
    kept: list[MeasuredServing] = []
    skipped: Counter[str] = Counter()
    for row in rows:
        try:
            kept.append(measured_run(row))
        except Skipped as reason:
            skipped[str(reason)] += 1
        except InvalidInput as error:
            skipped[f"{error.field}: {error.problem}"] += 1
    found = zip(kept, contradictions(kept), strict=True)
    return [replace(run, contradiction=reason) for run, reason in found], skipped


def engine_of(row: Row) -> ServingEngine:
    """The generation that served a row."""
    name = text(row, "engine+version").lower()
    for pattern, engine in _ENGINES:
        if re.search(pattern, name):
            return serving_engine(engine)
    raise Skipped("engine unknown")


def measured_run(row: Row) -> MeasuredServing:
    """The row as a case; raises ``Skipped`` or ``InvalidInput`` where it cannot be priced as it stands."""
    assumed = Assumed()
    gpu = _gpu(row)
    architecture = model_shape(text(row, "model"), assumed)
    engine = engine_of(row)
    load = text(row, "concurrency_or_rate")
    client = client_of(row)
    inputs, outputs = _lengths(row, assumed, client)
    configuration, doubt = configuration_of(row, assumed, sparse=architecture.experts is not None)
    if load in ("Server", "Interactive"):
        doubt = "load limited by a benchmark's latency rules"
    speculation = DRAFTS if "spec_decoding=mtp" in text(row, "notes") else None
    if speculation is None and _may_speculate(row, architecture, configuration):
        doubt = "speculation not stated"
        speculation = assumed.take(
            "speculation", DRAFTS, "expert parallel TensorRT-LLM recipes of DeepSeek predict tokens"
        )
    weights = _weights(row, gpu, architecture.name, assumed)
    concurrency = _concurrency(row, load, configuration)
    workload = ServingWorkload(
        input_tokens=inputs,
        output_tokens=outputs,
        concurrency=concurrency,
        weights=weights,
        cache=CacheFormat.FP8 if text(row, "kv_precision") == "fp8" else None,
        engine=engine,
        memory_fraction=MEASURED_MEMORY_FRACTION,
        speculation=speculation,
    )
    domain = gpu.scale_up_domain_gpus
    links = WorkerLinks(domain, gpu.scale_up_bytes_per_s, CROSS_SHARE * NETWORK_BYTES_PER_S, CROSS_LATENCY_S)
    case = ServingCase(
        architecture, gpu, links, workload, configuration,
        transfer_bytes_per_s=gpu.scale_up_bytes_per_s if domain > 8 else CROSS_SHARE * NETWORK_BYTES_PER_S,
        client=client,
    )  # fmt: skip
    return MeasuredServing(
        row=row,
        case=case,
        ttft_s=_seconds(row, "ttft_ms"),
        tpot_s=_seconds(row, "tpot_ms"),
        output_tok_s_per_gpu=_throughput(row, configuration, stated=not doubt),
        assumed=tuple(assumed.notes),
        doubt=doubt,
    )


def _may_speculate(row: Row, architecture: Architecture, configuration: ServingConfiguration) -> bool:
    """Whether a row of an export that does not say so is likely to have predicted tokens."""
    return (
        architecture.prediction_layers > 0
        and "aiconfigurator" in text(row, "source")
        and "trtllm" in text(row, "engine+version")
        and not configuration.is_split
        and configuration.decode.worker.expert > 1
        and "measured=" in text(row, "notes")
    )


def client_of(row: Row) -> str:
    """How the load was made: by InferenceMAX' client, as one static batch, offline, or otherwise."""
    notes, source = text(row, "notes"), text(row, "source")
    if "static batch" in notes:
        return "static"
    if text(row, "concurrency_or_rate").startswith(("inf", "Offline", "Server", "Interactive")):
        return "offline"
    if "InferenceMAX" in source or "wip=" in notes or "workflow_run_id" in notes:
        return "inferencemax"
    return "fixed"


def _gpu(row: Row) -> GpuKind:
    name = text(row, "gpu").lower()
    if "(x32)" in name:
        raise Skipped("GPUs of several kinds")
    for part, kind in _GPUS:
        if part in name:
            return gpu_kind(kind)
    try:
        return gpu_kind(text(row, "gpu"))
    except InvalidInput:
        raise Skipped("GPU kind unknown") from None


def _lengths(row: Row, assumed: Assumed, client: str) -> tuple[int, int]:
    inputs, outputs = whole(row, "isl"), whole(row, "osl")
    if inputs is None or outputs is None:
        if "MLPerf dataset" in text(row, "notes"):
            tokens = _MLPERF_TOKENS.get(text(row, "model"))
            if tokens is None:
                raise Skipped("lengths not stated")
            return assumed.take("mean input and output tokens", tokens, "of the data set")
        raise Skipped("lengths not stated")
    if outputs < 2:
        raise Skipped("prefill only")
    if client == "inferencemax":
        return max(1, round(inputs * MEAN_OF_RANDOM_LENGTHS)), max(2, round(outputs * MEAN_OF_RANDOM_LENGTHS))
    return inputs, outputs


def _weights(row: Row, gpu: GpuKind, model: str, assumed: Assumed) -> WeightFormat:
    stated = text(row, "precision").lower()
    if model.startswith("gpt-oss"):
        return WeightFormat.MXFP4
    if stated in ("fp4", "nvfp4"):
        return WeightFormat.MXFP4 if gpu.vendor == "AMD" else WeightFormat.NVFP4
    if stated == "uint4":
        return WeightFormat.INT4
    if stated in ("fp16", "bf16"):
        return WeightFormat.BF16
    if stated in tuple(WeightFormat):
        return WeightFormat(stated)
    if stated:
        raise Skipped("weights unknown")
    return assumed.take("weights", WeightFormat.BF16)


def _concurrency(row: Row, load: str, configuration: ServingConfiguration) -> float:
    if re.fullmatch(r"\d+", load):
        return float(load)
    if load.startswith(("inf", "Offline", "Server", "Interactive")):
        return float(MOST_REQUESTS)
    batch = text(row, "batch")
    if not load and re.fullmatch(r"\d+", batch):
        return float(batch)
    decode = re.search(r"D: .*bs(\d+)", text(row, "disagg"))
    if decode:
        return float(decode[1]) * configuration.decode.replicas * configuration.decode.worker.attention_data
    raise Skipped("load not stated")


def _seconds(row: Row, column: str) -> float | None:
    value = number(row, column)
    return None if value is None else value / 1000.0


def _throughput(row: Row, configuration: ServingConfiguration, *, stated: bool) -> float | None:
    """Output tokens a second of each GPU; rows that state a total count the GPUs they name."""
    each = number(row, "output_tok_s_per_gpu")
    if each is not None:
        return each
    total = number(row, "output_tok_s_total")
    gpus = whole(row, "num_gpus") or (configuration.gpus if stated else None)
    return None if total is None or gpus is None else total / gpus
