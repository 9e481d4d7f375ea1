"""Routing statistics as users write them: counts of selections by layer and expert, for each workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Self

import numpy as np
from pydantic import Field, model_validator

from app.documents.reading import Document, NotNegative, Positive, Text, close_name
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.routing.counts import Counts, ExpertLoads, RoutedWorkload, loads_of_model
from readers.routing.reading import MOST_EXPERTS, MOST_LAYERS

MOST_WORKLOADS: Final = 64
"""Bound for one set."""
MOST_COUNT: Final = 1e18
_LEAST_COUNT: Final = 1e-9
UNNAMED: Final = "inline"
"""Name of counts that come without one."""

Rows = Annotated[list[Annotated[list[NotNegative], Field(max_length=MOST_EXPERTS)]], Field(max_length=MOST_LAYERS)]
Layer = Annotated[int, Field(strict=True, ge=0, le=MOST_LAYERS)]


class LayerTable(Document):
    """Counts of pairs of experts at one layer."""

    layer: Layer = Field(description="Decoder layer; of transitions the earlier one.", examples=[3])
    counts: Rows = Field(description="A row of counts for each expert.", examples=[[[0, 7], [7, 0]]])


class RoutedWorkloadDocument(Document):
    """How a router spread the tokens of one workload."""

    name: Text = Field(description="What ran.", examples=["prefill"])
    logical_count: Rows = Field(
        description="For each layer, how often each expert was selected; a row of zeros is a dense layer.",
        examples=[[[120, 80, 100, 100]]],
    )
    layers: list[Layer] | None = Field(
        None, description="Number of the decoder layer of each row; absent = counted from 0.", examples=[[3]]
    )
    transitions: list[LayerTable] = Field(
        default_factory=list,
        description="How often a token selected the row's expert in a layer and the column's in the next one.",
    )
    coactivation: list[LayerTable] = Field(
        default_factory=list, description="How often a token selected both experts in a layer."
    )
    tokens: Positive | None = Field(None, description="Tokens counted, where known.", examples=[40960.0])

    def to_workload(self) -> RoutedWorkload:
        """The domain value; raises ``InvalidInput`` with the field inside this document."""
        numbers = list(range(len(self.logical_count))) if self.layers is None else self.layers
        if len(numbers) != len(self.logical_count):
            problem = f"numbers {len(numbers)} layers, and there are {len(self.logical_count)} rows of counts"
            raise InvalidInput("layers", numbers, problem, "give one number for each row")
        counted = [row for row in range(len(numbers)) if any(self.logical_count[row])]
        if not counted:
            raise InvalidInput("logical_count", len(numbers), "holds no count above 0", "record under load")
        loads = _table("logical_count", [self.logical_count[row] for row in counted])
        layers = tuple(numbers[row] for row in counted)
        if list(layers) != sorted(set(layers)):
            raise InvalidInput("layers", numbers, "must increase", "sort the rows by layer")
        return RoutedWorkload(
            name=self.name,
            layers=layers,
            loads=loads,
            transitions=_tables("transitions", self.transitions, layers[:-1], layers),
            coactivation=_tables("coactivation", self.coactivation, layers, layers),
            tokens=self.tokens,
        )

    @classmethod
    def from_workload(cls, workload: RoutedWorkload) -> RoutedWorkloadDocument:
        """The document of all counts."""
        return cls.model_construct(
            name=workload.name,
            logical_count=workload.loads.tolist(),
            layers=list(workload.layers),
            transitions=_layer_tables(workload, workload.transitions),
            coactivation=_layer_tables(workload, workload.coactivation),
            tokens=workload.tokens,
        )


class RoutingDocument(Document):
    """Counts in full: several workloads of one model, or those of one."""

    workloads: list[RoutedWorkloadDocument] | None = Field(
        None, min_length=1, max_length=MOST_WORKLOADS, description="The workloads."
    )
    logical_count: Rows | None = Field(
        None, description="Counts of one workload, by layer and expert.", examples=[[[120, 80, 100, 100]]]
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.workloads is None) == (self.logical_count is None):
            raise ValueError("give either workloads or logical_count")
        return self

    def to_workloads(self) -> tuple[RoutedWorkload, ...]:
        """The domain values; raises ``InvalidInput`` with the field inside this document."""
        if self.workloads is None:
            assert self.logical_count is not None
            one = RoutedWorkloadDocument.model_construct(name=UNNAMED, logical_count=self.logical_count)
            return (one.to_workload(),)
        found = []
        for index, document in enumerate(self.workloads):
            try:
                found.append(document.to_workload())
            except InvalidInput as error:
                field = f"workloads[{index}].{error.field.removeprefix('routing.')}"
                raise InvalidInput(field, error.value, error.problem, error.remedy) from error
        return tuple(found)


def check_set(workloads: Sequence[RoutedWorkload]) -> None:
    """Raise ``InvalidInput`` unless workloads are of one model and have names of their own."""
    if len(workloads) > MOST_WORKLOADS:
        problem = f"a set has at most {MOST_WORKLOADS} workloads"
        raise InvalidInput("workloads", len(workloads), problem, "store those that differ, or their sums")
    seen: set[str] = set()
    for workload in workloads:
        if workload.name in seen:
            raise InvalidInput("workloads", workload.name, "is given twice", "give each workload its own name")
        seen.add(workload.name)
        _check_sizes(workload)
        if workload.experts != workloads[0].experts:
            problem = (
                f"has {workload.experts} experts in a layer, but {workloads[0].name} has {workloads[0].experts}"
            )
            raise InvalidInput("workloads", workload.name, problem, "keep each model under a name of its own")


def planned_loads(
    workloads: Sequence[RoutedWorkload], weights: Mapping[str, float] | None, model: Architecture
) -> tuple[ExpertLoads, ...]:
    """Loads of workloads in a planning problem: under the model's layers, with weights (all alike if absent).

    Raises ``InvalidInput`` for names that are not among them and for counts of another model.
    """
    known = [workload.name for workload in workloads]
    for name in weights or ():
        if name not in known:
            problem = "is not a workload of the routing given"
            raise InvalidInput(f"routing_weights.{name}", name, problem, close_name(name, known))
    plain = [each.plain(1.0 if weights is None else weights.get(each.name, 0.0)) for each in workloads]
    return loads_of_model(model, plain)


def _check_sizes(workload: RoutedWorkload) -> None:
    """Counts of tables may be shares; neither these nor real counts leave the range in which sums are safe."""
    tables = (workload.loads, *workload.transitions.values(), *workload.coactivation.values())
    largest = max(float(table.max(initial=0.0)) for table in tables)
    least = float(workload.loads.max(axis=1).min())
    if largest > MOST_COUNT or least < _LEAST_COUNT:
        value = largest if largest > MOST_COUNT else least
        problem = f"counts of {workload.name} must lie between {_LEAST_COUNT:g} and {MOST_COUNT:g}, or be 0"
        raise InvalidInput("workloads", value, problem, "send the counts themselves")


def _table(field: str, rows: Rows) -> Counts:
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        usual = len(rows[0])
        odd = next(index for index, row in enumerate(rows) if len(row) != usual)
        problem = f"row {odd} has {len(rows[odd])} counts, the first {usual}"
        raise InvalidInput(field, len(rows[odd]), problem, "give each layer one count for each expert")
    return np.array(rows, dtype=np.float64)


def _tables(
    field: str, given: Sequence[LayerTable], allowed: Sequence[int], layers: Sequence[int]
) -> dict[int, Counts]:
    """Tables by the index of their layer."""
    found: dict[int, Counts] = {}
    for position, table in enumerate(given):
        if table.layer not in allowed:
            problem = "is not a layer with counts" + (" and one after it" if field == "transitions" else "")
            raise InvalidInput(f"{field}[{position}].layer", table.layer, problem)
        index = layers.index(table.layer)
        if index in found:
            raise InvalidInput(f"{field}[{position}].layer", table.layer, "is given twice", "give it once")
        found[index] = _table(f"{field}[{position}].counts", table.counts)
    return found


def _layer_tables(workload: RoutedWorkload, tables: Mapping[int, Counts]) -> list[LayerTable]:
    return [
        LayerTable.model_construct(layer=workload.layers[index], counts=table.tolist())
        for index, table in sorted(tables.items())
    ]
