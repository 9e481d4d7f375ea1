"""A calibration: parameters of the cost model fitted on own measurements, as it is written, stored and read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from app.documents.framework import FrameworkDescription, described_frameworks
from app.documents.hardware_profile import MOST_KERNELS, CollectiveDocument
from app.documents.moments import Moment
from app.documents.reading import (
    NAME,
    Document,
    FieldProblem,
    InvalidDocument,
    Line,
    NotNegative,
    Number,
    Positive,
    Prose,
    Text,
    WholeNumber,
    close_name,
)
from app.serialization import canonical, jsonable
from cluster_models.calibration.fitted import ErrorSpread, FittedParameters, FittedValue
from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.serving.engines import serving_engines
from cluster_models.serving.own_rates import FIGURES, FittedServing
from cluster_models.training.frameworks import frameworks
from solver.costs.calibration import PARAMETERS, Owner
from solver.fitting.report import Explanation
from solver.serving.rates import QUANTITIES

MOST_OWNERS: Final = 200
MOST_PARAMETERS: Final = 100
"""Bound for one owner; more than there are, so that a new parameter changes no description of the API."""
MOST_ERROR: Final = 10.0
"""Bound for log(measured / predicted); a prediction off by e^10 is none."""
MOST_FACTOR: Final = 1000.0
"""Bound for the factor of a rate of serving, and for its inverse."""
MOST_RUNS_KEPT: Final = 1000
"""Runs of which a calibration keeps the error of each."""
HASH_LENGTH: Final = 16


class ToldBy(StrEnum):
    """Evidence for a parameter's value."""

    RUNS = "runs"
    PROFILE = "profile"


class ParameterDocument(Document):
    """One fitted parameter, in SI units."""

    value: NotNegative = Field(description="Fitted value.", examples=[0.83])
    low: NotNegative = Field(description="Lower end of its 90 % interval.", examples=[0.79])
    high: NotNegative = Field(description="Upper end.", examples=[0.87])
    steps: WholeNumber = Field(description="Measured runs or kernels that tell it.", examples=[12])
    before: NotNegative | None = Field(None, description="Value before the fit.", examples=[0.9])
    told_by: ToldBy = Field(ToldBy.RUNS, description="runs or profile.", examples=["runs"])


class ErrorsDocument(Document):
    """How far predictions of the runs are off, each predicted without itself."""

    p10: Number = Field(description="10th percentile of log(measured / predicted).", examples=[-0.04])
    p50: Number = Field(description="Median.", examples=[0.0])
    p90: Number = Field(description="90th percentile.", examples=[0.05])
    runs: WholeNumber = Field(
        description="Independent runs that they are worth: repetitions are little more than one.", examples=[12]
    )


class FigureErrorsDocument(Document):
    """Mean absolute relative errors of one figure of serving."""

    points: WholeNumber = Field(description="Points with it.", examples=[20])
    before_fraction: NotNegative = Field(description="Before the fit.", examples=[0.21])
    after_fraction: NotNegative = Field(description="After it.", examples=[0.06])
    held_out_fraction: NotNegative = Field(
        description="Each predicted by a fit without its sweep.", examples=[0.08]
    )


class ServingRatesDocument(Document):
    """Rates of one serving engine on one kind of GPU."""

    points: WholeNumber = Field(description="Measured points.", examples=[20])
    factors: dict[Text, ParameterDocument] = Field(
        max_length=MOST_PARAMETERS,
        description="Factor of each rate over the shipped one; of a share s, the factor of s / (1 - s).",
    )
    spreads: dict[Text, NotNegative] = Field(
        max_length=len(FIGURES),
        description="By figure: |log(measured / predicted)| within which four unseen points in five lay.",
        examples=[{"token": 0.08, "first_token": 0.3}],
    )
    explanation: Explanation | None = Field(None, description="As for steps.", examples=["factor"])
    errors: dict[Text, FigureErrorsDocument] = Field(
        default_factory=dict, max_length=len(FIGURES), description="By figure: token, first_token, throughput."
    )
    outliers: list[Line] = Field(
        default_factory=list, max_length=1000, description="Points that the fit does not explain.", examples=[[]]
    )


class OutlierDocument(Document):
    """A run that the fit does not explain: it was probably not measured as stated, or something disturbed it."""

    run: Line = Field(description="Its id.", examples=["r17"])
    measured_over_predicted: NotNegative = Field(description="By step time.", examples=[3.1])


class RunErrorDocument(Document):
    """How long the step of a run took over what was predicted."""

    run: Line = Field(description="Its id.", examples=["r17"])
    before: Positive = Field(description="Measured over predicted before the fit.", examples=[1.31])
    after: Positive = Field(description="The same after it.", examples=[1.02])
    held_out: Positive | None = Field(
        None, description="The same by a fit without the run's group; null where none was made.", examples=[1.04]
    )


