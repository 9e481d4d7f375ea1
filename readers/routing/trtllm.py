"""TensorRT-LLM's expert statistics: counts by iteration and layer from each rank.

``EXPERT_STATISTIC_PATH`` holds ``rank<r>.safetensors`` with one row of counts under "<iteration>_<layer>" and
``meta_info.json`` (``tensorrt_llm/_torch/expert_statistic.py``).  A source of them is
``{"ranks": {file: {key: counts}}, "meta_info": {..}}``; one file alone, as JSON, is ``{key: counts}``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cluster_models.routing.counts import Counts
from readers.frame.findings import Finding, note_in
from readers.frame.trees import mapping
from readers.routing.numbers import array_of, rows_of, shortened, whole, workload
from readers.routing.reading import (
    MOST_EXPERTS,
    MOST_LAYERS,
    RoutingContents,
    RoutingFormat,
    RoutingSource,
    unusable,
)

_KEY: Final = re.compile(r"(\d{1,12})_(\d{1,4})", re.ASCII)
_REMEDY: Final = "send the folder of EXPERT_STATISTIC_PATH as it is"


def _fits(source: RoutingSource) -> bool:
    return any(_is_rank(rank) for rank in _ranks(source.tree).values())


def _ranks(tree: Any) -> Mapping[Any, Any]:
    return mapping(tree["ranks"]) if isinstance(tree, Mapping) and "ranks" in tree else {"": tree}


def _is_rank(value: Any) -> bool:
    return isinstance(value, Mapping) and any(isinstance(key, str) and _KEY.fullmatch(key) for key in value)


def _rows(rank: Any) -> Iterator[NDArray[Any]]:
    found = (
        array_of(value) for key, value in mapping(rank).items() if isinstance(key, str) and _KEY.fullmatch(key)
    )
    return (row for row in found if row is not None and row.ndim == 1)


def _read(source: RoutingSource) -> RoutingContents:
    meta = mapping(mapping(source.tree).get("meta_info"))
    experts = source.experts or whole(meta.get("num_experts"), MOST_EXPERTS)
    if experts is None:
        lengths = Counter(len(row) for rank in _ranks(source.tree).values() for row in _rows(rank))
        experts = lengths.most_common(1)[0][0] if lengths else 0
    sums: dict[int, Counts] = {}
    notices: list[Finding] = []
    for name, rank in _ranks(source.tree).items():
        for key, value in mapping(rank).items():
            parts = _KEY.fullmatch(key) if isinstance(key, str) else None
            row = array_of(value)
            problem = "" if row is None else _problem(row, experts)
            if parts is None or row is None or problem or int(parts[2]) > MOST_LAYERS:
                sentence = problem or "is not a row of counts under <iteration>_<layer>"
                notices.append(note_in("row-left-out", source.name, f"{name}[{key}]", sentence, _REMEDY))
                continue
            layer = int(parts[2])
            sums[layer] = row.astype(np.float64) + sums.get(layer, 0.0)
    if not sums:
        first = notices[0]
        raise unusable(source, first.place.path, f"{len(notices)} rows", first.sentence, first.remedy)
    rows = rows_of(source, "counts", sums)
    top = whole(meta.get("num_experts_per_token"), MOST_EXPERTS)
    tokens = float(rows.counts[0].sum()) / top if top else None
    found = workload(source, source.stem, rows, tokens=tokens)
    return RoutingContents((found,), notices=(*shortened(notices), *rows.notices))


def _problem(row: Any, experts: int) -> str:
    if row.ndim != 1 or len(row) != experts:
        return f"has the shape {row.shape} where there are {experts} experts"
    return "" if np.isfinite(row).all() and (row >= 0).all() else "holds what is not a count"


FORMAT: Final = RoutingFormat("tensorrt-llm", "TensorRT-LLM's expert statistics (safetensors)", _fits, _read)
