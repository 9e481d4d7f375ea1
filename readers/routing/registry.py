"""Recognition of the format of a source, and its reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from cluster_models.errors import InvalidInput
from readers.frame.findings import note_in
from readers.routing import arrays, physical_maps, published, sglang, tables, traces, trtllm
from readers.routing.reading import RoutingContents, RoutingFormat, RoutingSource, unusable

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


def read(source: RoutingSource) -> RoutingContents:
    """Read all of a file, a map beside its counts too.

    Raises ``InvalidInput`` where no kind fits or nothing of it can be used.
    """
    for form in FORMATS:
        if form.fits(source):
            return _with_map(source, form.read(source)) if form is not physical_maps.FORMAT else form.read(source)
    known = "; ".join(form.known_as for form in FORMATS)
    raise unusable(source, "", _shown(source), "holds no routing statistics that are known", f"known are: {known}")


def _with_map(source: RoutingSource, found: RoutingContents) -> RoutingContents:
    """``found`` with the map that stands beside the counts; one that cannot be used gets a notice."""
    if not physical_maps.fits(source):
        return found
    try:
        return replace(found, maps=physical_maps.read(source).maps)
    except InvalidInput as error:
        place = error.field.removeprefix(f"{source.name}: ")
        dropped = note_in("map-left-out", source.name, place, error.problem, error.remedy)
        return replace(found, notices=(*found.notices, dropped))


def _shown(source: RoutingSource) -> str:
    tree: Any = source.tree
    if tree is None:
        return source.text.strip()[:60]
    if isinstance(tree, Mapping):
        return "keys " + ", ".join(str(key)[:30] for key in list(tree)[:8])
    if isinstance(tree, np.ndarray):
        return f"array of {tree.shape}"
    return f"{type(tree).__name__} of {len(tree)}" if isinstance(tree, list) else str(tree)[:60]
