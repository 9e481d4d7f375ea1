"""Operations of the API; made by ``app.api.client_source``, changed only there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from httpx2 import ServerSentEvent

from app.client.connection import Connection, part

if TYPE_CHECKING:
    from app.answers.events import (
        AdapterAnswer,
        ConditionsAnswer,
        EventAnswer,
        EventSourceAnswer,
        NewEventSourceAnswer,
        ReceivedAnswer,
        ReliabilityAnswer,
    )
    from app.answers.replans import ReplanAccepted, ReplanAnswer, ReplanSummary, WhatIfAnswer
    from app.answers.sweeps import FailureImpactAnswer, SweepAnswer, SweepSummary
    from app.api.v1.answers import PageAnswer
    from app.api.v1.plan_exports import ExportAnswer
    from app.api.v1.replan_bodies import (
        ApprovalDocument,
        CancellationDocument,
        FailureDocument,
        ReplanRequestDocument,
        ReplanSettingsDocument,
        StepDocument,
        SweepDocument,
        WhatIfDocument,
    )
    from app.api.v1.webhook_bodies import EventSourceDocument
    from app.db.status import ReplanStatus
    from app.documents.health_events import EventDocument
    from app.documents.plan import PlanDocument
    from app.services.decisions.replans import Answer


class FailuresOperations(Connection):
    """Operations of the service."""

    def create_event_source(
        self, cluster: str, body: EventSourceDocument | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> NewEventSourceAnswer:
        """Store a source of reports."""
        told: NewEventSourceAnswer = self._ask(
            "POST",
            f"/api/v1/clusters/{part(cluster)}/event-sources",
            "NewEventSourceAnswer",
            headers={"Idempotency-Key": idempotency_key},
            body=body,
        )
        return told

    def list_event_sources(self, cluster: str) -> list[EventSourceAnswer]:
        """The sources of a cluster by name, without their secrets."""
        told: list[EventSourceAnswer] = self._ask(
            "GET", f"/api/v1/clusters/{part(cluster)}/event-sources", "list[EventSourceAnswer]"
        )
        return told

    def get_event_source(self, cluster: str, source: str) -> EventSourceAnswer:
        """One source, without its secret."""
        told: EventSourceAnswer = self._ask(
            "GET", f"/api/v1/clusters/{part(cluster)}/event-sources/{part(source)}", "EventSourceAnswer"
        )
        return told

    def delete_event_source(self, cluster: str, source: str, *, if_match: str | None = None) -> None:
        """Forget a source; what it reported stays."""
        self._ask(
            "DELETE",
            f"/api/v1/clusters/{part(cluster)}/event-sources/{part(source)}",
            "None",
            headers={"If-Match": if_match},
        )

    def report_events(
        self, cluster: str, body: EventDocument | list[EventDocument] | Mapping[str, Any]
    ) -> ReceivedAnswer:
        """Report what became of parts of a cluster, one or many; all are taken or none."""
        told: ReceivedAnswer = self._ask(
            "POST", f"/api/v1/clusters/{part(cluster)}/events", "ReceivedAnswer", body=body
        )
        return told

    def receive_events(
        self, cluster: str, adapter: str, body: bytes, *, source: str | None = None
    ) -> ReceivedAnswer:
        """Take a monitoring system's own message."""
        told: ReceivedAnswer = self._ask(
            "POST",
            f"/api/v1/clusters/{part(cluster)}/events/{part(adapter)}",
            "ReceivedAnswer",
            query={"source": source},
            body=body,
        )
        return told

    def list_events(
        self,
        cluster: str,
        *,
        known: bool | None = None,
        replan: str | None = None,
        device: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> PageAnswer[EventAnswer]:
        """The reports on a cluster, newest received first; those about unknown names are among them."""
        told: PageAnswer[EventAnswer] = self._ask(
            "GET",
            f"/api/v1/clusters/{part(cluster)}/events",
            "PageAnswer[EventAnswer]",
            query={"known": known, "replan": replan, "device": device, "limit": limit, "cursor": cursor},
        )
        return told

    def list_conditions(self, cluster: str) -> ConditionsAnswer:
        """Conclusions from all reports: the parts that are not well now, and the nodes that should stay out."""
        told: ConditionsAnswer = self._ask(
            "GET", f"/api/v1/clusters/{part(cluster)}/conditions", "ConditionsAnswer"
        )
        return told

    def get_reliability(self, cluster: str) -> ReliabilityAnswer:
        """How often parts fail and how long they are out, measured from the cluster's own reports."""
        told: ReliabilityAnswer = self._ask(
            "GET", f"/api/v1/clusters/{part(cluster)}/reliability", "ReliabilityAnswer"
        )
        return told

    def list_event_adapters(self) -> list[AdapterAnswer]:
        """The monitoring systems whose messages are understood."""
        told: list[AdapterAnswer] = self._ask("GET", "/api/v1/event-adapters", "list[AdapterAnswer]")
        return told

    def get_replan_settings(self, cluster: str) -> ReplanSettingsDocument:
        """The settings of a cluster; those never stored are at their defaults."""
        told: ReplanSettingsDocument = self._ask(
            "GET", f"/api/v1/clusters/{part(cluster)}/replan-settings", "ReplanSettingsDocument"
        )
        return told

    def replace_replan_settings(
        self, cluster: str, body: ReplanSettingsDocument | Mapping[str, Any], *, if_match: str | None = None
    ) -> ReplanSettingsDocument:
        """Store these settings in place of all, absent fields at their defaults; open windows keep their end."""
        told: ReplanSettingsDocument = self._ask(
            "PUT",
            f"/api/v1/clusters/{part(cluster)}/replan-settings",
            "ReplanSettingsDocument",
            headers={"If-Match": if_match},
            body=body,
        )
        return told

    def create_replan(
        self, cluster: str, body: ReplanRequestDocument | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> ReplanAccepted:
        """Decide now on a cluster as it is, without a window; one that was proposed or approved is overtaken."""
        told: ReplanAccepted = self._ask(
            "POST",
            f"/api/v1/clusters/{part(cluster)}/replans",
            "ReplanAccepted",
            headers={"Idempotency-Key": idempotency_key},
            body=body,
        )
        return told

    def answer_what_if(self, cluster: str, body: WhatIfDocument | Mapping[str, Any]) -> WhatIfAnswer:
        """Decide at once as if these parts failed: the safe answer, in about a second; nothing is stored."""
        told: WhatIfAnswer = self._ask(
            "POST", f"/api/v1/clusters/{part(cluster)}/what-if", "WhatIfAnswer", body=body
        )
        return told

    def list_cluster_replans(
        self,
        cluster: str,
        *,
        status: ReplanStatus | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> PageAnswer[ReplanSummary]:
        """The replans of a cluster, newest first, without their answers."""
        told: PageAnswer[ReplanSummary] = self._ask(
            "GET",
            f"/api/v1/clusters/{part(cluster)}/replans",
            "PageAnswer[ReplanSummary]",
            query={"status": status, "limit": limit, "cursor": cursor},
        )
        return told

    def list_replans(
        self, *, status: ReplanStatus | None = None, limit: int | None = None, cursor: str | None = None
    ) -> PageAnswer[ReplanSummary]:
        """The replans of all clusters, newest first, without their answers."""
        told: PageAnswer[ReplanSummary] = self._ask(
            "GET",
            "/api/v1/replans",
            "PageAnswer[ReplanSummary]",
            query={"status": status, "limit": limit, "cursor": cursor},
        )
        return told

    def get_replan(self, replan: str) -> ReplanAnswer:
        """A replan with its answers, as far as they are there."""
        told: ReplanAnswer = self._ask("GET", f"/api/v1/replans/{part(replan)}", "ReplanAnswer")
        return told

    def approve_replan(
        self, replan: str, body: ApprovalDocument | Mapping[str, Any] | None = None
    ) -> ReplanSummary:
        """Take the GPUs that an answer needs, all or none; approving the same answer again changes nothing."""
        told: ReplanSummary = self._ask(
            "POST", f"/api/v1/replans/{part(replan)}/approve", "ReplanSummary", body=body
        )
        return told

    def start_replan(self, replan: str, body: StepDocument | Mapping[str, Any] | None = None) -> ReplanSummary:
        """Say that an approved replan is being carried out."""
        told: ReplanSummary = self._ask("POST", f"/api/v1/replans/{part(replan)}/start", "ReplanSummary", body=body)
        return told

    def complete_replan_job(
        self, replan: str, job: str, body: StepDocument | Mapping[str, Any] | None = None
    ) -> ReplanSummary:
        """Say that one job runs."""
        told: ReplanSummary = self._ask(
            "POST", f"/api/v1/replans/{part(replan)}/jobs/{part(job)}/complete", "ReplanSummary", body=body
        )
        return told

    def complete_replan(self, replan: str, body: StepDocument | Mapping[str, Any] | None = None) -> ReplanSummary:
        """Say that all jobs run as decided: their new plans are applied, and the GPUs that they left are free."""
        told: ReplanSummary = self._ask(
            "POST", f"/api/v1/replans/{part(replan)}/complete", "ReplanSummary", body=body
        )
        return told

    def fail_replan(self, replan: str, body: FailureDocument | Mapping[str, Any]) -> ReplanSummary:
        """Say that it could not be carried out: the GPUs of all jobs not completed go back to their holders."""
        told: ReplanSummary = self._ask("POST", f"/api/v1/replans/{part(replan)}/fail", "ReplanSummary", body=body)
        return told

    def cancel_replan(
        self, replan: str, body: CancellationDocument | Mapping[str, Any] | None = None
    ) -> ReplanSummary:
        """Call off a replan that is not applied yet; what it had taken for jobs not completed is given back."""
        told: ReplanSummary = self._ask(
            "POST", f"/api/v1/replans/{part(replan)}/cancel", "ReplanSummary", body=body
        )
        return told

    def get_decided_plan(self, replan: str, job: str, *, answer: Answer | None = None) -> PlanDocument:
        """The whole plan that a job is to run by."""
        told: PlanDocument = self._ask(
            "GET", f"/api/v1/replans/{part(replan)}/jobs/{part(job)}/plan", "PlanDocument", query={"answer": answer}
        )
        return told

    def list_decided_exports(self, replan: str, job: str, *, answer: Answer | None = None) -> list[ExportAnswer]:
        """The formats that a job's new plan can be launched by."""
        told: list[ExportAnswer] = self._ask(
            "GET",
            f"/api/v1/replans/{part(replan)}/jobs/{part(job)}/exports",
            "list[ExportAnswer]",
            query={"answer": answer},
        )
        return told

    def get_decided_export(
        self, replan: str, job: str, format_: str, *, set_: list[str] | None = None, answer: Answer | None = None
    ) -> bytes:
        """A job's new plan as its launcher reads it; a format of several files comes as a ZIP archive."""
        told: bytes = self._ask(
            "GET",
            f"/api/v1/replans/{part(replan)}/jobs/{part(job)}/exports/{part(format_)}",
            "",
            query={"set": set_, "answer": answer},
        )
        return told

    def stream_replan(self, replan: str) -> Iterator[ServerSentEvent]:
        """Server-sent events: ``progress`` whenever something changed, and ``end`` once the replan has ended."""
        return self._events(f"/api/v1/replans/{part(replan)}/events")

    def create_sweep(
        self, cluster: str, body: SweepDocument | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> SweepSummary:
        """Ask which failure hurts most."""
        told: SweepSummary = self._ask(
            "POST",
            f"/api/v1/clusters/{part(cluster)}/what-if-sweeps",
            "SweepSummary",
            headers={"Idempotency-Key": idempotency_key},
            body=body,
        )
        return told

    def list_sweeps(
        self, *, cluster: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> PageAnswer[SweepSummary]:
        """Sweeps, newest first, without their answers; the newest 20 are kept."""
        told: PageAnswer[SweepSummary] = self._ask(
            "GET",
            "/api/v1/what-if-sweeps",
            "PageAnswer[SweepSummary]",
            query={"cluster": cluster, "limit": limit, "cursor": cursor},
        )
        return told

    def get_sweep(self, sweep: str, *, worst: int | None = None) -> SweepAnswer:
        """A sweep with its answers so far."""
        told: SweepAnswer = self._ask(
            "GET", f"/api/v1/what-if-sweeps/{part(sweep)}", "SweepAnswer", query={"worst": worst}
        )
        return told

    def list_sweep_answers(
        self, sweep: str, *, limit: int | None = None, cursor: str | None = None
    ) -> PageAnswer[FailureImpactAnswer]:
        """All answers so far, the failure that costs most first, those without an answer last."""
        told: PageAnswer[FailureImpactAnswer] = self._ask(
            "GET",
            f"/api/v1/what-if-sweeps/{part(sweep)}/answers",
            "PageAnswer[FailureImpactAnswer]",
            query={"limit": limit, "cursor": cursor},
        )
        return told

    def cancel_sweep(self, sweep: str) -> SweepSummary:
        """Call off what is not answered yet; answers that are there stay."""
        told: SweepSummary = self._ask("POST", f"/api/v1/what-if-sweeps/{part(sweep)}/cancel", "SweepSummary")
        return told

    def delete_sweep(self, sweep: str, *, if_match: str | None = None) -> None:
        """Forget a sweep; one that runs is called off."""
        self._ask("DELETE", f"/api/v1/what-if-sweeps/{part(sweep)}", "None", headers={"If-Match": if_match})