class PatternDocument(Document):
    """A setting by which the errors of the fit differ: a mechanism is missing, or wrong."""

    setting: Line = Field(description="In words.", examples=["pipeline stages"])
    threshold: Number | None = Field(
        None, description="From which value on; null for a choice, as of a precision.", examples=[8]
    )
    runs: WholeNumber = Field(description="Runs with it.", examples=[7])
    measured_over_predicted: NotNegative = Field(description="Median of these.", examples=[1.4])
    others_measured_over_predicted: NotNegative = Field(description="The same of the others.", examples=[1.0])
    mechanism: Line = Field(description="What to look at.", examples=["transfers between stages"])
    alike: list[Line] = Field(
        default_factory=list,
        max_length=100,
        description="Settings that part these runs in the same two: other runs would tell them apart.",
        examples=[["data ranks"]],
    )


class FitDocument(Document):
    """How well the fit explains what was measured; errors are mean absolute relative ones."""

    runs: WholeNumber = Field(0, description="Measured runs.", examples=[12])
    kernels: WholeNumber = Field(0, description="Kernels of the hardware profile.", examples=[310])
    error_before_fraction: NotNegative | None = Field(
        None, description="Typical error of steps, before.", examples=[0.21]
    )
    error_after_fraction: NotNegative | None = Field(
        None, description="Typical error of steps, after.", examples=[0.04]
    )
    error_held_out_fraction: NotNegative | None = Field(
        None, description="Typical error of steps, each predicted by a fit without its group.", examples=[0.06]
    )
    memory_error_before_fraction: NotNegative | None = Field(
        None, description="The same of peak memory, before.", examples=[0.11]
    )
    memory_error_after_fraction: NotNegative | None = Field(
        None, description="The same of peak memory, after.", examples=[0.07]
    )
    kernel_error_before_fraction: NotNegative | None = Field(
        None, description="The same of kernels, before.", examples=[0.3]
    )
    kernel_error_after_fraction: NotNegative | None = Field(
        None, description="The same of kernels, after.", examples=[0.1]
    )
    memory_error_held_out_fraction: NotNegative | None = Field(
        None, description="The same of peak memory, each predicted without its configuration.", examples=[0.08]
    )
    explanation: Explanation | None = Field(
        None,
        description="How the runs differ from what is taken without them, as far as runs that were left out "
        "confirm it: nothing, one common factor, or parameters.",
        examples=["parameters"],
    )
    outliers: list[OutlierDocument] = Field(
        default_factory=list, max_length=1000, description="Runs that the fit does not explain.", examples=[[]]
    )
    patterns: list[PatternDocument] = Field(
        default_factory=list,
        max_length=100,
        description="By which settings steps still differ from the fit, the strongest first.",
        examples=[[]],
    )
    steps: list[RunErrorDocument] = Field(
        default_factory=list, max_length=MOST_RUNS_KEPT, description="Each run by itself.", examples=[[]]
    )
    not_told: list[Line] = Field(
        default_factory=list, max_length=10_000, description="What kept its value.", examples=[["H100 fp8_share"]]
    )
    warnings: list[Line] = Field(default_factory=list, max_length=1000, description="What to know.", examples=[[]])


_Parameters = Annotated[dict[Text, ParameterDocument], Field(min_length=1, max_length=MOST_PARAMETERS)]


