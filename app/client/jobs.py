"""Operations of the API; made by ``app.api.client_source``, changed only there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.client.connection import Connection, part

if TYPE_CHECKING:
    from app.answers.occupancy import OccupancyAnswer, SparesAnswer
    from app.answers.portfolios import PortfolioAnswer, PortfolioSummary
    from app.answers.resilience import ResilienceAnswer
    from app.answers.running_jobs import JobAnswer, RunningPlanAnswer, RunningPlanSummaryAnswer
    from app.api.v1.answers import PageAnswer
    from app.api.v1.plan_exports import ExportAnswer
    from app.api.v1.portfolios import PortfolioRequest
    from app.api.v1.replan_bodies import SpareNodesDocument, StepDocument
    from app.api.v1.resilience import ResilienceRequest
    from app.documents.running_jobs import JobDocument, JobPatch, RunningPlanDocument


class JobsOperations(Connection):
    """Operations of the service."""

    def get_occupancy(self, cluster: str) -> OccupancyAnswer:
        """Every GPU that a job holds; no GPU is ever held by two."""
        told: OccupancyAnswer = self._ask("GET", f"/api/v1/clusters/{part(cluster)}/occupancy", "OccupancyAnswer")
        return told

    def list_spares(self, cluster: str) -> SparesAnswer:
        """The nodes kept as spares, and which of them are free."""
        told: SparesAnswer = self._ask("GET", f"/api/v1/clusters/{part(cluster)}/spares", "SparesAnswer")
        return told

    def replace_spares(
        self, cluster: str, body: SpareNodesDocument | Mapping[str, Any], *, if_match: str | None = None
    ) -> SparesAnswer:
        """Keep these nodes as spares in place of all; nodes that a job holds serve once they are free."""
        told: SparesAnswer = self._ask(
            "PUT",
            f"/api/v1/clusters/{part(cluster)}/spares",
            "SparesAnswer",
            headers={"If-Match": if_match},
            body=body,
        )
        return told

    def create_portfolio(
        self, body: PortfolioRequest | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> PortfolioSummary:
        """Ask for up to 16 plans of training at once, all or none: each waits for its turn as any plan does."""
        told: PortfolioSummary = self._ask(
            "POST",
            "/api/v1/portfolios",
            "PortfolioSummary",
            headers={"Idempotency-Key": idempotency_key},
            body=body,
        )
        return told

    def list_portfolios(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> PageAnswer[PortfolioSummary]:
        """Portfolios, newest first, without what came out."""
        told: PageAnswer[PortfolioSummary] = self._ask(
            "GET", "/api/v1/portfolios", "PageAnswer[PortfolioSummary]", query={"limit": limit, "cursor": cursor}
        )
        return told

    def get_portfolio(self, portfolio: str) -> PortfolioAnswer:
        """A portfolio with what came out so far and one proof for all."""
        told: PortfolioAnswer = self._ask("GET", f"/api/v1/portfolios/{part(portfolio)}", "PortfolioAnswer")
        return told

    def cancel_portfolio(self, portfolio: str) -> PortfolioSummary:
        """Call off the plans that wait or run; those that have ended stay as they are."""
        told: PortfolioSummary = self._ask(
            "POST", f"/api/v1/portfolios/{part(portfolio)}/cancel", "PortfolioSummary"
        )
        return told

    def delete_portfolio(self, portfolio: str, *, if_match: str | None = None) -> None:
        """Forget a portfolio; its plans stay."""
        self._ask("DELETE", f"/api/v1/portfolios/{part(portfolio)}", "None", headers={"If-Match": if_match})

    def get_plan_resilience(
        self, plan: str, *, failures_per_node_day: float | None = None, label: str | None = None
    ) -> ResilienceAnswer:
        """Losses that a finished plan survives, and its share of time with progress (usual checkpoints)."""
        told: ResilienceAnswer = self._ask(
            "GET",
            f"/api/v1/plans/{part(plan)}/resilience",
            "ResilienceAnswer",
            query={"failures_per_node_day": failures_per_node_day, "label": label},
        )
        return told

    def judge_resilience(self, body: ResilienceRequest | Mapping[str, Any]) -> ResilienceAnswer:
        """The same of any plan."""
        told: ResilienceAnswer = self._ask("POST", "/api/v1/resilience", "ResilienceAnswer", body=body)
        return told

    def create_job(
        self, cluster: str, body: JobDocument | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> JobAnswer:
        """Register a job."""
        told: JobAnswer = self._ask(
            "POST",
            f"/api/v1/clusters/{part(cluster)}/jobs",
            "JobAnswer",
            headers={"Idempotency-Key": idempotency_key},
            body=body,
        )
        return told

    def list_jobs(
        self, cluster: str, *, limit: int | None = None, cursor: str | None = None
    ) -> PageAnswer[JobAnswer]:
        """The jobs of a cluster, by name."""
        told: PageAnswer[JobAnswer] = self._ask(
            "GET",
            f"/api/v1/clusters/{part(cluster)}/jobs",
            "PageAnswer[JobAnswer]",
            query={"limit": limit, "cursor": cursor},
        )
        return told

    def get_job(self, cluster: str, job: str) -> JobAnswer:
        """A job, and the plan it runs by; the ETag names this content."""
        told: JobAnswer = self._ask("GET", f"/api/v1/clusters/{part(cluster)}/jobs/{part(job)}", "JobAnswer")
        return told

    def change_job(
        self, cluster: str, job: str, body: JobPatch | Mapping[str, Any], *, if_match: str | None = None
    ) -> JobAnswer:
        """Change a job's weight or recovery policy."""
        told: JobAnswer = self._ask(
            "PATCH",
            f"/api/v1/clusters/{part(cluster)}/jobs/{part(job)}",
            "JobAnswer",
            headers={"If-Match": if_match},
            body=body,
        )
        return told

    def delete_job(self, cluster: str, job: str, *, if_match: str | None = None) -> None:
        """Forget a job and free its GPUs."""
        self._ask(
            "DELETE", f"/api/v1/clusters/{part(cluster)}/jobs/{part(job)}", "None", headers={"If-Match": if_match}
        )

    def list_running_plans(
        self, cluster: str, job: str, *, limit: int | None = None, cursor: str | None = None
    ) -> PageAnswer[RunningPlanSummaryAnswer]:
        """The plans of a job, newest first, without their content."""
        told: PageAnswer[RunningPlanSummaryAnswer] = self._ask(
            "GET",
            f"/api/v1/clusters/{part(cluster)}/jobs/{part(job)}/running-plans",
            "PageAnswer[RunningPlanSummaryAnswer]",
            query={"limit": limit, "cursor": cursor},
        )
        return told

    def propose_running_plan(
        self,
        cluster: str,
        job: str,
        body: RunningPlanDocument | Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
    ) -> RunningPlanSummaryAnswer:
        """Propose a plan for a job; it takes its GPUs when it is approved."""
        told: RunningPlanSummaryAnswer = self._ask(
            "POST",
            f"/api/v1/clusters/{part(cluster)}/jobs/{part(job)}/running-plans",
            "RunningPlanSummaryAnswer",
            headers={"Idempotency-Key": idempotency_key},
            body=body,
        )
        return told

    def get_running_plan(self, running_plan: str) -> RunningPlanAnswer:
        """A plan of a job, with its content."""
        told: RunningPlanAnswer = self._ask(
            "GET", f"/api/v1/running-plans/{part(running_plan)}", "RunningPlanAnswer"
        )
        return told

    def approve_running_plan(self, running_plan: str) -> RunningPlanSummaryAnswer:
        """Take the GPUs for a proposed plan, all or none."""
        told: RunningPlanSummaryAnswer = self._ask(
            "POST", f"/api/v1/running-plans/{part(running_plan)}/approve", "RunningPlanSummaryAnswer"
        )
        return told

    def apply_running_plan(
        self, running_plan: str, body: StepDocument | Mapping[str, Any] | None = None
    ) -> RunningPlanSummaryAnswer:
        """Say that the job runs by this approved plan."""
        told: RunningPlanSummaryAnswer = self._ask(
            "POST", f"/api/v1/running-plans/{part(running_plan)}/apply", "RunningPlanSummaryAnswer", body=body
        )
        return told

    def cancel_running_plan(self, running_plan: str) -> RunningPlanSummaryAnswer:
        """Call off a plan, or say that its job has ended: its GPUs are free, or go back to their holders."""
        told: RunningPlanSummaryAnswer = self._ask(
            "POST", f"/api/v1/running-plans/{part(running_plan)}/cancel", "RunningPlanSummaryAnswer"
        )
        return told

    def list_running_plan_exports(self, running_plan: str) -> list[ExportAnswer]:
        """The formats that a job's plan can be launched by."""
        told: list[ExportAnswer] = self._ask(
            "GET", f"/api/v1/running-plans/{part(running_plan)}/exports", "list[ExportAnswer]"
        )
        return told

    def get_running_plan_export(self, running_plan: str, format_: str, *, set_: list[str] | None = None) -> bytes:
        """A job's plan as its launcher reads it; a format of several files comes as a ZIP archive."""
        told: bytes = self._ask(
            "GET", f"/api/v1/running-plans/{part(running_plan)}/exports/{part(format_)}", "", query={"set": set_}
        )
        return told
