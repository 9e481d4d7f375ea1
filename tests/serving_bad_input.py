"""Workloads of serving that every face refuses: changes to a sound one, the field named, and what is said."""

from __future__ import annotations

import math
from typing import Any, Final

SOUND: Final[dict[str, Any]] = {
    "kind": "serving",
    "input_tokens": 1024,
    "output_tokens": 512,
    "concurrency": 64.0,
    "weights": "fp8",
}
"""For ``llama-3.1-8b`` on GPUs of kind H100."""


def _rate(value: object) -> dict[str, object]:
    return {"concurrency": None, "requests_per_s": value}


def _accepted(value: float) -> dict[str, object]:
    return {"speculation": {"draft_tokens": 2, "accepted_tokens": value}}


CLASS: Final[dict[str, Any]] = {"name": "chat", "input_tokens": 1024, "output_tokens": 256}


def _classes(*changes: dict[str, Any]) -> dict[str, Any]:
    """Classes like ``CLASS`` with changes, in place of the mean lengths."""
    return {"input_tokens": None, "output_tokens": None, "classes": [CLASS | each for each in changes]}


def _trace(rows: str, **others: Any) -> dict[str, Any]:
    """A trace in place of lengths and load."""
    alone = {"input_tokens": None, "output_tokens": None, "concurrency": None}
    return alone | {"trace": f"arrival_s,input_tokens,output_tokens\n{rows}"} | others


