"""``meshwright experts serving``: an expert map for each phase of a serving plan."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.text import Text

from app.cli.experts.expert_options import KnownLinks, MapFiles, as_options
from app.cli.experts.expert_view import placement_view
from app.cli.experts.experts import counted, read_counts
from app.cli.failures.serving_jobs import read_serving_plan
from app.cli.terminal import console, reading_shown
from app.documents.reading import read_document
from app.experts.answer import PlacementAnswer, answer_of
from app.experts.phases import PhaseLayout, phase_layouts, workloads_of
from app.experts.placing import propose
from app.experts.request import PlacementFields, prepared
from app.presentation.figures import count, plural, seconds, spans
from app.presentation.serving_words import PHASES
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import SWITCHED_BOARD
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.routing.counts import RoutedWorkload
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.replicas import Phase
from cluster_models.units import GBIT
from solver.serving.map_times import MapCrossing, MapTimes, map_times

_STEPS: Final = {Phase.PREFILL: "prompt", Phase.DECODE: "decode step"}


@dataclass(frozen=True, slots=True)
class PlaceByPhase:
    """The options of ``experts serving`` as typed; ``fields`` are those of each placement over HTTP."""

    plan: str
    loads: tuple[Path, ...]
    said: Mapping[Phase, Sequence[str]]
    fields: Mapping[str, Any]
    cluster: str | None
    files: MapFiles
    as_json: bool


def run_serving(given: PlaceByPhase) -> None:
    """Place the experts of every kind of replica and print what that is worth; write the files of an engine."""
    given.files.check()
    plan = read_serving_plan(given.plan)
    if plan is None:
        raise InvalidInput("--plan", given.plan, "is not a serving plan", "give what meshwright plan wrote for one")
    workloads = counted(read_counts(given.loads, None))
    layouts = phase_layouts(plan, workloads[0].experts)
    models = {served.architecture.name: served.architecture for served in plan.models}
    answers = [(layout, _placed(given, layout, models[layout.model], workloads)) for layout in layouts]
    steps = {layout.name: _steps(plan, layout, answer) for layout, answer in answers}
    if given.as_json:
        told = [
            {"phase": layout.phase, "replicas": layout.replicas}
            | made.model_dump()
            | {"steps": [asdict(step) for step in steps[layout.name]]}
            for layout, made in answers
        ]
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    for layout, answer in answers:
        files = given.files
        if files.output is not None and len(answers) > 1:
            files = replace(files, output=files.output / layout.name)
        if not given.as_json:
            console().print(Text(_title(layout), style="bold"))
            words = [*map(_step_words, steps[layout.name]), *filter(None, [files.words()])]
            console().print(placement_view(answer, list(map(Text, words))), crop=False)
        files.write(answer.placement.to_slots(), models[layout.model], None)
    sys.stdout.flush()


def _placed(
    given: PlaceByPhase, layout: PhaseLayout, model: Architecture, workloads: Sequence[RoutedWorkload]
) -> PlacementAnswer:
    """The map for one kind of replica, and what it is worth for the workloads of its phase and the others."""
    names = workloads_of(layout.phase, [each.name for each in workloads], given.said)
    fields = {
        "ranks": layout.ranks,
        "nodes": layout.nodes,
        "gpu_kind": layout.gpu_kind,
        "tokens_per_gpu": layout.tokens_per_gpu,
        "workloads": names,
        **given.fields,
    }
    with as_options():
        document = read_document(PlacementFields, fields, what="options")
        known = replace(KnownLinks(cluster=given.cluster).given(document, None), model=model)
        asked = prepared(document, workloads, known, form=given.files.form)
    with reading_shown(f"placing experts for {PHASES[layout.phase]}"):
        return answer_of(propose(asked.workloads, asked.ask), asked)


def _steps(plan: ServingPlan, layout: PhaseLayout, answer: PlacementAnswer) -> tuple[MapTimes, ...]:
    """Steps of a replica with its map, by the workload planned for whose busiest ranks have most."""
    replica = plan.replicas[layout.replicas[0]]
    served = next(each for each in plan.models if each.architecture.name == layout.model)
    busiest = [
        fmean(1.0 / layer.balancedness for layer in each.layers)
        for each in answer.workloads
        if each.planned and each.layers
    ]
    return map_times(served, replica, max(busiest), _crossing(layout, answer)) if busiest else ()


def _crossing(layout: PhaseLayout, answer: PlacementAnswer) -> MapCrossing | None:
    """Nodes that tokens need with the map, by the workload planned for that needs most; none without links."""
    gbit = answer.between_nodes_gbit_per_s_per_gpu
    traffic = [each.times.traffic for each in answer.workloads if each.planned and each.times is not None]
    if gbit is None or not traffic or gpu_kind(layout.gpu_kind).scale_up_domain_gpus > SWITCHED_BOARD:
        return None
    sums = [sum(row) for each in traffic for row in (*each, *zip(*each, strict=True))]
    return MapCrossing(max(sums), gbit * GBIT, layout.nodes, layout.tokens_per_gpu)


def _step_words(step: MapTimes) -> str:
    return (
        f"With this map a {_STEPS[step.phase]} takes {seconds(step.mapped_s)}, experts "
        f"{seconds(step.mapped_experts_s)}; as planned {seconds(step.planned_s)} and "
        f"{seconds(step.planned_experts_s)}. To plan with it: "
        f"{step.phase}_imbalance: {step.imbalance:.3f} in the workload." + _crossing_words(step)
    )


def _crossing_words(step: MapTimes) -> str:
    if step.planned_crossing is None or step.mapped_crossing is None:
        return ""
    return f" A token needs {step.mapped_crossing:.2f} other nodes, as planned {step.planned_crossing:.2f}."


def _title(layout: PhaseLayout) -> str:
    replicas = f"replica{'s' if len(layout.replicas) > 1 else ''} {spans(layout.replicas)}"
    where = f"{plural(layout.ranks, 'expert rank')} on {plural(layout.nodes, 'node')}"
    tokens = f"{count(layout.tokens_per_gpu)} tokens of a GPU in a step"
    return f"{layout.model}, {PHASES[layout.phase]} ({replicas}, {layout.worker}): {where}, {tokens}"
