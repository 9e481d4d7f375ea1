"""Operations of the API; made by ``app.api.client_source``, changed only there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from httpx2 import ServerSentEvent

from app.client.connection import Connection, part

if TYPE_CHECKING:
    from pydantic.types import AwareDatetime

    from app.answers.measured_runs import DriftAnswer, MeasuredRunAnswer, RecalibrationAnswer
    from app.answers.outlook import OutlookAnswer
    from app.answers.plans import PlanAccepted, PlanAnswer, PlanSummary
    from app.answers.routing import RoutingAnswer, RoutingStored, RoutingSummary
    from app.api.v1.answers import PageAnswer
    from app.api.v1.calibrations import CalibrationAnswer, CalibrationSummary, NewCalibration
    from app.api.v1.expert_placements import ExportRequest, MapFormatAnswer
    from app.api.v1.frameworks import FrameworkDetail
    from app.api.v1.models import ModelAnswer, NewModel
    from app.api.v1.plan_exports import ExportAnswer
    from app.api.v1.predictions import PredictionAnswer
    from app.comparing.documents import ComparisonDocument, ComparisonRequest
    from app.db.status import PlanStatus
    from app.documents.experiments import ExperimentsDocument
    from app.documents.framework import FrameworkAnswer
    from app.documents.gpu_kinds import GpuKindDocument
    from app.documents.plan_parts import TimelineEventDocument
    from app.documents.run_reports import RecalibrationRequest, RunReportDocument
    from app.documents.sensitivity import SensitivityDocument, SensitivityRequest
    from app.documents.serving_prediction import ServingPredictionDocument
    from app.experts.answer import PlacementAnswer
    from app.experts.rebalancing import RebalanceAnswer, RebalanceRequest
    from app.experts.request import PlacementRequest
    from app.services.planning.requests import (
        ExperimentsRequest,
        FleetPlanRequest,
        PlanRequest,
        PredictionRequest,
        ProblemRequest,
        ReinforcementPlanRequest,
        ServingPlanRequest,
        ServingPredictionRequest,
        ServingProblemRequest,
    )


class PlanningOperations(Connection):
    """Operations of the service."""

    def create_calibration(
        self, body: NewCalibration | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> CalibrationAnswer:
        """Fit a calibration."""
        told: CalibrationAnswer = self._ask(
            "POST",
            "/api/v1/calibrations",
            "CalibrationAnswer",
            headers={"Idempotency-Key": idempotency_key},
            body=body,
        )
        return told

    def list_calibrations(
        self, *, gpu_kind: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> PageAnswer[CalibrationSummary]:
        """Stored calibrations by name, without their parameters."""
        told: PageAnswer[CalibrationSummary] = self._ask(
            "GET",
            "/api/v1/calibrations",
            "PageAnswer[CalibrationSummary]",
            query={"gpu_kind": gpu_kind, "limit": limit, "cursor": cursor},
        )
        return told

    def get_calibration(self, calibration: str) -> CalibrationAnswer:
        """A stored calibration."""
        told: CalibrationAnswer = self._ask("GET", f"/api/v1/calibrations/{part(calibration)}", "CalibrationAnswer")
        return told

    def delete_calibration(self, calibration: str, *, if_match: str | None = None) -> None:
        """Forget a calibration; plans keep the parameters they were made with."""
        self._ask("DELETE", f"/api/v1/calibrations/{part(calibration)}", "None", headers={"If-Match": if_match})

    def create_comparison(self, body: ComparisonRequest | Mapping[str, Any]) -> ComparisonDocument:
        """Compare configurations and other plans with a plan: step by parts, memory, days and dollars."""
        told: ComparisonDocument = self._ask("POST", "/api/v1/comparisons", "ComparisonDocument", body=body)
        return told

    def create_experiments(self, body: ExperimentsRequest | Mapping[str, Any]) -> ExperimentsDocument:
        """Choose the runs that would tell most of the parameters by which a plan decides; nothing is stored."""
        told: ExperimentsDocument = self._ask("POST", "/api/v1/experiments", "ExperimentsDocument", body=body)
        return told

    def create_expert_placement(
        self, body: PlacementRequest | Mapping[str, Any], *, format_: str | None = None
    ) -> PlacementAnswer:
        """Place experts and their copies in slots, for one workload or a set."""
        told: PlacementAnswer = self._ask(
            "POST", "/api/v1/expert-placements", "PlacementAnswer", query={"format": format_}, body=body
        )
        return told

    def rebalance_experts(self, body: RebalanceRequest | Mapping[str, Any]) -> RebalanceAnswer:
        """The cheapest moves from the map that runs to one that suits the counts, and whether they pay."""
        told: RebalanceAnswer = self._ask(
            "POST", "/api/v1/expert-placements/rebalance", "RebalanceAnswer", body=body
        )
        return told

    def export_expert_placement(self, body: ExportRequest | Mapping[str, Any]) -> bytes:
        """The files of a map, for an engine, as a ZIP archive; each was read back and says the same map."""
        told: bytes = self._ask("POST", "/api/v1/expert-placements/export", "", body=body)
        return told

    def list_expert_map_formats(self) -> list[MapFormatAnswer]:
        """The formats of expert maps."""
        told: list[MapFormatAnswer] = self._ask("GET", "/api/v1/expert-map-formats", "list[MapFormatAnswer]")
        return told

    def list_frameworks(self) -> list[FrameworkAnswer]:
        """The framework generations that a workload can name, oldest first, each with the source of its facts."""
        told: list[FrameworkAnswer] = self._ask("GET", "/api/v1/frameworks", "list[FrameworkAnswer]")
        return told

    def get_framework(self, framework: str) -> FrameworkDetail:
        """One generation with its facts, also as a description to start from."""
        told: FrameworkDetail = self._ask("GET", f"/api/v1/frameworks/{part(framework)}", "FrameworkDetail")
        return told

    def create_run(
        self, body: RunReportDocument | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> MeasuredRunAnswer:
        """Report what was measured of a finished run; it is kept beside what its plan had predicted."""
        told: MeasuredRunAnswer = self._ask(
            "POST", "/api/v1/runs", "MeasuredRunAnswer", headers={"Idempotency-Key": idempotency_key}, body=body
        )
        return told

    def list_runs(
        self,
        *,
        cluster: str | None = None,
        framework: str | None = None,
        plan: str | None = None,
        since: AwareDatetime | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> PageAnswer[MeasuredRunAnswer]:
        """Measured runs beside their predictions, the last that ended first."""
        told: PageAnswer[MeasuredRunAnswer] = self._ask(
            "GET",
            "/api/v1/runs",
            "PageAnswer[MeasuredRunAnswer]",
            query={
                "cluster": cluster,
                "framework": framework,
                "plan": plan,
                "since": since,
                "limit": limit,
                "cursor": cursor,
            },
        )
        return told

    def get_run(self, run: str) -> MeasuredRunAnswer:
        """A measured run; it never changes."""
        told: MeasuredRunAnswer = self._ask("GET", f"/api/v1/runs/{part(run)}", "MeasuredRunAnswer")
        return told

    def delete_run(self, run: str, *, if_match: str | None = None) -> None:
        """Forget a run that was measured wrongly: nothing is fitted to it any more."""
        self._ask("DELETE", f"/api/v1/runs/{part(run)}", "None", headers={"If-Match": if_match})

    def get_drift(
        self, *, cluster: str | None = None, framework: str | None = None, since: AwareDatetime | None = None
    ) -> DriftAnswer:
        """How far measured steps are from predictions by cluster."""
        told: DriftAnswer = self._ask(
            "GET",
            "/api/v1/drift",
            "DriftAnswer",
            query={"cluster": cluster, "framework": framework, "since": since},
        )
        return told

    def create_recalibration(self, body: RecalibrationRequest | Mapping[str, Any]) -> RecalibrationAnswer:
        """Fit a calibration to reported runs and say what it would change; takes seconds, and stores nothing."""
        told: RecalibrationAnswer = self._ask("POST", "/api/v1/recalibrations", "RecalibrationAnswer", body=body)
        return told

    def list_models(self, *, limit: int | None = None, cursor: str | None = None) -> PageAnswer[ModelAnswer]:
        """Models that users stored, by name; the catalogue has its own address."""
        told: PageAnswer[ModelAnswer] = self._ask(
            "GET", "/api/v1/models", "PageAnswer[ModelAnswer]", query={"limit": limit, "cursor": cursor}
        )
        return told

    def create_model(
        self, body: NewModel | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> ModelAnswer:
        """Store a model under a name that is free."""
        told: ModelAnswer = self._ask(
            "POST", "/api/v1/models", "ModelAnswer", headers={"Idempotency-Key": idempotency_key}, body=body
        )
        return told

    def get_model(self, model: str) -> ModelAnswer:
        """A stored or catalogue model."""
        told: ModelAnswer = self._ask("GET", f"/api/v1/models/{part(model)}", "ModelAnswer")
        return told

    def delete_model(self, model: str, *, if_match: str | None = None) -> None:
        """Forget a stored model; plans keep their copy."""
        self._ask("DELETE", f"/api/v1/models/{part(model)}", "None", headers={"If-Match": if_match})

    def list_model_catalogue(self) -> list[ModelAnswer]:
        """The models that need no numbers."""
        told: list[ModelAnswer] = self._ask("GET", "/api/v1/model-catalogue", "list[ModelAnswer]")
        return told

    def list_gpu_kinds(self) -> list[GpuKindDocument]:
        """The GPU kinds that need no figures, each with the source of its figures."""
        told: list[GpuKindDocument] = self._ask("GET", "/api/v1/gpu-kinds", "list[GpuKindDocument]")
        return told

    def create_outlook(self, body: ProblemRequest | ServingProblemRequest | Mapping[str, Any]) -> OutlookAnswer:
        """Say in seconds what fits, on how few GPUs, and about how fast; nothing is stored."""
        told: OutlookAnswer = self._ask("POST", "/api/v1/outlooks", "OutlookAnswer", body=body)
        return told

    def create_plan(
        self,
        body: PlanRequest | ServingPlanRequest | ReinforcementPlanRequest | FleetPlanRequest | Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
    ) -> PlanAccepted:
        """Ask for a plan of training."""
        told: PlanAccepted = self._ask(
            "POST", "/api/v1/plans", "PlanAccepted", headers={"Idempotency-Key": idempotency_key}, body=body
        )
        return told

    def list_plans(
        self,
        *,
        status: PlanStatus | None = None,
        cluster: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> PageAnswer[PlanSummary]:
        """Plans, newest first, without their results."""
        told: PageAnswer[PlanSummary] = self._ask(
            "GET",
            "/api/v1/plans",
            "PageAnswer[PlanSummary]",
            query={"status": status, "cluster": cluster, "limit": limit, "cursor": cursor},
        )
        return told

    def get_plan(self, plan: str) -> PlanAnswer:
        """A plan with its progress, and its result once it has ended; the ETag changes with both."""
        told: PlanAnswer = self._ask("GET", f"/api/v1/plans/{part(plan)}", "PlanAnswer")
        return told

    def delete_plan(self, plan: str, *, if_match: str | None = None) -> None:
        """Forget a plan; one that waits or runs is called off."""
        self._ask("DELETE", f"/api/v1/plans/{part(plan)}", "None", headers={"If-Match": if_match})

    def cancel_plan(self, plan: str) -> PlanSummary:
        """Call off a plan that waits or runs; one that has ended stays as it is."""
        told: PlanSummary = self._ask("POST", f"/api/v1/plans/{part(plan)}/cancel", "PlanSummary")
        return told

    def stop_plan(self, plan: str) -> PlanSummary:
        """End a search with the best plan so far."""
        told: PlanSummary = self._ask("POST", f"/api/v1/plans/{part(plan)}/stop", "PlanSummary")
        return told

    def get_timeline(self, plan: str) -> list[TimelineEventDocument]:
        """The predicted schedule of one step; for viewers there is the export perfetto."""
        told: list[TimelineEventDocument] = self._ask(
            "GET", f"/api/v1/plans/{part(plan)}/timeline", "list[TimelineEventDocument]"
        )
        return told

    def list_exports(self, plan: str) -> list[ExportAnswer]:
        """The formats of a plan for other programs."""
        told: list[ExportAnswer] = self._ask("GET", f"/api/v1/plans/{part(plan)}/exports", "list[ExportAnswer]")
        return told

    def get_export(self, plan: str, format_: str, *, set_: list[str] | None = None) -> bytes:
        """A plan as another program reads it; the formats are listed under exports."""
        told: bytes = self._ask(
            "GET", f"/api/v1/plans/{part(plan)}/exports/{part(format_)}", "", query={"set": set_}
        )
        return told

    def stream_plan(self, plan: str) -> Iterator[ServerSentEvent]:
        """Server-sent events: ``progress`` whenever something changed, and ``end`` once the plan has ended."""
        return self._events(f"/api/v1/plans/{part(plan)}/events")

    def create_prediction(self, body: PredictionRequest | Mapping[str, Any]) -> PredictionAnswer:
        """Price a configuration at once, without a search; a configuration that does not fit is priced, too."""
        told: PredictionAnswer = self._ask("POST", "/api/v1/predictions", "PredictionAnswer", body=body)
        return told

    def create_routing(self, body: Mapping[str, Any], *, idempotency_key: str | None = None) -> RoutingStored:
        """Read counts of expert selections."""
        told: RoutingStored = self._ask(
            "POST", "/api/v1/routing", "RoutingStored", headers={"Idempotency-Key": idempotency_key}, body=body
        )
        return told

    def list_routing(self, *, limit: int | None = None, cursor: str | None = None) -> PageAnswer[RoutingSummary]:
        """Stored statistics by name, without their counts."""
        told: PageAnswer[RoutingSummary] = self._ask(
            "GET", "/api/v1/routing", "PageAnswer[RoutingSummary]", query={"limit": limit, "cursor": cursor}
        )
        return told

    def get_routing(self, name: str, *, counts: bool | None = None, pairs: bool | None = None) -> RoutingAnswer:
        """Stored statistics: skew of each layer, how alike workloads are, and the counts where asked for."""
        told: RoutingAnswer = self._ask(
            "GET", f"/api/v1/routing/{part(name)}", "RoutingAnswer", query={"counts": counts, "pairs": pairs}
        )
        return told

    def replace_routing(self, name: str, body: Mapping[str, Any], *, if_match: str | None = None) -> RoutingStored:
        """Store other counts under a name; with ``add`` those of other workloads stay."""
        told: RoutingStored = self._ask(
            "PUT", f"/api/v1/routing/{part(name)}", "RoutingStored", headers={"If-Match": if_match}, body=body
        )
        return told

    def delete_routing(self, name: str, *, if_match: str | None = None) -> None:
        """Forget stored statistics."""
        self._ask("DELETE", f"/api/v1/routing/{part(name)}", "None", headers={"If-Match": if_match})

    def analyse_sensitivity(self, plan: str, body: SensitivityRequest | Mapping[str, Any]) -> SensitivityDocument:
        """Search the fastest plans of a finished plan's problem on fewer GPUs and after changes."""
        told: SensitivityDocument = self._ask(
            "POST", f"/api/v1/plans/{part(plan)}/sensitivity", "SensitivityDocument", body=body
        )
        return told

    def create_serving_prediction(
        self, body: ServingPredictionRequest | Mapping[str, Any]
    ) -> ServingPredictionDocument:
        """Price a serving configuration at once; one that does not fit is priced, too."""
        told: ServingPredictionDocument = self._ask(
            "POST", "/api/v1/serving-predictions", "ServingPredictionDocument", body=body
        )
        return told