BAD: Final[dict[str, tuple[dict[str, Any], str, str]]] = {
    "rate of zero": (_rate(0), "requests_per_s", "must be greater than 0"),
    "negative rate": (_rate(-1), "requests_per_s", "must be greater than 0"),
    "rate of infinity": (_rate(math.inf), "requests_per_s", "must be a finite number"),
    "rate that is not a number": (_rate(math.nan), "requests_per_s", "must be a finite number"),
    "rate beyond reason": (_rate(1e9), "requests_per_s", "must be at most 1000000"),
    "rate in words": (_rate("fast"), "requests_per_s", "must be a number"),
    "nothing in flight": ({"concurrency": 0}, "concurrency", "must be greater than 0"),
    "infinitely many in flight": ({"concurrency": math.inf}, "concurrency", "must be a finite number"),
    "two loads": ({"requests_per_s": 1.0}, "concurrency", "exactly one of concurrency and requests_per_s"),
    "no load": ({"concurrency": None}, "concurrency", "exactly one of concurrency and requests_per_s"),
    "empty prompt": ({"input_tokens": 0}, "input_tokens", "must be at least 1"),
    "broken token": ({"input_tokens": 10.5}, "input_tokens", "must be a whole number"),
    "empty answer": ({"output_tokens": 0}, "output_tokens", "must be at least 1"),
    "prompt beyond the context": ({"input_tokens": 200_000}, "input_tokens", "llama-3.1-8b takes 131072"),
    "answer beyond the context": ({"output_tokens": 200_000}, "input_tokens", "lower input_tokens"),
    "less than nothing accepted": (_accepted(-0.1), "speculation.accepted_tokens", "must be at least 0"),
    "more accepted than drafted": (_accepted(3.0), "speculation.accepted_tokens", "must lie in 0..2"),
    "acceptance not a number": (_accepted(math.nan), "speculation.accepted_tokens", "must be a finite number"),
    "no drafts": (
        {"speculation": {"draft_tokens": 0, "accepted_tokens": 0}},
        "speculation.draft_tokens",
        "must be at least 1",
    ),
    "unknown format": ({"weights": "fp5"}, "weights", "must be one of bf16, fp8, int8, int4, nvfp4, mxfp4"),
    "format that the engine lacks": (
        {"weights": "nvfp4", "engine": "vllm-0.6"},
        "weights",
        "vllm-0.6 does not serve this format",
    ),
    "format that the GPU lacks": (
        {"weights": "nvfp4", "engine": "trtllm-1.2"},
        "weights",
        "no tensor cores for this format, and trtllm-1.2 does not widen it",
    ),
    "attention in a format that the GPU lacks": (
        {"attention_weights": "nvfp4", "engine": "sglang-0.5.8"},
        "attention_weights",
        "use one of bf16, fp8, int8, int4, mxfp4",
    ),
    "unknown cache format": ({"kv_cache": "int4"}, "kv_cache", "must be one of bf16, fp8"),
    "unknown engine": ({"engine": "vllm-9"}, "engine", "use one of vllm-2023"),
    "engine for other GPUs": ({"engine": "atom-0.1"}, "engine", "it is for GPUs of AMD"),
    "engine without drafts": (
        {"weights": "bf16", "engine": "vllm-2023"} | _accepted(1.0),
        "speculation",
        "no speculative decoding",
    ),
    "engine that cannot split": (
        {"modes": ["split"], "engine": "vllm-0.6"},
        "modes",
        "cannot split prefill from decode",
    ),
    "no mode": ({"modes": []}, "modes", "list aggregated, split or both"),
    "limit of zero": ({"time_to_first_token_ms": 0}, "time_to_first_token_ms", "must be greater than 0"),
    "infinite limit": ({"end_to_end_ms": math.inf}, "end_to_end_ms", "must be a finite number"),
    "percentile in percent": ({"limit_percentile": 99}, "limit_percentile", "must be less than 1"),
    "prefix of the whole prompt": ({"prefix_share": 1.0}, "prefix_share", "must be less than 1"),
    "negative imbalance": ({"decode_imbalance": -0.1}, "decode_imbalance", "must be at least 0"),
    "imbalance of a dense model": ({"decode_imbalance": 0.1}, "decode_imbalance", "llama-3.1-8b has no experts"),
    "adapters beside what there are": (
        {"adapters": {"count": 4, "rank": 8, "resident": 5}},
        "adapters.resident",
        "in 1..4",
    ),
    "adapters of no rank": ({"adapters": {"count": 4, "rank": 0}}, "adapters.rank", "must be at least 1"),
    "adapters of an engine without": (
        {"adapters": {"count": 4, "rank": 8}, "engine": "trtllm-1.2"},
        "adapters",
        "no adapters are planned for this engine",
    ),
    "counts of a dense model": (
        {"routing": {"workloads": [{"name": "chat", "logical_count": [[1, 2]]}]}},
        "routing",
        "has no experts",
    ),
    "no counts": ({"routing": {"redundant_experts": 4}}, "routing", "has no counts"),
    "no memory": ({"memory_fraction": 0}, "memory_fraction", "must be greater than 0"),
    "pin that divides no heads": ({"pinned": {"tensor": 3}}, "pinned.tensor", "must divide the 32 attention heads"),
    "pin beyond the cluster": ({"pinned": {"tensor": 32}}, "pinned", "pin fewer or smaller degrees"),
    "pinned experts of a dense model": ({"pinned": {"expert": 2}}, "pinned.expert", "has no experts"),
    "pin of nothing": ({"pinned": {"tensr": 2}}, "pinned", "use tensor, pipeline"),
    "unknown objective": ({"objective": "fun"}, "objective", "must be one of throughput"),
    "no GPUs": ({"max_gpus": 0}, "max_gpus", "must be at least 1"),
    "negative power": ({"max_power_watts": -1}, "max_power_watts", "must be greater than 0"),
    "unknown node": ({"avoid_nodes": ["z"]}, "avoid_nodes", "is not a node of the cluster"),
    "unknown field": ({"objectiv": "gpus"}, "objectiv", "did you mean 'objective'"),
    "trace out of order": (_trace("0,5,5\n2,5,5\n1,5,5\n"), "trace", "row 3: comes before the arrival at 2 s"),
    "class that the trace lacks": (
        _trace("0,5,5\n1,5,5\n", classes=[{"name": "chat", "end_to_end_ms": 5}]),
        "classes[0].name",
        "give the trace a column class",
    ),
    "class of a trace with lengths": (
        _trace("0,5,5\n1,5,5\n", classes=[CLASS]),
        "classes[0].input_tokens",
        "conflicts with a trace",
    ),
    "class without lengths": (
        {"input_tokens": None, "output_tokens": None, "classes": [{"name": "chat", "output_tokens": 5}]},
        "classes[0].input_tokens",
        "give a number, quantiles or a histogram",
    ),
    "trace before its start": (
        _trace("-1,5,5\n"),
        "trace",
        "row 1: arrival_s must be a finite number, not negative",
    ),
    "trace with cells of no column": (
        _trace("0,5,5\n1,5,5,7\n"),
        "trace",
        "row 2: has more cells than the head",
    ),
    "trace of one request": (_trace("3,5,5\n"), "trace", "its only request arrives at 3 s, which is not a rate"),
    "trace with a number that is none": (
        _trace("0,5,5\n1,nan,5\n"),
        "trace",
        "row 2: input_tokens must be a whole",
    ),
    "trace without arrivals": (_trace(""), "trace", "has no requests"),
    "trace of one moment": (_trace("1,5,5\n1,5,5\n"), "trace", "all arrive at 1 s, which is not a rate"),
    "trace beyond the context": (
        _trace("0,5,5\n1,131000,100\n"),
        "trace",
        "row 2: input and output tokens together are 131100, llama-3.1-8b takes 131072",
    ),
    "trace beside a load": (_trace("0,5,5\n1,5,5\n", concurrency=4.0), "concurrency", "conflicts with a trace"),
    "empty classes": (_classes(), "classes", "give at least one"),
    "classes beside mean lengths": (
        {"classes": [CLASS]},
        "input_tokens",
        "conflicts with classes",
    ),
    "no lengths": (
        {"output_tokens": None},
        "output_tokens",
        "give input_tokens and output_tokens, classes or a trace",
    ),
    "class without a share": (_classes({"share": 0}), "classes[0].share", "must be greater than 0"),
    "class without answers": (_classes({"output_tokens": 0}), "classes[0].output_tokens", "must be at least 1"),
    "class of no lengths": (
        _classes({"input_tokens": {}}),
        "classes[0].input_tokens",
        "needs either quantiles or histogram",
    ),
    "quantiles that fall": (
        _classes({"input_tokens": {"quantiles": {"p50": 900, "p90": 100}}}),
        "classes[0].input_tokens.quantiles",
        "0.9 of the requests have at most 100 tokens, 0.5 of them 900",
    ),
    "quantile of nothing": (
        _classes({"input_tokens": {"quantiles": {"median": 900}}}),
        "classes[0].input_tokens.quantiles",
        "write it like p50",
    ),
    "histogram of nothing": (
        _classes({"output_tokens": {"histogram": [[900, 0]]}}),
        "classes[0].output_tokens.histogram",
        "counts nothing",
    ),
    "histogram with a number that is none": (
        _classes({"output_tokens": {"histogram": [[900, math.nan]]}}),
        "classes[0].output_tokens.histogram[0][1]",
        "must be a finite number",
    ),
    "classes of one name": (_classes({}, {}), "classes[1].name", "another class has this name"),
    "class beyond the context": (
        _classes({"input_tokens": {"histogram": [[100, 9], [200_000, 1]]}}),
        "classes[0].input_tokens",
        "the longest prompt and answer of chat together are 200256, llama-3.1-8b takes 131072",
    ),
    "prefix of all classes": (
        _classes({}) | {"prefix_share": 0.5},
        "prefix_share",
        "give prefix_share of each class",
    ),
}
"""By what is wrong."""


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """The sound workload with ``changes``; ``None`` takes a field out."""
    return {name: value for name, value in (SOUND | changes).items() if value is not None}
