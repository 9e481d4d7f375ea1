"""Measured runs with what scoring and fitting need beside them: their group, and why not to believe them."""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.published import read_run
from benchmarks.published_frameworks import Month, source_month
from benchmarks.rows import Row, Skipped, number, read_rows, text
from cluster_models.calibration.training_run import MemoryCounter, TrainingRun
from cluster_models.model.flops import AttentionCount, forward_flops_per_token, model_flops_per_token
from cluster_models.units import TFLOP

DOUBTFUL_ROWS: Final = Path(__file__).parent / "data" / "doubtful.toml"
FIGURE_TOLERANCE: Final = 0.05
"""Between step time and tokens per second, which the same source prints."""
FLOPS_TOLERANCE: Final = 0.15
"""Between printed FLOP/s and those of the nearest way of counting them."""
RECOMPUTED: Final = 4.0 / 3.0
"""Hardware FLOPs over model FLOPs where every layer runs forward twice (arXiv 2104.04473, appendix)."""
CONTRADICTION: Final = 1.3
"""A release that is so much slower, or faster, than the ones before and after it."""
CONFIGURATION_COLUMNS: Final = (
    "model_name", "layers", "seq_len", "gpu", "num_gpus", "precision", "tp", "pp", "cp", "ep", "etp", "vpp",
    "micro_batch", "global_batch",
)  # fmt: skip
FULL: Final = 0.92
"""Share of a GPU's memory from which on PyTorch's allocator finds no room for what comes and goes: it gives blocks
back to the driver and takes others in every micro-batch.  8 runs of nanotron above took 3 to 7 times as long."""
STALLED: Final = 2.0
"""Times as long a micro-batch as usual; transfers of nanotron's sweeps stalled at about a second each."""
LEAST_LAYOUT: Final = 3
"""Rows of a layout that tell what is usual for it."""
NOISE: Final = 0.2
"""Variation between runs of one configuration that drowns what configurations differ by."""
LINE_LETTERS: Final = 24
"""Releases of one product share so many first letters of their source."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A row of the table and the run it describes; ``doubt`` says why its figures are not believed, if so."""

    row: Row
    run: TrainingRun
    doubt: str = ""

    @property
    def group(self) -> str:
        """The rows that belong together: a sweep, or a source's rows of one model on one GPU kind."""
        return text(self.row, "sweep_id") or " ".join(
            text(self.row, column) for column in ("source", "model_name", "gpu")
        )

    @property
    def seconds(self) -> float:
        """The measured step; the caller knows that there is one."""
        assert self.run.step_s is not None
        return self.run.step_s

    @property
    def gpu_seconds_per_token(self) -> float:
        """Key by which configurations of one sweep are compared."""
        return self.scaled(self.seconds)

    def scaled(self, step_s: float) -> float:
        """GPU seconds per token of a step of ``step_s`` seconds."""
        return step_s * self.run.configuration.degrees.gpus / self.run.workload.tokens_per_step


def runs_of(rows: Iterable[Row]) -> tuple[list[Measured], Counter[str]]:
    """Rows that can be priced, and why the rest cannot."""
    kept: list[Measured] = []
    skipped: Counter[str] = Counter()
    for row in rows:
        try:
            kept.append(Measured(row, read_run(row)))
        except Skipped as reason:
            skipped[str(reason)] += 1
    return kept, skipped


def measured_runs(table: Path) -> list[Measured]:
    """The rows of a table that can be priced and have a measured step, doubts included."""
    kept, _ = runs_of(read_rows(table))
    return with_doubts([each for each in kept if each.run.step_s is not None])


def with_doubts(measured: Sequence[Measured], *, peaks: bool = False) -> list[Measured]:
    """The same with ``doubt`` filled in: rows listed by hand, and what the table itself casts doubt on.

    With ``peaks`` also those of which the peak alone is not believed.
    """
    contradicted, stalled = contradictions(measured), stalls(measured)
    listed = {**listed_doubts(), **(listed_doubts("peaks") if peaks else {})}
    return [
        replace(
            each,
            doubt=listed.get(each.run.name, "")
            or _warned(each)
            or ("" if peaks else _full(each))
            or _disagreement(each)
            or contradicted.get(each.run.name, "")
            or stalled.get(each.run.name, ""),
        )
        for each in measured
    ]


@cache
def listed_doubts(table: str = "rows") -> Mapping[str, str]:
    """Reasons by row, as listed in a table of ``data/doubtful.toml``."""
    return {name: str(reason) for name, reason in tomllib.loads(DOUBTFUL_ROWS.read_text("utf-8"))[table].items()}


def _warned(each: Measured) -> str:
    """Caveat of the source itself against the row; empty where there is none."""
    notes = text(each.row, "notes")
    if "suspicious" in notes.casefold():
        return "the notes call it suspicious"
    if "change the FLOPs" in notes:
        return "the notes say that the model does other work than its columns"
    if "trouble likely" in notes:
        return "the notes expect trouble of the network or of a straggler"
    varies = re.search(r"(\d+)% run-to-run variation", notes)
    if varies and float(varies[1]) / 100.0 > NOISE:
        return f"the source warns of {varies[1]} % variation between runs of one configuration"
    return ""


