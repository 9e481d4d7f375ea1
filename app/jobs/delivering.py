"""One attempt to deliver a webhook message.

Messages go to public addresses, and to networks that the operator has named (``webhook_networks``).  The name is
looked up once, every address is checked, and the connection is made to one that was checked: an answer of the name
server that changes between look-up and connection changes nothing.  Redirects are not followed and proxies of the
environment not used, for both would lead past the check (docs/decisions/0014-webhooks.md).
"""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

import httpx2
import structlog

from app.db.engine import transaction
from app.jobs.context import JobContext
from app.services import webhook_deliveries
from app.services.webhook_deliveries import Outcome, Outgoing
from cluster_models.errors import MeshwrightError

DELIVERED: Final = "delivered"
FAILED: Final = "failed"
GONE: Final = "gone"
TIMEOUT: Final = httpx2.Timeout(10.0, connect=5.0)
USER_AGENT: Final = "Meshwright-Webhooks/1"
_LONGEST_ERROR: Final = 500

Network = IPv4Network | IPv6Network
log = structlog.get_logger(__name__)


class AddressNotAllowed(MeshwrightError):
    """Webhooks may not be sent there."""


def attempt(context: JobContext, *, delivery_id: str, attempts: int) -> str:
    """Send a message once and record what came of it; returns the outcome as a word the engine stores."""
    with transaction(context.sessions) as session:
        message = webhook_deliveries.begin(
            session, delivery_id=delivery_id, attempts=attempts, now=datetime.now(UTC)
        )
    if message is None:
        return GONE
    outcome = send(message, networks=context.settings.webhook_networks)
    with transaction(context.sessions) as session:
        webhook_deliveries.record(
            session, delivery_id=delivery_id, attempts=attempts, outcome=outcome, now=datetime.now(UTC)
        )
    word = DELIVERED if outcome.error is None else FAILED
    context.metrics.webhook_attempts.labels(word).inc()
    log.info("webhook_attempt", delivery_id=delivery_id, outcome=word, status=outcome.status, error=outcome.error)
    return word


def send(message: Outgoing, *, networks: tuple[Network, ...]) -> Outcome:
    """Post a message; any status from 200 to 299 means that it was taken."""
    url = httpx2.URL(message.url)
    try:
        address = allowed_address(url.host, url.port or (443 if url.scheme == "https" else 80), networks=networks)
        with (
            httpx2.Client(trust_env=False, follow_redirects=False, timeout=TIMEOUT) as client,
            client.stream(
                "POST",
                url.copy_with(host=address),
                content=message.body,
                headers=message.headers | {"host": url.netloc.decode(), "user-agent": USER_AGENT},
                extensions={"sni_hostname": url.raw_host.decode()},
            ) as response,
        ):
            status = response.status_code
    except (AddressNotAllowed, OSError, UnicodeError, httpx2.HTTPError, httpx2.InvalidURL) as broken:
        return Outcome(None, (str(broken) or type(broken).__name__)[:_LONGEST_ERROR])
    if 200 <= status < 300:
        return Outcome(status, None)
    told = "redirects are not followed" if 300 <= status < 400 else "it did not take the message"
    return Outcome(status, f"The endpoint answered {status}: {told}.")


def allowed_address(host: str, port: int, *, networks: tuple[Network, ...]) -> str:
    """An address of the host that messages may be sent to; raises ``AddressNotAllowed``, ``OSError``.

    All addresses of the host must be allowed: one that is not shows that the name is not what it seems.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
    for address in addresses:
        if not is_allowed(address, networks=networks):
            remedy = "name its network in MESHWRIGHT_WEBHOOK_NETWORKS to allow it"
            raise AddressNotAllowed(f"{host} is {address}, which is not public; {remedy}.")
    return str(addresses[0])


def is_allowed(address: IPv4Address | IPv6Address, *, networks: tuple[Network, ...]) -> bool:
    """Whether messages may be sent to an address: it is public, or in a network that was named."""
    plain = address.ipv4_mapped if isinstance(address, IPv6Address) and address.ipv4_mapped else address
    if any(plain in network for network in networks):
        return True
    return plain.is_global and not plain.is_multicast
