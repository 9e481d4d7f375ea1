"""Decoder layers of every virtual stage, as a row of a table of measured steps tells them."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from benchmarks.rows import Row, Skipped, text
from cluster_models.model.architecture import Architecture
from cluster_models.training.frameworks import Framework
from cluster_models.training.plan import Degrees
from solver.degrees.layout import Layout, filled_stages

ENTRIES_BEFORE: Final = 2
"""DeepSpeed's pipeline module of GPT-2 counts embedding and dropout before the layers."""
NUMBERS: Final = r"(\d+(?:-\d+)+)"
"""Whole numbers joined by dashes."""
LONGEST_LAYOUT: Final = 10_000
"""Letters of a layout written out; no model has so many layers."""


def read_layout(row: Row, architecture: Architecture, degrees: Degrees, framework: Framework) -> Layout:
    """Layers as the notes print them, else spread evenly; raises ``Skipped`` where stages would be empty."""
    notes, layers = text(row, "notes"), architecture.layers
    chunks = degrees.pipeline * degrees.virtual_pipeline
    if chunks > layers + 2:
        raise Skipped("more pipeline stages than layers")
    counts: list[int] = []
    if printed := re.search(rf"layer partition boundaries {NUMBERS} over", notes):
        ends = [min(max(int(end) - ENTRIES_BEFORE, 0), layers) for end in printed[1].split("-")]
        counts = [after - before for before, after in pairwise(ends)]
    elif printed := re.search(rf"entries per stage {NUMBERS}", notes):
        counts = [int(entries) for entries in printed[1].split("-")]
        counts[0] -= 1
        counts[-1] -= 1
    elif printed := re.search(r"pp_layout ([Etm|L()*\d]+)", notes):
        counts = layout_counts(printed[1])
    elif framework.fills_stages:
        filled = filled_stages(architecture, degrees.pipeline)
        if filled is None:
            raise Skipped("pipeline stages without a module")
        counts = list(filled)
    if len(counts) == chunks and sum(counts) == layers and min(counts) >= 0:
        return _by_stage(counts, degrees.pipeline)
    return spread_layers(layers, degrees.pipeline, degrees.virtual_pipeline)


def layout_counts(layout: str) -> list[int]:
    """Decoder layers of each chunk of Megatron's ``--pipeline-model-parallel-layout``.

    ``E`` embedding, ``t`` a layer, ``m`` multi-token prediction, ``L`` loss, ``|`` the end of a chunk, ``*n``
    repeats the letter or bracket before it: ``Et*3|(tt|)*2mL`` is 3, 2, 2, 0.
    """
    flat = layout
    while len(flat) < LONGEST_LAYOUT and (bracket := re.search(r"\(([^()]*)\)(?:\*(\d{1,3}))?", flat)):
        flat = flat[: bracket.start()] + bracket[1] * int(bracket[2] or 1) + flat[bracket.end() :]
    flat = re.sub(r"([Etm|L])\*(\d{1,3})", lambda found: found[1] * int(found[2]), flat)
    return [chunk.count("t") for chunk in flat.split("|")]


def spread_layers(layers: int, pipeline: int, virtual: int) -> Layout:
    """Equal shares, short first and last chunks where they do not divide.

    Where layers plus two divide, embedding and head count as a layer each, as NVIDIA's recipes do.  Where layers
    plus three divide, what follows the last layer counts as three (DeepSeek-V3 in Megatron-Bridge), or as two and
    the embedding as one where chunks are short.
    """
    chunks = pipeline * virtual
    if layers % chunks and (layers + 2) % chunks == 0 and chunks > 1:
        counts = [(layers + 2) // chunks] * chunks
        counts[0] -= 1
        counts[-1] -= 1
    elif layers % chunks and (layers + 3) % chunks == 0 and chunks > 1:
        counts = [(layers + 3) // chunks] * chunks
        counts[0] -= counts[-1] < 3
        counts[-1] -= 3 if counts[-1] >= 3 else 2
    else:
        counts = [layers // chunks] * chunks
        for chunk in range(1, 1 + layers % chunks):
            counts[chunk] += 1
        counts[0] += layers - sum(counts)
    return _by_stage(counts, pipeline)


def _by_stage(counts: list[int], pipeline: int) -> Layout:
    return tuple(tuple(counts[first : first + pipeline]) for first in range(0, len(counts), pipeline))
