"""Operations of the API; made by ``app.api.client_source``, changed only there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.client.connection import Connection, part

if TYPE_CHECKING:
    from pydantic.types import AwareDatetime

    from app.api.v1.access import CallerAnswer
    from app.api.v1.answers import PageAnswer
    from app.api.v1.audit import AuditAnswer
    from app.api.v1.keys import KeyAnswer, NewKeyAnswer, NewKeyDocument
    from app.api.v1.webhook_bodies import WebhookDocument, WebhookPatch
    from app.api.v1.webhooks import DeliveryAnswer, NewWebhookAnswer, PingAnswer, RetryAnswer, WebhookAnswer
    from app.db.status import DeliveryStatus


class ServiceOperations(Connection):
    """Operations of the service."""

    def get_caller(self) -> CallerAnswer:
        """The caller's tenant, name and scopes."""
        told: CallerAnswer = self._ask("GET", "/api/v1/access", "CallerAnswer")
        return told

    def list_audit(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        since: AwareDatetime | None = None,
        until: AwareDatetime | None = None,
    ) -> PageAnswer[AuditAnswer]:
        """Who changed, approved or deleted what, newest first."""
        told: PageAnswer[AuditAnswer] = self._ask(
            "GET",
            "/api/v1/audit",
            "PageAnswer[AuditAnswer]",
            query={
                "limit": limit,
                "cursor": cursor,
                "actor": actor,
                "action": action,
                "subject": subject,
                "since": since,
                "until": until,
            },
        )
        return told

    def create_key(self, body: NewKeyDocument | Mapping[str, Any]) -> NewKeyAnswer:
        """Make a key."""
        told: NewKeyAnswer = self._ask("POST", "/api/v1/keys", "NewKeyAnswer", body=body)
        return told

    def list_keys(self, *, limit: int | None = None, cursor: str | None = None) -> PageAnswer[KeyAnswer]:
        """Every key, newest first, revoked ones among them."""
        told: PageAnswer[KeyAnswer] = self._ask(
            "GET", "/api/v1/keys", "PageAnswer[KeyAnswer]", query={"limit": limit, "cursor": cursor}
        )
        return told

    def get_key(self, key: str) -> KeyAnswer:
        """One key, without its secret; the ETag changes when the key is used, too."""
        told: KeyAnswer = self._ask("GET", f"/api/v1/keys/{part(key)}", "KeyAnswer")
        return told

    def revoke_key(self, key: str, *, if_match: str | None = None) -> None:
        """Revoke a key: it opens nothing from now on, and who is signed in by it is signed out."""
        self._ask("DELETE", f"/api/v1/keys/{part(key)}", "None", headers={"If-Match": if_match})

    def create_webhook(
        self, body: WebhookDocument | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> NewWebhookAnswer:
        """Store an address that gets events."""
        told: NewWebhookAnswer = self._ask(
            "POST", "/api/v1/webhooks", "NewWebhookAnswer", headers={"Idempotency-Key": idempotency_key}, body=body
        )
        return told

    def list_webhooks(self, *, limit: int | None = None, cursor: str | None = None) -> PageAnswer[WebhookAnswer]:
        """Every address, newest first, without secrets."""
        told: PageAnswer[WebhookAnswer] = self._ask(
            "GET", "/api/v1/webhooks", "PageAnswer[WebhookAnswer]", query={"limit": limit, "cursor": cursor}
        )
        return told

    def get_webhook(self, webhook: str) -> WebhookAnswer:
        """One address, without its secret."""
        told: WebhookAnswer = self._ask("GET", f"/api/v1/webhooks/{part(webhook)}", "WebhookAnswer")
        return told

    def change_webhook(
        self, webhook: str, body: WebhookPatch | Mapping[str, Any], *, if_match: str | None = None
    ) -> WebhookAnswer:
        """Change an address, its kinds of events, or whether it gets any."""
        told: WebhookAnswer = self._ask(
            "PATCH", f"/api/v1/webhooks/{part(webhook)}", "WebhookAnswer", headers={"If-Match": if_match}, body=body
        )
        return told

    def delete_webhook(self, webhook: str, *, if_match: str | None = None) -> None:
        """Forget an address and its messages."""
        self._ask("DELETE", f"/api/v1/webhooks/{part(webhook)}", "None", headers={"If-Match": if_match})

    def renew_webhook_secret(self, webhook: str) -> NewWebhookAnswer:
        """Give an address a new secret, shown in this answer only; messages are signed with it from now on."""
        told: NewWebhookAnswer = self._ask("POST", f"/api/v1/webhooks/{part(webhook)}/secret", "NewWebhookAnswer")
        return told

    def ping_webhook(self, webhook: str, *, idempotency_key: str | None = None) -> PingAnswer:
        """Send a test message; what came of it is listed under deliveries."""
        told: PingAnswer = self._ask(
            "POST",
            f"/api/v1/webhooks/{part(webhook)}/ping",
            "PingAnswer",
            headers={"Idempotency-Key": idempotency_key},
        )
        return told

    def list_deliveries(
        self,
        webhook: str,
        *,
        status: DeliveryStatus | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> PageAnswer[DeliveryAnswer]:
        """The messages to an address, newest first."""
        told: PageAnswer[DeliveryAnswer] = self._ask(
            "GET",
            f"/api/v1/webhooks/{part(webhook)}/deliveries",
            "PageAnswer[DeliveryAnswer]",
            query={"status": status, "limit": limit, "cursor": cursor},
        )
        return told

    def retry_delivery(self, webhook: str, delivery: str) -> RetryAnswer:
        """Send a message that was given up once more."""
        told: RetryAnswer = self._ask(
            "POST", f"/api/v1/webhooks/{part(webhook)}/deliveries/{part(delivery)}/retry", "RetryAnswer"
        )
        return told