class CalibrationDocument(Document):
    """Fitted parameters by GPU kind and framework generation; the shipped ones stand in for the rest."""

    format: Literal["meshwright-calibration"] = Field("meshwright-calibration", description="What this file is.")
    version: Literal[1] = Field(1, description="Version of the format.")
    name: Text = Field(pattern=NAME, description="Name to plan with.", examples=["our-h100"])
    created_at: Moment | None = Field(None, description="When it was fitted.", examples=["2026-11-21T09:00:00Z"])
    source: Prose = Field("", description="What it was fitted on.", examples=["12 runs of runs.csv"])
    gpus: dict[Text, _Parameters] = Field(
        default_factory=dict, max_length=MOST_OWNERS, description="Parameters of GPU kinds."
    )
    frameworks: dict[Text, _Parameters] = Field(
        default_factory=dict, max_length=MOST_OWNERS, description="Parameters of framework generations."
    )
    descriptions: list[FrameworkDescription] = Field(
        default_factory=list,
        max_length=MOST_OWNERS,
        description="Frameworks of the runs that are not shipped: plans with this calibration know their names.",
        examples=[[]],
    )
    serving: dict[Text, ServingRatesDocument] = Field(
        default_factory=dict,
        max_length=MOST_OWNERS,
        description="Rates of serving engines by engine generation and GPU kind: vllm-0.16@H100-SXM5-80GB.",
    )
    errors: ErrorsDocument | None = Field(None, description="Makes the interval of a prediction.")
    fit: FitDocument | None = Field(None, description="How well it fits.")
    collectives: list[CollectiveDocument] = Field(
        default_factory=list,
        max_length=MOST_KERNELS,
        description="Collectives of the hardware profile, as measured.",
    )

    def to_fitted(self) -> FittedParameters:
        """The domain value, named after this document and its content.

        Raises ``InvalidDocument`` for parameters and frameworks that there are not, and values outside their
        physical range.
        """
        described = described_frameworks(self.descriptions, at="descriptions")
        tables = {Owner.GPU: self.gpus, Owner.FRAMEWORK: self.frameworks}
        problems = [found for owner, table in tables.items() for found in _problems(owner, table)]
        problems += [_unknown_framework(name) for name in self.frameworks if name not in described | frameworks()]
        problems += [found for name, each in self.serving.items() for found in _problems_of_serving(name, each)]
        if not self.gpus and not self.frameworks and not self.serving:
            problems.append(FieldProblem("gpus", {}, "holds no parameter", "fit one: meshwright calibrate"))
        if self.errors is not None:
            problems += _problems_of_errors(self.errors)
        if problems:
            raise InvalidDocument(problems)
        values = {
            owner: {
                name: {key: FittedValue(each.value, each.low, each.high, each.steps) for key, each in entry.items()}
                for name, entry in table.items()
            }
            for owner, table in tables.items()
        }
        errors = None if self.errors is None else ErrorSpread(**self.errors.model_dump())
        serving = {
            name: FittedServing(
                {key: value.value for key, value in each.factors.items()}, each.spreads, each.points
            )
            for name, each in self.serving.items()
        }
        bare = FittedParameters(values[Owner.GPU], values[Owner.FRAMEWORK], "", errors, serving=serving)
        return replace(bare, source=f"{self.name} {self._digest(bare)}", described=described)

    def _digest(self, fitted: FittedParameters) -> str:
        """A hash of the content: descriptions as they are stated here, whatever facts are added later."""
        content = jsonable(fitted)
        del content["described"]
        if not self.serving:
            del content["serving"]
        if self.descriptions:
            content["descriptions"] = [each.model_dump(exclude_none=True) for each in self.descriptions]
        return hashlib.sha256(canonical(content).encode()).hexdigest()[:HASH_LENGTH]


def _problems_of_serving(name: str, rates: ServingRatesDocument) -> Iterator[FieldProblem]:
    engine, _, gpu = name.rpartition("@")
    if engine not in serving_engines() or gpu not in gpu_kinds():
        remedy = "write it as vllm-0.16@H100-SXM5-80GB"
        yield FieldProblem(f"serving.{name}", name, "is not an engine generation and GPU kind", remedy)
    for key, each in rates.factors.items():
        path = f"serving.{name}.factors.{key}"
        if key not in QUANTITIES:
            yield FieldProblem(path, key, "unknown rate", close_name(key, list(QUANTITIES)))
        elif not 1.0 / MOST_FACTOR <= each.value <= MOST_FACTOR:
            yield FieldProblem(f"{path}.value", each.value, f"must lie in {1.0 / MOST_FACTOR:g}..{MOST_FACTOR:g}")
    for key, spread in rates.spreads.items():
        if key not in FIGURES or spread > MOST_ERROR:
            path = f"serving.{name}.spreads.{key}"
            yield FieldProblem(path, spread, f"must be of {', '.join(FIGURES)} and at most {MOST_ERROR:g}")


def _unknown_framework(name: str) -> FieldProblem:
    remedy = f"describe it under descriptions; {close_name(name, list(frameworks()))}"
    return FieldProblem(f"{Owner.FRAMEWORK}.{name}", name, "is not a shipped generation", remedy)


def _problems_of_errors(errors: ErrorsDocument) -> list[FieldProblem]:
    found = []
    if not -MOST_ERROR <= errors.p10 <= errors.p50 <= errors.p90 <= MOST_ERROR:
        percentiles = [errors.p10, errors.p50, errors.p90]
        problem = f"must be in this order and lie in {-MOST_ERROR:g}..{MOST_ERROR:g}"
        found.append(
            FieldProblem("errors.p10, p50, p90", percentiles, problem, "logarithms of measured / predicted")
        )
    if not errors.runs:
        found.append(FieldProblem("errors.runs", errors.runs, "must be at least 1", "leave errors out"))
    return found


def _problems(owner: Owner, table: Mapping[str, Mapping[str, ParameterDocument]]) -> list[FieldProblem]:
    found = []
    for name, entry in table.items():
        for key, each in entry.items():
            path = f"{owner}.{name}.{key}"
            known = [parameter for parameter, limits in PARAMETERS.items() if limits.owner is owner]
            if key not in known:
                found.append(FieldProblem(path, key, "unknown parameter", close_name(key, known)))
                continue
            limits = PARAMETERS[key]
            if not limits.low <= each.value <= limits.high:
                problem = f"must lie in {limits.low:g}..{limits.high:g}"
                found.append(FieldProblem(f"{path}.value", each.value, problem))
            if not each.low <= each.value <= each.high:
                problem = "lies outside its own interval"
                found.append(FieldProblem(f"{path}.value", each.value, problem, "low <= value <= high"))
    return found
