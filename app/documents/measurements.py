"""Link measurements, one at a time or as a table per tool and run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from pydantic import Discriminator, Field, Tag

from app.documents.long_lists import long_list
from app.documents.moments import Moment
from app.documents.reading import CHOICE, Count, Document, FieldProblem, Number, Positive, Text
from app.documents.values import Holds, ValueDocument
from cluster_models.cluster.measurements import Collective, Direction, Sample, SampleStatus
from cluster_models.errors import InvalidInput
from cluster_models.units import GBYTE, MICROSECOND

FAILED: Final = "failed"
MOST_SAMPLES: Final = 1_000_000
"""Bound for one document; more come in several."""
MOST_TABLES: Final = 10_000
Numbered = tuple[str, Sample]
"""A sample and the path of the entry it was read from."""

ToolField = Annotated[Text, Field(description="Tool that measured.", examples=["nccl-tests"])]
RanksField = Annotated[Count, Field(description="GPUs that took part on each end.", examples=[8])]
PairsField = Annotated[Count, Field(description="Node pairs measured at the same time.", examples=[1])]
_FIGURE, _WORD, _NOTHING = f"{CHOICE}figure", f"{CHOICE}word", f"{CHOICE}nothing"
_Cell = Annotated[
    Annotated[Number, Tag(_FIGURE)] | Annotated[Text, Tag(_WORD)] | Annotated[None, Tag(_NOTHING)],
    Discriminator(lambda cell: _WORD if isinstance(cell, str) else _NOTHING if cell is None else _FIGURE),
]
MomentField = Annotated[
    Moment | None, Field(description="When, with a time zone.", examples=["2025-11-15T00:00:00Z"])
]


class MeasurementDocument(ValueDocument[Sample]):
    """One measurement between two nodes, or inside one when both ends are the same node."""

    source: Text = Field(description="Node that sent.", examples=["cnode2-001"])
    destination: Text = Field(description="Node that received.", examples=["cnode2-002"])
    direction: Direction = Field(
        Direction.FORWARD,
        description="forward = from source to destination; both = one figure for the two directions.",
        examples=["forward"],
    )
    tool: ToolField
    collective: Collective = Field(description="What the tool ran.", examples=["sendrecv"])
    message_bytes: Positive = Field(description="Size column of the tool, in bytes.", examples=[268435456])
    ranks_per_node: RanksField = 1
    pairs_active: PairsField = 1
    status: SampleStatus = Field(
        SampleStatus.OK, description="failed = the link is unknown, never zero.", examples=["ok"]
    )
    bandwidth_gbytes_per_s: Annotated[Number | None, Holds("bytes_per_s", GBYTE)] = Field(
        None,
        description=(
            "Bus bandwidth in GB/s (10^9 bytes), as nccl-tests defines it; plain bandwidth for point_to_point."
        ),
        examples=[18.2],
    )
    latency_us: Annotated[Number | None, Holds("latency_s", MICROSECOND)] = Field(
        None, description="Latency in microseconds.", examples=[3.1]
    )
    measured_at: MomentField = None

    def to_sample(self, path: str = "measurement") -> Sample:
        """The domain value; ``path`` names this entry in errors."""
        if self.status is SampleStatus.FAILED and not (
            self.bandwidth_gbytes_per_s is None and self.latency_us is None
        ):
            raise InvalidInput(
                f"{path}.status", "failed", "a failed measurement carries a figure", "leave the figure out"
            )
        for name, figure in (
            ("bandwidth_gbytes_per_s", self.bandwidth_gbytes_per_s),
            ("latency_us", self.latency_us),
        ):
            if figure is not None:
                _check_figure(figure, f"{path}.{name}")
        if self.status is SampleStatus.OK and self.bandwidth_gbytes_per_s is None and self.latency_us is None:
            raise InvalidInput(
                path,
                None,
                "has neither bandwidth nor latency",
                "give one, or status: failed if the test failed",
            )
        return self.to_value()


class MeasurementTableDocument(Document):
    """Bandwidth of many pairs from one run of one tool; a column for each message size."""

    tool: ToolField
    collective: Collective = Field(description="What the tool ran.", examples=["alltoall"])
    direction: Direction = Field(
        Direction.BOTH,
        description="both = one figure for the two directions; forward = from the first node to the second.",
        examples=["both"],
    )
    ranks_per_node: RanksField = 1
    pairs_active: PairsField = 1
    measured_at: MomentField = None
    message_bytes: list[Positive] = Field(
        min_length=1,
        max_length=100,
        description="Message sizes in bytes, one for each figure of a row.",
        examples=[[33554432, 268435456]],
    )
    pairs: Annotated[list[list[_Cell]], Field(min_length=1), long_list(MOST_SAMPLES)] = Field(
        description=(
            "Rows: two node names, then a figure in GB/s (10^9 bytes, bus bandwidth) for each message size; "
            "null = not measured.  The word failed instead of the figures says that the test failed."
        ),
        examples=[[["cnode2-001", "cnode2-002", 13.1, 23.4], ["cnode2-003", "cnode2-008", "failed"]]],
    )

    def to_samples(self, path: str, problems: list[FieldProblem]) -> Iterator[Numbered]:
        """Every figure as a sample with its path; what is wrong is added to ``problems``."""
        for row_index, row in enumerate(self.pairs):
            where = f"{path}.pairs[{row_index}]"
            problem = self._row_problem(row)
            if problem:
                remedy = "write [node, node, one figure or null for each message size] or [node, node, failed]"
                problems.append(FieldProblem(where, row, problem, remedy))
                continue
            source, destination, *figures = row
            failed = figures == [FAILED]
            for column, size in enumerate(self.message_bytes):
                figure = None if failed else figures[column]
                if figure is None and not failed:
                    continue
                at = where if failed else f"{where}[{column + 2}]"
                try:
                    _check_figure(figure, at)
                except InvalidInput as error:
                    problems.append(FieldProblem(error.field, error.value, error.problem, error.remedy))
                    continue
                yield at, self._sample(str(source), str(destination), size, figure)

    def _row_problem(self, row: list[float | str | None]) -> str:
        if len(row) < 3 or not (isinstance(row[0], str) and isinstance(row[1], str)):
            return "a row starts with two node names"
        if row[2:] == [FAILED]:
            return ""
        if any(isinstance(figure, str) for figure in row[2:]):
            return f"the only word after the names is {FAILED!r}, and it stands alone"
        if len(row) - 2 != len(self.message_bytes):
            return f"has {len(row) - 2} figures for {len(self.message_bytes)} message sizes"
        return ""

    def _sample(self, source: str, destination: str, size: float, figure: float | str | None) -> Sample:
        return Sample(
            source=source,
            destination=destination,
            direction=self.direction,
            tool=self.tool,
            collective=self.collective,
            message_bytes=float(size),
            ranks_per_node=self.ranks_per_node,
            pairs_active=self.pairs_active,
            status=SampleStatus.FAILED if figure is None else SampleStatus.OK,
            bytes_per_s=None if figure is None else float(figure) * GBYTE,
            measured_at=self.measured_at,
        )


Tables = Annotated[list[MeasurementTableDocument], Field(max_length=MOST_TABLES), long_list(MOST_TABLES)]
Samples = Annotated[list[MeasurementDocument], Field(max_length=MOST_SAMPLES), long_list(MOST_SAMPLES)]


class MeasurementsDocument(Document):
    """New measurements of a cluster that is already known."""

    measurement_tables: Tables = Field(default_factory=list, description="Tables of many pairs.", examples=[[]])
    samples: Samples = Field(default_factory=list, description="Single measurements.", examples=[[]])


def _check_figure(figure: float | str | None, path: str) -> None:
    if figure is not None and not float(figure) > 0:
        word = "zero" if figure == 0 else "negative"
        raise InvalidInput(
            path,
            figure,
            f"a measured value cannot be {word}",
            "a failed test is unknown, not zero: mark it failed or leave it out",
        )
