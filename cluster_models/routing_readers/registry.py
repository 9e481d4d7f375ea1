"""Which kind of file a source is, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from cluster_models.routing_readers import arrays, physical_maps, published, sglang, tables, traces, trtllm
from cluster_models.routing_readers.reading import Found, RoutingFormat, RoutingSource, unusable

FORMATS: Final[tuple[RoutingFormat, ...]] = (
    *sglang.FORMATS,
    *published.FORMATS,
    trtllm.FORMAT,
    traces.FORMAT,
    arrays.FORMAT,
    physical_maps.FORMAT,
    tables.FORMAT,
)
"""In the order of precedence: the first that fits reads the file."""


def read(source: RoutingSource) -> Found:
    """Everything a file says.  Raises ``InvalidInput`` where no kind fits or nothing of it can be used."""
    for form in FORMATS:
        if form.fits(source):
            return form.read(source)
    known = "; ".join(form.known_as for form in FORMATS)
    raise unusable(source, "", _shown(source), "holds no routing statistics that are known", f"known are: {known}")


def _shown(source: RoutingSource) -> str:
    tree: Any = source.tree
    if tree is None:
        return source.text.strip()[:60]
    if isinstance(tree, Mapping):
        return "keys " + ", ".join(str(key)[:30] for key in list(tree)[:8])
    if isinstance(tree, np.ndarray):
        return f"array of {tree.shape}"
    return f"{type(tree).__name__} of {len(tree)}" if isinstance(tree, list) else str(tree)[:60]
