"""The framework generation of a row of a table of measured steps, from the text and date of its source."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from benchmarks.rows import Assumed, Row, text
from cluster_models.frameworks import (
    DEFAULT_FRAMEWORK,
    CudaGraphs,
    ExpertDispatch,
    Framework,
    framework,
    frameworks,
)

LINES: Final = (
    (r"megatron-?bridge", ("megatron-bridge-",)),
    (r"automodel", ("automodel-",)),
    (r"torchtitan", ("torchtitan-",)),
    (r"maxtext", ("maxtext-",)),
    (r"mosaicml|llm-foundry|composer", ("llm-foundry-",)),
    (r"internevo|internlm", ("internevo-",)),
    (r"\bamp\b|varuna|deepspeedexamples", ("deepspeed-",)),
    (r"bigscience.*experiments/gpt2|alpa", ("megatron-lm-2",)),
    (r"bigscience", ("megatron-deepspeed-2022",)),
    (r"vtrain", ("megatron-deepspeed-2023",)),
    (r"sailor|megatron-deepspeed|deepspeed", ("megatron-deepspeed-",)),
    (r"mlcommons|mlperf|training_results", ("nemo-23.", "mlperf-")),
    (r"nemo|dgxc", ("nemo-",)),
    (r"megatron|2104\.04473|2205\.05198|2201\.11990|korthikanti|nvidia", ("megatron-lm-", "megatron-core-")),
    (r"fsdp|pytorch", ("llm-foundry-", "torchtitan-")),
)
"""Which generations (by the start of their names) a source may belong to, by a pattern; the first that matches."""
STRANGERS: Final = re.compile(r"varuna|alpa|composer|fsdp|sailor", re.IGNORECASE)
"""Sources whose own framework is not among the generations; they get the nearest one."""
MLPERF_ROUNDS: Final = {
    "1.0": (2021, 6),
    "1.1": (2021, 12),
    "2.0": (2022, 6),
    "2.1": (2022, 11),
    "3.0": (2023, 6),
    "3.1": (2023, 11),
    "4.0": (2024, 6),
    "4.1": (2024, 11),
    "5.0": (2025, 6),
    "5.1": (2025, 11),
    "6.0": (2026, 6),
}
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
CORE_RELEASES: Final = {
    "0.8": (2024, 7),
    "0.9": (2024, 10),
    "0.10": (2025, 1),
    "0.11": (2025, 3),
    "0.12": (2025, 5),
}
"""Months of Megatron-Core's releases (its changelog)."""
LATER_CORE: Final = (2025, 8)
LATER_MLPERF: Final = (2026, 11)
DISPATCHES: Final = (
    ("hybridep", ExpertDispatch.HYBRIDEP),
    ("deepep", ExpertDispatch.DEEPEP),
    ("tokendrop", ExpertDispatch.ALL_TO_ALL),
)
"""By words of the notes; Megatron-Bridge drops tokens only with its all-to-all dispatcher."""
CONTAINER: Final = re.compile(r"\bnemo 2\d\.\d\d")
"""A container that the notes name; collections of recipes are younger than the containers that they run."""
PRINTED_RECIPE: Final = re.compile(r"recipe v0\.[0-5]\.")
"""Notes that print all that a recipe of Megatron-Bridge switches on; from v0.6 on recipes print none of it."""
BEFORE_BLACKWELL: Final = ("H", "A", "V")
"""GPU kinds, by their first letter, whose recipes do not capture whole iterations as CUDA graphs."""

