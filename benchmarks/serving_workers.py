"""Workers of measured serving rows: degrees and pools that a row states, and usual ones where it is silent."""

from __future__ import annotations

import re
from typing import Final

from benchmarks.rows import Assumed, Row, Skipped, number, text, whole
from cluster_models.serving.workload import Pool, ServingConfiguration, Worker

NODE_GPUS: Final = 8
USUAL_DECODE_WORKERS: Final = 4
"""Decode workers of split rows that are stated in full, at small loads."""
USUAL_PREFILL_GPUS: Final = 4
USUAL_WIDE_GPUS: Final = 16
"""GPUs of a decode worker of attention data parallelism, as those rows have it."""
FEW_PER_WORKER: Final = 24
"""Requests in flight of a decode worker above which those rows have attention data parallelism."""
_POOL: Final = re.compile(r"(\d*)x\(([^)]*)\)=\s*(\d*)\s*GPUs")


def configuration_of(row: Row, assumed: Assumed, *, sparse: bool) -> tuple[ServingConfiguration, str]:
    """The pools of a row, and what it leaves open of them (empty: nothing); ``sparse``: the model has experts.

    Raises ``Skipped`` where there is nothing to go by.
    """
    split = text(row, "disagg")
    if split in ("no", ""):
        if _is_whole_deployment(row):
            return _undivided(row, assumed)
        return ServingConfiguration(_aggregated(row, assumed, sparse)), ""
    found = _POOL.findall(split)
    if len(found) != 2:
        raise Skipped("split pools not stated")
    if found[0][0] and found[0][2]:
        return ServingConfiguration(decode=_pool(*found[1], sparse), prefill=_pool(*found[0], sparse)), ""
    shapes = [_degrees(shape) for _, shape, _ in found]
    prefill, decode = (shape.get("tp", 1) for shape in shapes)
    if sparse and decode == 1:  # one rank of attention data parallelism, the usual way to write such workers
        prefill, decode = USUAL_PREFILL_GPUS, USUAL_WIDE_GPUS
        assumed.take("GPUs of a decode worker", USUAL_WIDE_GPUS, "one rank stated")
    return _recipe(prefill, decode, sparse, number(row, "concurrency_or_rate") or 1.0, assumed)


def _recipe(
    prefill: int, decode: int, sparse: bool, load: float, assumed: Assumed
) -> tuple[ServingConfiguration, str]:
    """The pools of a row that states the GPUs of one worker of each, but not how many workers there are.

    The fully stated rows of the same deployments have one prefill worker of attention data parallelism; for decode
    at small loads four workers of tensor parallelism over up to 8 GPUs, else one of attention data parallelism.
    """
    assumed.take("workers of each pool", "as usual", "not stated")
    first = Worker(1, 1, prefill, prefill) if sparse else Worker(tensor=prefill)
    if sparse and (decode > NODE_GPUS or load > USUAL_DECODE_WORKERS * FEW_PER_WORKER):
        second = Pool(Worker(1, 1, decode, decode))
    else:
        second = Pool(Worker(tensor=decode, expert=decode if sparse else 1), USUAL_DECODE_WORKERS)
    return ServingConfiguration(decode=second, prefill=Pool(first)), "number of workers and speculation not stated"


def _is_whole_deployment(row: Row) -> bool:
    """Whether ``tp`` of an aggregated row counts all GPUs of a split deployment: no node has as many."""
    tensor = whole(row, "tp") or 1
    return (
        "2026-04-06" in text(row, "source")
        and (whole(row, "ep") or 1) == 1
        and (tensor > 8 or tensor & (tensor - 1) > 0)
    )


