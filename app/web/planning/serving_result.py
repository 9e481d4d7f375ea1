"""The page of a finished serving plan: its report, its drawings and its exports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from app.exports.contract import Family
from app.exports.options import options_of
from app.exports.serving.contract import ServingExport
from app.exports.serving.registry import SERVING_EXPORTS
from app.presentation.serving_plan import ServingReport, serving_report
from app.web.drawing import Drawing
from app.web.planning.exports import (
    ExportFamily,
    ExportLine,
    OptionField,
    Unfit,
    ended,
    in_a_sentence,
    option_field,
    option_label,
)
from app.web.planning.seats import HUES
from app.web.planning.serving_drawings import memory_bars, pareto_chart
from cluster_models.errors import InvalidConfiguration
from cluster_models.serving.plan import ServingPlan

_FAMILIES = {
    Family.INFERENCE: ("Servers", "Start every replica where the plan puts it."),
    Family.KUBERNETES: ("Kubernetes", "Manifests that pin every replica to its hosts."),
    Family.DATA: ("For programs", "The plan with its certificate."),
}


@dataclass(frozen=True, slots=True)
class ReplicaSeat:
    """GPUs of one replica on one node, coloured by the leaf switch, else by the node."""

    node: str
    gpus: str
    style: str


@dataclass(frozen=True, slots=True)
class ServingResult:
    """A serving plan as words, tables and drawings; ``places`` are those of each replica in turn."""

    report: ServingReport
    places: tuple[tuple[ReplicaSeat, ...], ...]
    colour_means: str
    memory: Drawing
    front: tuple[Drawing, ...]


@dataclass(frozen=True, slots=True)
class LaunchText:
    """A file of the export for the plan's own engine, to be read and copied."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ServingExports:
    """All formats, the options of those that fit, and the launch files in full."""

    families: tuple[ExportFamily, ...]
    fields: tuple[OptionField, ...]
    texts: tuple[LaunchText, ...]
    preview: None = None
    """The texts are on the page: nothing is looked into."""


def serving_result(plan: ServingPlan, leaf_of: Mapping[str, str]) -> ServingResult:
    """The page of ``plan``; ``leaf_of`` names the leaf switch of each node that has one."""
    nodes = list(dict.fromkeys(place.node for each in plan.replicas for place in each.places))
    by_leaf = bool(leaf_of) and all(node in leaf_of for node in nodes)
    names = {node: leaf_of[node] if by_leaf else node for node in nodes}
    order = {name: index for index, name in enumerate(dict.fromkeys(names.values()))}
    ordered = sorted(plan.replicas, key=lambda each: each.number)
    return ServingResult(
        report=serving_report(plan),
        places=tuple(
            tuple(
                ReplicaSeat(place.node, ", ".join(map(str, place.gpus)), f"hue-{order[names[place.node]] % HUES}")
                for place in each.places
            )
            for each in ordered
        ),
        colour_means="leaf switch" if by_leaf else "node",
        memory=memory_bars(plan),
        front=tuple(pareto_chart(plan, model) for model in sorted({point.model for point in plan.front})),
    )


def serving_exports(
    plan_id: str, plan: ServingPlan, given: Mapping[str, str], valid: Mapping[str, str]
) -> ServingExports:
    """Every format; ``given`` stands in the form, and links carry the ``valid`` ones of it."""
    found: dict[Family, tuple[list[ExportLine], list[Unfit]]] = {family: ([], []) for family in _FAMILIES}
    texts: list[LaunchText] = []
    taken: dict[str, None] = {}
    own = {served.workload.engine.family for served in plan.models}
    for name, export in SERVING_EXPORTS.items():
        fits, unfit = found[export.family]
        options = {key: valid[key] for key in export.takes if key in valid}
        try:
            files = export.files(plan, options_of(options))
        except InvalidConfiguration as error:
            remedy = error.remedy[:1].upper() + error.remedy[1:]
            unfit.append(Unfit(export.description, ended(error.problem), ended(remedy)))
            continue
        fits.append(_line(plan_id, export, options))
        taken |= dict.fromkeys(export.takes)
        if name in own:
            texts += [LaunchText(file.name, file.text) for file in files]
    families = tuple(
        ExportFamily(*_FAMILIES[family], tuple(fits), tuple(unfit)) for family, (fits, unfit) in found.items()
    )
    return ServingExports(families, tuple(option_field(name, given) for name in taken), tuple(texts))


def _line(plan_id: str, export: ServingExport, options: Mapping[str, str]) -> ExportLine:
    address = f"/api/v1/plans/{plan_id}/exports/{export.name}"
    if options:
        address += "?" + urlencode([("set", f"{name}={text}") for name, text in options.items()])
    takes = ", ".join(in_a_sentence(option_label(name)) for name in export.takes)
    return ExportLine(export.description, export.file_name, address, takes)