Month = tuple[int, int]
READINGS: Final[tuple[tuple[str, Callable[[re.Match[str]], Month]], ...]] = (
    (r"(?<![\d.])(?:v|ngc|nemo[ -]?)?(2[1-9])\.(0[1-9]|1[0-2])(?!\d\d)", lambda m: (2000 + int(m[1]), int(m[2]))),
    (r"(?:core[_ -]?)?r(0\.\d+)", lambda m: CORE_RELEASES.get(m[1], LATER_CORE)),
    (r"(?:training_results_|mlperf[^v]*)v(\d\.\d)", lambda m: MLPERF_ROUNDS.get(m[1], LATER_MLPERF)),
    (r"(?<!\d)(20[12]\d)-?(0[1-9]|1[0-2])(?!\d{3})", lambda m: (int(m[1]), int(m[2]))),
    (rf"\b({'|'.join(MONTHS)})[a-z]* (20[12]\d)", lambda m: (int(m[2]), 1 + MONTHS.index(m[1].casefold()))),
    (r"(?<!\d)([12]\d)(0[1-9]|1[0-2])\.\d{5}(?!\d)", lambda m: (2000 + int(m[1]), int(m[2]))),
    (r"(?<!\d)(20[12]\d)(?!\d)", lambda m: (int(m[1]), 12)),
)
"""How a text says year and month, in the order in which they are believed."""


def read_framework(row: Row, assumed: Assumed) -> Framework:
    """The generation that the source names, with what the row says of its settings."""
    notes = text(row, "notes").casefold()
    container = CONTAINER.search(notes)
    found = _generation(f"{container[0] if container else ''} {text(row, 'source')}", assumed)
    if parallel := text(row, "sequence_parallel"):
        found = replace(found, sequence_parallel=parallel.casefold() not in ("0", "false", "no"))
    elif text(row, "tp") not in ("", "1"):
        assumed.take("sequence parallelism", found.sequence_parallel, "the framework's default")
    if "eager" in notes:
        found = replace(found, fused_kernels=False)
    if PRINTED_RECIPE.search(notes):
        found = replace(found, expert_dispatch=ExpertDispatch.ALL_TO_ALL, expert_overlap=False)
    if PRINTED_RECIPE.search(notes) or text(row, "gpu").startswith(BEFORE_BLACKWELL):
        found = replace(found, cuda_graphs=CudaGraphs.NONE)
    if dispatch := next((dispatch for word, dispatch in DISPATCHES if word in notes), None):
        found = replace(found, expert_dispatch=dispatch)
    if "cuda graph" in notes and "cuda graphs none" not in notes:
        found = replace(found, cuda_graphs=_graphs(notes))
    return replace(found, expert_overlap=found.expert_overlap or "a2a overlap" in notes)


def _graphs(notes: str) -> CudaGraphs:
    """Graphs of the router and what follows it, without attention, leave the host as busy as before."""
    if "full_iteration" in notes or "full iteration" in notes:
        return CudaGraphs.FULL
    return CudaGraphs.NONE if "moe_router" in notes and "attn" not in notes else CudaGraphs.PARTIAL


def _generation(source: str, assumed: Assumed) -> Framework:
    lines = next((lines for pattern, lines in LINES if re.search(pattern, source, re.IGNORECASE)), None)
    names = [name for name in frameworks() if lines is not None and name.startswith(lines)]
    if not names:
        return framework(assumed.take("framework", DEFAULT_FRAMEWORK.name, "not recognised in the source"))
    dated = sorted((generation_month(name), name) for name in names)
    when = source_month(source)
    if when is None:
        name = dated[-1][1]
        if len(dated) > 1:
            assumed.take("framework", name, "latest generation; the source has no date")
        return framework(name)
    name = next((name for month, name in reversed(dated) if month <= when), dated[0][1])
    if STRANGERS.search(source):
        assumed.take("framework", name, "the nearest known")
    return framework(name)


def generation_month(name: str) -> Month:
    """From when a generation was current: its release, or the year and month in its name if they come before."""
    year, month = (int(part) for part in framework(name).released.split("-"))
    if found := re.search(r"-(\d\d)\.(\d\d)$", name):
        return min((2000 + int(found[1]), int(found[2])), (year, month))
    return year, month


def source_month(source: str) -> Month | None:
    """Year and month that the text of a source speaks of: a release, an MLPerf round, a date, a paper's number.

    A release (NeMo 24.07, v25.02.02) wins over the rest, because texts cite papers older than what they ran.
    """
    for pattern, month in READINGS:
        if found := re.search(pattern, source, re.IGNORECASE):
            return month(found)
    return None
