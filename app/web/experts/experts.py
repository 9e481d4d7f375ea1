"""Stored routing statistics: a line of a list, and what they say in tables and words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from app.presentation.figures import count, spans
from app.presentation.routing import RoutingReport, routing_report
from app.services.experts.routing import RoutingRecord
from cluster_models.wording import named
from readers.frame.findings import Finding

_MOST_NAMES: Final = 4


@dataclass(frozen=True, slots=True)
class RoutingLine:
    """Statistics in a list."""

    name: str
    workloads: str
    experts: str
    layers: str
    hottest: str
    changed: str


@dataclass(frozen=True, slots=True)
class NoticeLine:
    """Part of a file that was not taken."""

    file: str
    place: str
    sentence: str
    remedy: str


@dataclass(frozen=True, slots=True)
class StatisticsPage:
    """Stored statistics: ``facts`` of the resource, and the report."""

    facts: tuple[tuple[str, str], ...]
    report: RoutingReport


def routing_line(record: RoutingRecord) -> RoutingLine:
    """Statistics by their name and how skewed they are."""
    told = record.statistics.workloads
    names = [each.name for each in told]
    return RoutingLine(
        name=record.name,
        workloads=named(names, _MOST_NAMES),
        experts=count(record.statistics.experts),
        layers=count(len({layer for each in told for layer in each.layers})),
        hottest=f"{max(median(each.hottest) for each in told):.1f}",
        changed=f"{record.updated_at:%d %b %Y %H:%M} UTC",
    )


def statistics_page(record: RoutingRecord) -> StatisticsPage:
    """Stored statistics, before anything is placed."""
    found = record.statistics
    layers = {layer for each in found.workloads for layer in each.layers}
    return StatisticsPage(
        facts=(
            ("Experts of a layer", count(found.experts)),
            ("Layers with experts", f"{count(len(layers))}: {spans(layers)}"),
            ("Workloads", count(len(found.workloads))),
            ("Stored", f"{record.updated_at:%d %b %Y %H:%M} UTC, version {record.version}"),
        ),
        report=routing_report(found),
    )


def notice_lines(notices: Sequence[Finding]) -> tuple[NoticeLine, ...]:
    """Parts that were not taken, line by line."""
    return tuple(NoticeLine(each.place.file, each.place.path, each.sentence, each.remedy) for each in notices)
