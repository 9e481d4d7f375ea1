"""Workloads of serving that do not say so, recognised by their words: one answer to all of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from pydantic_core import PydanticCustomError

SERVING: Final = "serving_workload"
"""The code of the refusal among pydantic's."""
PROBLEM: Final = "describes serving, and is read as a workload of training"
REMEDY: Final = (
    "a workload of serving says kind: serving, input_tokens, output_tokens, and concurrency or requests_per_s; a "
    "training workload gives sequence_length and global_batch_sequences, one of reinforcement learning says kind: "
    "reinforcement"
)
_KINDS: Final = frozenset({"kind", "type", "task", "mode", "workload", "purpose"})
_VALUES: Final = re.compile(r"serv(e|ing)|(online|offline)?_?(inference|generation)|decod(e|ing)|prefill", re.ASCII)
_FIELDS: Final = re.compile(
    r"(serving|inference|prefill|decode|prompt|ttft|tpot|itl|qps|rps|slo|kv_cache)(_.*)?"
    r"|(mean|max|min|p\d+|target)_(ttft|tpot|itl|qps|rps)(_.*)?"
    r"|(.*_)?(time_to_first_token|time_per_output_token|inter_token_latency)(_.*)?"
    r"|(.*_)?(input|output|prompt|generated|new|completion)_(tokens?|len(gths?)?)(_.*)?"
    r"|(.*_)?(requests?|queries)_(rates?|per_s(econd)?|per_minute)|(request|arrival)_rate.*"
    r"|(.*_)?(concurrency|concurrent_(requests|users|sequences))",
    re.ASCII,
)


def refuse_serving(data: object, known: Collection[str]) -> None:
    """Raise pydantic's refusal where ``data`` has fields of serving workloads; ``known`` fields never count."""
    if isinstance(data, Mapping) and (words := serving_words(data, known)):
        shown = ", ".join(words)
        raise PydanticCustomError(SERVING, PROBLEM, {"field": words[0].partition(":")[0], "shown": shown})


def serving_words(data: Mapping[Any, object], known: Collection[str]) -> tuple[str, ...]:
    """The fields of ``data`` that only a workload of serving has, ``kind: serving`` with its value."""
    found = []
    for name, value in data.items():
        if not isinstance(name, str) or name in known:
            continue
        plain = _plain(name)
        if plain in _KINDS and isinstance(value, str) and _VALUES.fullmatch(_plain(value)):
            found.append(f"{name}: {value}")
        elif _FIELDS.fullmatch(plain):
            found.append(name)
    return tuple(found)


def _plain(text: str) -> str:
    return re.sub(r"[\s-]+", "_", text.strip().lower())
