"""Estimates for rows that do not say enough to be priced: cells filled in with what is usual, each with a word why.

A row is read as it stands; what it lacks is filled in and it is read again.  Scores and fits never see such rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from benchmarks.rows import Row, Skipped, text
from benchmarks.serving_rows import MeasuredServing, measured_run
from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.errors import InvalidInput
from cluster_models.model.catalogue import catalogue_model
from cluster_models.serving.workload import MOST_REQUESTS

MOST_REPAIRS: Final = 12
USUAL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "engine+version": "vLLM 0.11",
        "gpu": "H100 SXM 80GB",
        "isl": "1024",
        "osl": "1024",
        "concurrency_or_rate": "16",
        "precision": "bf16",
        "tp": "8",
    }
)
_TRACES: Final = (("lmsys", "100", "200"), ("creation", "60", "500"), ("summarization", "2500", "150"))
"""Rough mean lengths of prompts and answers in chats, writing and summaries."""
_MODELS: Final = (
    "llama-3.1-8b", "qwen3-32b", "llama-3.1-70b", "bloom-176b", "llama-3.1-405b",
    "gpt-oss-20b", "qwen3-30b-a3b", "mixtral-8x7b", "llama-4-scout", "gpt-oss-120b", "qwen3-235b-a22b",
    "llama-4-maverick", "deepseek-v3", "kimi-k2",
)  # fmt: skip
"""Shapes that stand in for models without one, dense and with experts."""


def estimated_run(row: Row) -> tuple[MeasuredServing | None, str]:
    """The row as a case with all that had to be filled in, or ``None`` and the reason."""
    filled: dict[str, str] = dict(row)
    notes: list[str] = []
    for _ in range(MOST_REPAIRS):
        try:
            return measured_run(filled), "; ".join(notes)
        except (Skipped, InvalidInput) as error:
            reason = str(error) if isinstance(error, Skipped) else f"{error.field}: {error.problem}"
            changes = _repair(filled, reason)
            changes = {name: value for name, value in changes.items() if text(filled, name) != value}
            if not changes:
                return None, reason
            filled |= changes
            notes.append(f"{reason}: {', '.join(f'{name} taken as {value!r}' for name, value in changes.items())}")
    return None, notes[-1]


def _repair(row: Row, reason: str) -> Mapping[str, str]:
    """The cells to fill in for ``reason``; those of the worker where it is about nothing else."""
    found = re.match(r"(\S+) is not a (whole )?number", reason)
    if found:
        return {found[1]: USUAL.get(found[1], "")}
    repair = _load if reason.startswith("workload.concurrency") else _REPAIRS.get(reason)
    return repair(row) if repair else _one_worker(row)


def _lengths(row: Row) -> Mapping[str, str]:
    load = text(row, "concurrency_or_rate").lower()
    inputs, outputs = next(
        ((inputs, outputs) for name, inputs, outputs in _TRACES if name in load), (USUAL["isl"], USUAL["osl"])
    )
    return {
        name: text(row, name) if _is_positive(text(row, name)) else usual
        for name, usual in (("isl", inputs), ("osl", outputs))
    }


def _is_positive(cell: str) -> bool:
    return bool(re.fullmatch(r"0*[1-9]\d*(\.0*)?", cell))


def _load(row: Row) -> Mapping[str, str]:
    number = re.search(r"\d+", text(row, "concurrency_or_rate"))
    return {
        "concurrency_or_rate": number[0]
        if number and 0 < int(number[0]) <= MOST_REQUESTS
        else USUAL["concurrency_or_rate"]
    }


def _gpu(row: Row) -> Mapping[str, str]:
    """The catalogue's kind that the cell names, the longest name first; else the usual one."""
    cell = re.sub(r"[^a-z0-9]", "", text(row, "gpu").lower())
    for plain, name in _gpu_names():
        if plain in cell:
            return {"gpu": name}
    return {"gpu": USUAL["gpu"]}


@cache
def _gpu_names() -> tuple[tuple[str, str], ...]:
    names = [
        (name, kind.name)
        for kind in gpu_kinds().values()
        for name in (kind.name, *re.split(r"[-\s]", kind.name)[:1])
    ]
    plain = {(re.sub(r"[^a-z0-9]", "", name.lower()), kind) for name, kind in names}
    return tuple(sorted(plain, key=lambda pair: (-len(pair[0]), pair)))


def _model(row: Row) -> Mapping[str, str]:
    """The catalogued model of the nearest size of its kind; the number of parameters may stand in its name."""
    name = text(row, "model").lower()
    sizes = [float(size) for size in re.findall(r"(\d+(?:\.\d+)?)b(?![a-z])", name)]
    stated = text(row, "params_b")
    if re.fullmatch(r"\d+(\.\d+)?", stated) and float(stated) > 0:
        sizes.insert(0, float(stated))
    sparse = bool(re.search(r"moe|mixtral|a\d+b|x\d+b|deepseek|maverick|scout", name)) or text(row, "ep") not in (
        "",
        "1",
    )
    size = sizes[0] if sizes and sizes[0] > 0 else (671.0 if "deepseek" in name else 70.0)
    shapes = [catalogue_model(each) for each in _MODELS]
    near = min(
        (shape for shape in shapes if (shape.experts is not None) == sparse),
        key=lambda shape: abs(math.log(shape.parameters() / 1e9 / size)),
    )
    return {"model": near.name}


def _one_worker(row: Row) -> Mapping[str, str]:
    """An aggregated worker of all GPUs that are stated, at most a node of eight."""
    number = re.fullmatch(r"[1248]", text(row, "num_gpus") or text(row, "tp"))
    return {"tp": number[0] if number else USUAL["tp"], "pp": "1", "dp": "1", "ep": "1", "disagg": "no"}


_REPAIRS: Final[Mapping[str, Callable[[Row], Mapping[str, str]]]] = MappingProxyType(
    {
        "engine unknown": lambda _: {"engine+version": USUAL["engine+version"]},
        "GPU kind unknown": _gpu,
        "GPUs of several kinds": lambda row: {"gpu": re.split(r"\s*\(x\d+\)", text(row, "gpu"))[0]},
        "lengths not stated": _lengths,
        "prefill only": lambda _: {"osl": "2"},
        "load not stated": _load,
        "model shape unknown": _model,
        "degrees not stated": _one_worker,
        "weights unknown": lambda _: {"precision": USUAL["precision"]},
    }
)
