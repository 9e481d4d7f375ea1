"""One page about a plan to print or to send: what runs where, what it costs, how sure that is.

No scripts and nothing from elsewhere; figures as inline SVG.  A browser's print dialogue makes a PDF of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from app.exports.contract import Export, ExportFile, Family, Files
from app.exports.launch_value import Launch
from app.exports.options import Options
from app.exports.readback.report import REPORT_SAYS, read_report
from app.presentation.configuration import chosen_words, offload_words, schedule_words
from app.presentation.proof import explanation_of
from app.presentation.sentences import sentences
from cluster_models.training.plan import Plan
from cluster_models.training.rank_costs import MEMORY_PARTS, TIME_PARTS, StageMemory, parts_shown
from cluster_models.units import GIB, MILLISECOND

HTML: Final = "text/html"

_WIDTH: Final = 640
"""Size of a bar, in SVG units."""
COLOURS: Final = (
    *("#2f6f9f", "#7fb2d6", "#d99a3a", "#8a5a9e", "#b9b9b9"),
    *("#6f8f4e", "#c2573f", "#444444", "#2a9d9d"),
)
"""Colours of the parts of a step, or of a GPU's memory."""
_STYLE: Final = """
body { font: 11pt/1.35 system-ui, sans-serif; margin: 1.5cm auto; max-width: 18cm; color: #111; }
h1 { font-size: 16pt; margin: 0; } h2 { font-size: 12pt; margin: 0.8em 0 0.3em; }
table { border-collapse: collapse; } td, th { padding: 0.1em 0.6em 0.1em 0; text-align: left; vertical-align: top; }
td.n { text-align: right; } .hosts { columns: 2; } .hosts tr { break-inside: avoid; }
svg { width: 100%; height: auto; } .key span { white-space: nowrap; margin-right: 0.8em; }
@page { size: A4; margin: 1.5cm; } @media print { body { margin: 0; max-width: none; font-size: 9pt; } }
"""


def render_report(launch: Launch, options: Options) -> Files:  # noqa: ARG001 - the shape of every renderer
    """One HTML file; everything that came from outside is escaped."""
    plan = launch.plan
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(plan.model)}: {escape(str(launch.degrees))}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(plan.model)} on {escape(plan.provenance.cluster_name)}</h1>",
        f"<p>{_headline(plan)}</p>",
        "<h2>What runs</h2>",
        _table(_figures(launch)),
        "<h2>One step</h2>",
        _step(plan),
        "<h2>Memory of each GPU, by pipeline rank</h2>",
        *map(_memory, plan.memory),
        _key(MEMORY_PARTS.values()),
        "<h2>How far from the best it can be</h2>",
        f"<p>{escape(_proof(plan))}</p>",
        *_warnings(plan),
        "<h2>Hosts in rank order</h2>",
        _hosts(launch),
        f"<p>{_provenance(plan)}</p>",
        "</body></html>",
    ]
    return (ExportFile("plan.html", "\n".join(parts) + "\n"),)


def _headline(plan: Plan) -> str:
    text = (
        f"{plan.time.step_s / MILLISECOND:,.1f} ms a step, {plan.tokens_per_s:,.0f} tokens/s, MFU {plan.mfu:.1%}."
    )
    if plan.confidence is not None:
        low, high = plan.confidence.step_low_s / MILLISECOND, plan.confidence.step_high_s / MILLISECOND
        text += f" Measured steps are expected between {low:,.1f} and {high:,.1f} ms ({plan.confidence.level:.0%})."
    return text


def _proof(plan: Plan) -> str:
    proof = plan.certificate
    return f"{explanation_of(proof)} Gap {proof.gap:.2%}; by {proof.solver}."


