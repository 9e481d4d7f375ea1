"""A prediction of serving on the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.cli.terminal import bullets, pairs, section
from app.documents.serving_prediction import (
    ClassPercentilesDocument,
    IntervalDocument,
    PercentilesDocument,
    ReplayPredictionDocument,
    ServingPredictionDocument,
    StepDocument,
)
from app.presentation.figures import count, plural

PARTS = (
    ("matrix products", "dense_products_ms"),
    ("experts", "experts_ms"),
    ("attention", "attention_ms"),
    ("collectives", "collectives_ms"),
    ("launches and host", "overhead_ms"),
)


def serving_view(found: ServingPredictionDocument) -> RenderableType:
    """Latencies, throughput, memory and where the time goes."""
    parts: list[RenderableType] = []
    if not found.measured_engine:
        caution = "no run of this engine generation on this kind of GPU; the intervals are wider."
        parts.append(Text(f"Outside of what was measured: {caution}", style="bold yellow"))
    parts += [
        section("Prediction, with 80 % intervals", pairs(_figures(found))),
        section("Where a step's time goes", _steps(found)),
        section("Memory of a GPU", _memory(found)),
    ]
    if remarks := _remarks(found):
        parts.append(section("Remarks", bullets(remarks)))
    return Group(*parts)


def _figures(found: ServingPredictionDocument) -> tuple[tuple[str, str], ...]:
    each = f"{count(found.output_tokens_per_s_per_gpu)} tokens/s"
    return (
        ("time to first token", f"{_range(found.time_to_first_token_ms)} ms"),
        ("  of 50, 90, 99 % of the requests", _percentiles(found.time_to_first_token_percentiles_ms)),
        ("time per output token", f"{_range(found.time_per_output_token_ms)} ms"),
        ("  of 50, 90, 99 % of the requests", _percentiles(found.time_per_output_token_percentiles_ms)),
        *(row for each in found.classes for row in _class_figures(each)),
        *(_replay_figures(found.replay) if found.replay else ()),
        ("output", f"{_range(found.output_tokens_per_s)} tokens/s"),
        ("output of a GPU", f"{each}, {plural(found.gpus, 'GPU')} on {plural(len(found.nodes), 'node')}"),
        ("requests", f"{found.requests_per_s:,.3g} a second, {found.concurrency:,.4g} in flight"),
        ("power drawn, estimated", f"{_range(found.drawn_watts)} W"),
        ("largest batch", f"{count(found.most_requests)} requests at once in all"),
    )


def _class_figures(found: ClassPercentilesDocument) -> tuple[tuple[str, str], ...]:
    """Percentiles of one class."""
    return (
        (f"  of {found.name}: to first token", _percentiles(found.time_to_first_token_percentiles_ms)),
        (f"  of {found.name}: per output token", _percentiles(found.time_per_output_token_percentiles_ms)),
    )


def _replay_figures(found: ReplayPredictionDocument) -> tuple[tuple[str, str], ...]:
    """Percentiles as simulated; those above are the closed form's."""
    return (
        ("simulated", f"{plural(found.requests, 'request')}; the percentiles above are the closed form's"),
        ("    to first token", _percentiles(found.time_to_first_token_percentiles_ms)),
        ("    per output token", _percentiles(found.time_per_output_token_percentiles_ms)),
    )


def _steps(found: ServingPredictionDocument) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("", "prefill, ms", "decode, ms"):
        table.add_column(title, justify="right" if title else "left")
    steps: tuple[StepDocument, StepDocument] = (found.prefill_step, found.decode_step)
    for name, field in (*PARTS, ("in all", "total_ms")):
        times = [getattr(step, field) for step in steps]
        if any(times):
            table.add_row(name, *(f"{each:,.2f}" for each in times))
    return table


def _memory(found: ServingPredictionDocument) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("pool", "weights, GiB", "steps, GiB", "caches, GiB", "requests of a worker"):
        table.add_column(title, justify="left" if title == "pool" else "right")
    for each in found.memory:
        figures = (f"{value:,.1f}" for value in (each.weights_gib, each.steps_gib, each.cache_gib))
        table.add_row(f"{each.role}: {each.pool}", *figures, f"{each.most_requests_of_a_worker:,}")
    return table


def _remarks(found: ServingPredictionDocument) -> list[str]:
    remarks = []
    if found.queue_ms > 0:
        remarks.append(f"requests wait {found.queue_ms:,.0f} ms for a place, which the time to first token holds")
    return [*remarks, *(f"the limit {name} is missed" for name in found.missed_limits)]


def _percentiles(found: PercentilesDocument) -> str:
    return f"{found.p50:,.4g}, {found.p90:,.4g}, {found.p99:,.4g} ms at most"


def _range(interval: IntervalDocument) -> str:
    def shown(value: float) -> str:
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    return f"{shown(interval.value)} ({shown(interval.low)} to {shown(interval.high)})"