def _undivided(row: Row, assumed: Assumed) -> tuple[ServingConfiguration, str]:
    """A row that states all GPUs of a split deployment as one worker."""
    gpus = whole(row, "tp") or 1
    decode = gpus - USUAL_PREFILL_GPUS
    load = number(row, "concurrency_or_rate") or 1.0
    assumed.take("prefill GPUs", USUAL_PREFILL_GPUS, "all GPUs are stated as one worker")
    if load <= decode // NODE_GPUS * FEW_PER_WORKER and decode % NODE_GPUS == 0:
        second = Pool(Worker(tensor=NODE_GPUS, expert=NODE_GPUS), decode // NODE_GPUS)
    else:
        second = Pool(Worker(1, 1, decode, decode))
    first = Pool(Worker(1, 1, USUAL_PREFILL_GPUS, USUAL_PREFILL_GPUS))
    return ServingConfiguration(decode=second, prefill=first), "pools not stated"


def _aggregated(row: Row, assumed: Assumed, sparse: bool) -> Pool:
    gpus, tensor, data = whole(row, "num_gpus"), whole(row, "tp"), whole(row, "dp") or 1
    expert = whole(row, "ep") or 1
    pipeline = whole(row, "pp") or 1
    if tensor is None:
        if gpus is None or "MLPerf" not in text(row, "source"):
            raise Skipped("degrees not stated")
        tensor = assumed.take("tensor", gpus if sparse else 1, "not published")
    if expert > 1 and _counts_experts_twice(row):
        tensor, data, expert = _without_experts(row, tensor, data, expert)
        gpus = tensor * data
    sliced = re.search(r"moe_tp=(\d+)", text(row, "notes"))
    if sparse and sliced and data == 1 and "attention DP given as 0" in text(row, "notes"):
        data = max(1, int(sliced[1]) * expert // tensor)  # tensor x attention data = expert tensor x expert
    attention = data if sparse and data > 1 else 1
    load, batch = number(row, "batch"), None
    if re.fullmatch(r"\d+", text(row, "concurrency_or_rate")):
        batch = number(row, "concurrency_or_rate")
    replicas = 1
    if gpus is None and load and batch and batch > load:
        if sparse and expert > 1:  # attention data parallelism inside the worker
            attention = min(tensor, max(1, round(batch / load)))
            tensor = max(1, tensor // attention)
        else:
            replicas = round(batch / load)
    expert = expert if (tensor * attention) % expert == 0 else tensor * attention
    if "MLPerf" in text(row, "source") and gpus:
        replicas = max(1, gpus // (tensor * pipeline * attention))
    if not sparse:
        expert = 1
    return Pool(Worker(tensor, pipeline, attention, expert), replicas)


def _counts_experts_twice(row: Row) -> bool:
    """Whether a row's ``tp`` or ``dp`` is a product with ``ep``, as in two exports.

    Runs that these share with others, down to the last digit of their times, state the GPUs of one worker there.
    """
    return any(export in text(row, "source") for export in ("2026-04-06", "db-dump/2026-04-27"))


def _without_experts(row: Row, tensor: int, data: int, expert: int) -> tuple[int, int, int]:
    """Degrees of a row of these exports without the factor ``ep``."""
    sliced = re.search(r"moe_tp=(\d+)", text(row, "notes"))
    slices = int(sliced[1]) if sliced else 1
    if tensor > 1 and data > 1 and tensor * data == expert:
        return tensor, 1, tensor
    if slices > 1 and data == slices * expert and tensor == 1:
        return 1, slices, expert
    if slices > 1 and tensor == slices * expert:
        return slices, 1, expert
    return tensor, data, expert


def _degrees(shape: str) -> dict[str, int]:
    return {name: max(int(value), 1) for name, value in re.findall(r"(?<![a-z_])(tp|pp|ep|dp)(\d+)", shape)}


def _pool(count: str, shape: str, gpus: str, sparse: bool) -> Pool:
    """A pool written as ``2x(tp8,ep8,dpattn=true)=16 GPUs`` or ``4x(tp8,pp1,dp1,moe_tp1,ep8,bs1)=32 GPUs``."""
    values = _degrees(shape)
    replicas = max(int(count), 1)
    tensor, pipeline = values.get("tp", 1), values.get("pp", 1)
    stage = max(tensor * values.get("dp", 1), int(gpus) // replicas)
    expert = values.get("ep", 1)
    if "dpattn=true" in shape:
        tensor, expert = 1, stage
    elif "dpattn=false" in shape:
        tensor = stage
    data = max(1, stage // tensor)
    if not sparse:
        return Pool(Worker(tensor, pipeline), replicas * data)
    return Pool(Worker(tensor, pipeline, data, expert if stage % expert == 0 else stage), replicas)