def _full(each: Measured) -> str:
    """Why the step tells nothing of the configuration where the allocator had no room; empty where it had."""
    run = each.run
    taken = (run.peak_memory_bytes or 0.0) / run.gpu.memory_bytes
    if run.step_s is None or run.memory_counter is not MemoryCounter.RESERVED or taken < FULL:
        return ""
    return (
        f"PyTorch reserved {taken:.0%} of the memory, so that its allocator gave blocks back and took others anew"
    )


def _disagreement(each: Measured) -> str:
    """Why the figures that the row itself prints cannot all be true; empty where they can."""
    if each.run.step_s is None:
        return ""
    derived = text(each.row, "derived").split(";")
    tokens = each.run.workload.tokens_per_step / each.run.configuration.degrees.gpus
    rate = number(each.row, "tokens_per_s_per_gpu")
    if rate and "tokens_per_s_per_gpu" not in derived and text(each.row, "iter_time_s"):
        other = tokens / (rate * each.seconds)
        if abs(other - 1.0) > FIGURE_TOLERANCE and "iter_time_s" not in derived:
            return f"tokens per second and step time differ by {other - 1.0:+.0%}"
    printed = number(each.row, "tflops_per_gpu")
    if (
        not printed
        or "tflops_per_gpu" in derived
        or any(note.startswith(("global batch", "sequence length")) for note in each.run.assumed)
    ):
        return ""
    counted, counts = printed * TFLOP * each.seconds / tokens, flops_per_token(each.run)
    if min(counts) * (1.0 - FLOPS_TOLERANCE) <= counted <= max(counts) * (1.0 + FLOPS_TOLERANCE):
        return ""
    nearest = min(counts, key=lambda flops: abs(counted / flops - 1.0))
    return f"printed FLOP/s and step time differ by {counted / nearest - 1.0:+.0%} however FLOPs are counted"


def flops_per_token(run: TrainingRun) -> list[float]:
    """Training FLOPs per token by each usual count.

    Attention whole, halved or left out; with and without the output head; with and without full recomputation.
    """
    sequence = run.workload.sequence_length
    forward = forward_flops_per_token(run.architecture, sequence)
    whole = model_flops_per_token(run.architecture, sequence, attention=AttentionCount.FULL)
    causal = model_flops_per_token(run.architecture, sequence)
    bare = 3.0 * (forward.total - forward.attention_scores - forward.head)
    return [factor * flops for factor in (1.0, RECOMPUTED) for flops in (whole, causal, bare)]


def stalls(measured: Sequence[Measured]) -> dict[str, str]:
    """Rows whose micro-batches take a multiple of what the same layout takes on other numbers of GPUs, by name.

    Layouts share model, tensor and pipeline degrees and micro-batch.  Steps of a single micro-batch are left alone:
    what data ranks exchange once a step weighs too much in them.
    """
    layouts: dict[tuple[object, ...], list[Measured]] = defaultdict(list)
    for each in measured:
        if each.run.step_s is not None and _rounds(each) > each.run.configuration.degrees.pipeline:
            columns = (name for name in CONFIGURATION_COLUMNS if name not in ("num_gpus", "global_batch"))
            key = (
                text(each.row, "source"),
                text(each.row, "recompute"),
                *(text(each.row, name) for name in columns),
            )
            layouts[key].append(each)
    found: dict[str, str] = {}
    for rows in layouts.values():
        pace = [each.seconds / _rounds(each) for each in rows]
        usual = sorted(pace)[(len(pace) - 1) // 2]
        for each, seconds in zip(rows, pace, strict=True):
            if len(rows) >= LEAST_LAYOUT and seconds > STALLED * usual:
                found[each.run.name] = (
                    f"takes {seconds / usual:.1f} times as long a micro-batch as the layout elsewhere"
                )
    return found


def _rounds(each: Measured) -> int:
    """Micro-batches of a step and those that its pipeline's ramp is worth."""
    run = each.run
    return run.configuration.micro_batches(run.workload.global_batch) + run.configuration.degrees.pipeline - 1


def contradictions(measured: Sequence[Measured]) -> dict[str, str]:
    """Rows that one configuration's releases before and after contradict alike, by name, with the reason."""
    lines: dict[tuple[str, ...], list[tuple[Month, Measured]]] = defaultdict(list)
    for each in measured:
        month = source_month(text(each.row, "source"))
        key = (text(each.row, "source")[:LINE_LETTERS], *(text(each.row, name) for name in CONFIGURATION_COLUMNS))
        if month is not None and each.run.step_s is not None:
            lines[key].append((month, each))
    found: dict[str, str] = {}
    for releases in lines.values():
        ordered = [each for _, each in sorted(releases, key=lambda release: release[0])]
        for before, each, after in zip(ordered, ordered[1:], ordered[2:], strict=False):
            ratios = each.seconds / before.seconds, each.seconds / after.seconds
            if min(ratios) > CONTRADICTION or max(ratios) < 1.0 / CONTRADICTION:
                found[each.run.name] = (
                    f"takes {ratios[0]:.2f} of the release before and {ratios[1]:.2f} of the one after"
                )
    return found
