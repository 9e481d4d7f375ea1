"""One attempt to deliver a webhook message.

Messages go to public addresses, and to networks that the operator has named (``webhook_networks``).  The name is
looked up once, every address is checked, and the connection is made to one that was checked: an answer of the name
server that changes between look-up and connection changes nothing.  Redirects are not followed and proxies of the
environment not used, for both would lead past the check (docs/decisions/0014-webhooks.md).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

import httpx2
import structlog

from app.jobs.context import JobContext
from app.jobs.patience import patiently
from app.services.webhooks import webhook_deliveries
from app.services.webhooks.webhook_deliveries import Outcome, Outgoing
from cluster_models.errors import MeshwrightError

DELIVERED: Final = "delivered"
FAILED: Final = "failed"
GONE: Final = "gone"
DEADLINE_S: Final = 15.0
"""From the first connection to the status; a receiver that sends a byte now and then gets no longer."""
_CONNECT_S: Final = 5.0
USER_AGENT: Final = "Meshwright-Webhooks/1"
_LONGEST_ERROR: Final = 500

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
_NAT64: Final = IPv6Network("64:ff9b::/96")
_NOT_PUBLIC: Final = tuple(map(IPv6Network, ("64:ff9b:1::/48", "::/96", "fec0::/10")))
"""Local translation (RFC 8215), IPv4-compatible and site-local addresses, which ``is_global`` lets through."""

log = structlog.get_logger(__name__)


class AddressNotAllowed(MeshwrightError):
    """Webhooks may not be sent there."""


def attempt(context: JobContext, *, delivery_id: str, attempts: int) -> str:
    """Send a message once and record what came of it; returns the outcome as a word the engine stores."""
    message = patiently(
        context,
        lambda session: webhook_deliveries.begin(
            session, delivery_id=delivery_id, attempts=attempts, now=datetime.now(UTC)
        ),
    )
    if message is None:
        return GONE
    context.solving.add(delivery_id)
    try:
        outcome = send(message, networks=context.settings.webhook_networks)
    finally:
        context.solving.discard(delivery_id)
    sent = datetime.now(UTC)
    patiently(
        context,
        lambda session: webhook_deliveries.record(
            session, delivery_id=delivery_id, attempts=attempts, outcome=outcome, now=sent
        ),
    )
    word = DELIVERED if outcome.error is None else FAILED
    context.metrics.webhook_attempts.labels(word).inc()
    log.info("webhook_attempt", delivery_id=delivery_id, outcome=word, status=outcome.status, error=outcome.error)
    return word


def send(message: Outgoing, *, networks: tuple[Network, ...]) -> Outcome:
    """Post a message; any status from 200 to 299 means that it was taken."""
    try:
        url = httpx2.URL(message.url)
        port = url.port or (443 if url.scheme == "https" else 80)
        addresses = allowed_addresses(url.host, port, networks=networks)
        status = asyncio.run(_post(message, url, addresses))
    except TimeoutError:
        return Outcome(None, f"The endpoint did not answer within {DEADLINE_S:g} s.")
    except (AddressNotAllowed, OSError, UnicodeError, httpx2.HTTPError, httpx2.InvalidURL) as broken:
        return Outcome(None, (str(broken) or type(broken).__name__)[:_LONGEST_ERROR])
    if 200 <= status < 300:
        return Outcome(status, None)
    told = "redirects are not followed" if 300 <= status < 400 else "it did not take the message"
    return Outcome(status, f"The endpoint answered {status}: {told}.")


def allowed_addresses(host: str, port: int, *, networks: tuple[Network, ...]) -> tuple[str, ...]:
    """The addresses of a host, if messages may be sent to it; raises ``AddressNotAllowed``, ``OSError``.

    All must be allowed: one that is not shows that the name is not what it seems.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
    for address in addresses:
        if not is_allowed(address, networks=networks):
            remedy = "name its network in MESHWRIGHT_WEBHOOK_NETWORKS to allow it"
            raise AddressNotAllowed(f"{host} is {address}, which is not public; {remedy}.")
    return tuple(dict.fromkeys(map(str, addresses)))


def is_allowed(address: Address, *, networks: tuple[Network, ...]) -> bool:
    """Whether messages may be sent to an address: it is public, or in a network that was named."""
    meant = _meant(address)
    if any(each in network for each in meant for network in networks):
        return True
    local = any(each in network for each in meant for network in _NOT_PUBLIC)
    return not local and all(each.is_global and not each.is_multicast for each in meant)


async def _post(message: Outgoing, url: httpx2.URL, addresses: Sequence[str]) -> int:
    """The status that the first address with an open port answers; raises ``TimeoutError``."""
    headers = message.headers | {"host": url.netloc.decode(), "user-agent": USER_AGENT}
    name = {"sni_hostname": url.raw_host.decode()}
    limits = httpx2.Timeout(DEADLINE_S, connect=_CONNECT_S)
    async with (
        asyncio.timeout(DEADLINE_S),
        httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=limits) as client,
    ):
        for address in addresses[:-1]:
            with suppress(httpx2.ConnectError, httpx2.ConnectTimeout):
                return await _posted(client, url.copy_with(host=address), message.body, headers, name)
        return await _posted(client, url.copy_with(host=addresses[-1]), message.body, headers, name)


async def _posted(
    client: httpx2.AsyncClient, url: httpx2.URL, body: bytes, headers: dict[str, str], name: dict[str, str]
) -> int:
    """The status of the answer, whose body nobody reads."""
    async with client.stream("POST", url, content=body, headers=headers, extensions=name) as response:
        return response.status_code


def _meant(address: Address) -> tuple[Address, ...]:
    """The address, and an IPv4 address that it stands for: mapped, 6to4 (RFC 3056), NAT64 (RFC 6052)."""
    if isinstance(address, IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address in _NAT64:
        return (IPv4Address(int(address) & 0xFFFFFFFF),)
    return (address,) if address.sixtofour is None else (address, address.sixtofour)
