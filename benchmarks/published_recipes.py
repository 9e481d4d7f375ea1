"""Settings that rows leave to the recipe that they ran: those of NeMo's and Megatron-Bridge's performance recipes.

``data/bridge_recipes.csv`` lists what these switch on beside degrees and batch, by container, in the words of notes
that print it: scripts/performance/configs of Megatron-Bridge 0.2.2 in NeMo 25.11, 0.3.1 in 26.02, 0.4.2 in 26.04,
0.5.1 in 26.06; for 25.04 the launch scripts of dgxc-benchmarking v25.05.05 and, for layers of the first and last
stage, NeMo's scripts/performance/llm/pretrain_deepseek_v3.py of the commit that they install.  A recipe is found by
its model, GPU, precision and degrees.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.rows import Row, read_rows, text
from cluster_models.cluster.gpus import Precision

TABLE: Final = Path(__file__).parent / "data" / "bridge_recipes.csv"
GENERATION: Final = re.compile(r"(?:megatron-bridge|nemo)-(\d\d\.\d\d)")
"""Names of generations whose recipes are listed, with their container."""
DEGREES: Final = ("tp", "pp", "vpp", "cp", "ep", "micro_batch")
PRINTED: Final = re.compile(r"recipe v0\.\d|dispatcher|cuda graph|overlap", re.IGNORECASE)
"""Notes that say themselves what was switched on."""
VERSIONS: Final = {"25.11": "0.2", "26.02": "0.3", "26.04": "0.4", "26.06": "0.5"}


@cache
def _recipes() -> tuple[Row, ...]:
    return tuple(read_rows(TABLE))


def with_recipe(row: Row, framework: str, precision: Precision) -> Row | None:
    """``row`` completed by the recipe of its model; ``None`` where it states its settings or no recipe fits."""
    generation = GENERATION.fullmatch(framework)
    if generation is None or PRINTED.search(text(row, "notes")):
        return None
    container = generation[1]
    degrees = [text(row, name) or "1" for name in DEGREES]
    for recipe in _recipes():
        if (
            text(recipe, "model_name") == text(row, "model_name").casefold()
            and text(recipe, "gpu") == text(row, "gpu").split("-")[0]
            and container in text(recipe, "containers").split()
            and precision in text(recipe, "precisions").split()
            and [text(recipe, name) for name in DEGREES] == degrees
        ):
            notes = "; ".join(
                filter(
                    None,
                    (
                        text(row, "notes"),
                        text(recipe, "settings"),
                        f"recipe v{VERSIONS[container]}. by its degrees" if container in VERSIONS else "",
                    ),
                )
            )
            return {**row, "recompute": text(row, "recompute") or text(recipe, "recompute"), "notes": notes}
    return None