def _figures(launch: Launch) -> Iterable[tuple[str, str, object]]:
    """Words, the name that the read-back knows it by, and the value."""
    degrees, configuration, plan = launch.degrees, launch.configuration, launch.plan
    rows = "; ".join(" ".join(map(str, row)) for row in configuration.stage_layers)
    yield from (
        ("GPUs", "world", launch.world),
        ("GPUs of each host", "gpus_per_host", launch.gpus_per_host),
        ("tensor parallel", "tensor", degrees.tensor),
        ("context parallel", "context", degrees.context),
        ("data parallel", "data", degrees.data),
        ("pipeline parallel", "pipeline", degrees.pipeline),
        ("expert parallel", "expert", degrees.expert),
        ("expert tensor parallel", "expert_tensor", degrees.expert_tensor),
        ("virtual stages of a rank", "virtual_pipeline", degrees.virtual_pipeline),
        ("rank order", "rank_order", configuration.rank_order),
        ("decoder layers", "layers", launch.layers),
        ("layers by pipeline rank", "stage_layers", rows),
        ("micro-batch", "micro_batch", configuration.micro_batch),
    )
    if plan.workload is not None:
        yield ("global batch", "global_batch", plan.workload.global_batch)
        yield ("sequence length", "sequence_length", plan.workload.sequence_length)
        yield ("precision", "", plan.workload.precision)
    if plan.architecture is not None and plan.architecture.experts is not None:
        yield ("experts of a layer", "experts", plan.architecture.experts.count)
    yield ("pipeline schedule", "", schedule_words(configuration))
    yield ("recomputation", "", configuration.recomputation)
    yield ("sharding", "", configuration.sharding)
    if configuration.optimizer_offload:
        yield ("optimizer states offloaded", "", offload_words(configuration))
    if configuration.settings.chosen:
        yield ("chosen for this run", "", chosen_words(configuration))


def _table(rows: Iterable[tuple[str, str, object]]) -> str:
    lines = []
    for words, name, value in rows:
        says = f' data-says="{name}"' if name else ""
        lines.append(f"<tr><th>{words}</th><td{says}>{escape(str(value))}</td></tr>")
    return f"<table>{''.join(lines)}</table>"


def _step(plan: Plan) -> str:
    parts = parts_shown(plan.time)
    values = [getattr(plan.time, part) for part in parts]
    shown = (f"{TIME_PARTS[part]} {value / MILLISECOND:,.1f} ms" for part, value in zip(parts, values, strict=True))
    return _bar(values, sum(values), "parts of a step") + _key(shown)


def _memory(memory: StageMemory) -> str:
    values = [getattr(memory, part) for part in MEMORY_PARTS]
    total, limit = memory.total_bytes, memory.limit_bytes
    words = f"rank {memory.stage}: {total / GIB:,.1f} of {limit / GIB:,.1f} GiB"
    return f"<div>{words}</div>" + _bar(values, max(total, limit), words)


def _bar(values: list[float], whole: float, words: str) -> str:
    """A stacked bar, ``whole`` wide."""
    boxes, left = [], 0.0
    for value, colour in zip(values, COLOURS, strict=False):
        width = _WIDTH * value / whole if whole else 0.0
        boxes.append(f'<rect x="{left:.2f}" y="0" width="{width:.2f}" height="14" fill="{colour}"/>')
        left += width
    frame = f'<rect x="0" y="0" width="{_WIDTH}" height="14" fill="none" stroke="#111"/>'
    return f'<svg viewBox="0 0 {_WIDTH} 14" role="img" aria-label="{escape(words)}">{"".join(boxes)}{frame}</svg>'


def _key(words: Iterable[str]) -> str:
    spans = (
        f'<span><b style="color:{colour}">■</b> {escape(each)}</span>'
        for each, colour in zip(words, COLOURS, strict=False)
    )
    return f'<p class="key">{" ".join(spans)}</p>'


def _warnings(plan: Plan) -> list[str]:
    if not plan.warnings:
        return []
    return [
        "<h2>Know before you run it</h2>",
        f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in sentences(plan.warnings))}</ul>",
    ]


def _hosts(launch: Launch) -> str:
    size = launch.gpus_per_host
    rows = (
        f'<tr><td class="n">{slot * size}-{slot * size + size - 1}</td><td data-says="host">{escape(host)}</td>'
        f'<td data-says="gpus">{gpus}</td></tr>'
        for slot, (host, gpus) in enumerate(zip(launch.plan.placement.hosts, launch.gpu_lists, strict=True))
    )
    head = "<tr><th>ranks</th><th>host</th><th>GPUs</th></tr>"
    return f'<div class="hosts"><table>{head}{"".join(rows)}</table></div>'


def _provenance(plan: Plan) -> str:
    made = plan.provenance
    return escape(
        f"Meshwright {made.product_version}, cost model {made.cost_model_version}, snapshot {made.snapshot_id}, "
        f"seed {made.seed}, effort {made.effort}."
    )


EXPORTS_HERE: Final = (
    Export(
        "report",
        "plan.html",
        HTML,
        "One page to print",
        render_report,
        read_report,
        REPORT_SAYS,
        family=Family.DATA,
    ),
)
