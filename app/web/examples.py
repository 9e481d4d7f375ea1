"""The shipped examples that fill a form in one click."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.documents.reading import parse_text
from app.example_files import documents_of
from app.web.planning.form import Typed


@dataclass(frozen=True, slots=True)
class Example:
    """A cluster, and for a plan also a workload whose file name starts with its model's name."""

    name: str
    title: str
    cluster: Path
    workload: Path | None = None
    model: str = ""


def cluster_examples() -> tuple[Example, ...]:
    """Every shipped cluster."""
    return tuple(Example(path.stem, path.stem, path) for path in documents_of("clusters"))


def plan_examples(models: Iterable[str]) -> tuple[Example, ...]:
    """Every shipped workload of a model of the catalogue, on every shipped cluster."""
    return tuple(_of_models(models, ""))


def _of_models(models: Iterable[str], prefix: str) -> Iterator[Example]:
    """Workloads whose file name is ``prefix`` and a model's, on every shipped cluster."""
    known = sorted(models, key=len, reverse=True)
    for workload in documents_of("workloads"):
        model = next((name for name in known if workload.stem.startswith(f"{prefix}{name}")), None)
        if model is not None:
            for cluster in documents_of("clusters"):
                title = f"{workload.stem} on {cluster.stem}"
                yield Example(f"{workload.stem}@{cluster.stem}", title, cluster, workload, model)


def serving_examples(models: Iterable[str]) -> tuple[Example, ...]:
    """Every shipped workload of serving, called ``serving-MODEL-...``, on every shipped cluster."""
    return tuple(_of_models(models, "serving-"))


def with_example(
    values: Typed, known: Iterable[Example], name: str, fill: Callable[[Typed, Mapping[str, Any]], Typed]
) -> Typed:
    """The texts of a form with the example of that name in place, its workload by ``fill``; unchanged without."""
    for example in known:
        if example.name == name and example.workload is not None:
            values = fill(values, parse_text(example.workload.read_text("utf-8"), what="workload"))
            values |= {"cluster_text": example.cluster.read_text("utf-8"), "model": example.model}
    return values
