"""Refusals of use cases, apart from bad input (``cluster_models.errors.InvalidInput``).

MeshwrightError
└── Refused
    ├── NotFound
    ├── Conflict
    │   ├── NameTaken
    │   ├── IdempotencyKeyReused
    │   ├── ImportChanged
    │   ├── NotReady            the thing asked for comes later, or never
    │   ├── WrongStatus         too late (or too early) for this
    │   └── GpusTaken           another job holds them
    ├── VersionMismatch
    ├── NotAuthentic
    └── Forbidden
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster_models.errors import MeshwrightError


class Refused(MeshwrightError):
    """A request that is well formed and cannot be served."""


class NotFound(Refused):
    """There is no such thing."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"There is no {kind} {name[:200]!r}.")


class Conflict(Refused):
    """The request does not fit the state it meets."""


class NameTaken(Conflict):
    """A thing of that name exists already."""

    def __init__(self, kind: str, name: str, remedy: str) -> None:
        super().__init__(f"A {kind} named {name!r} exists already; {remedy}.")


class IdempotencyKeyReused(Conflict):
    """A key came back with another body."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The Idempotency-Key {key!r} was used with another request body; use a new key for a new request."
        )


class ImportChanged(Conflict):
    """An import that would not store what the sender saw in the report."""

    def __init__(self) -> None:
        super().__init__(
            "The files or the cluster changed since the report; look at the new report and store that."
        )


class NotReady(Conflict):
    """A plan has not (or never will have) what is asked for."""


class WrongStatus(Conflict):
    """A plan, a job or a replan is not where this could be done with it."""

    def __init__(self, kind: str, name: str, status: str, allowed: str) -> None:
        super().__init__(f"The {kind} {name!r} is {status}: {allowed}.")


class GpusTaken(Conflict):
    """GPUs that a plan needs are held by another job."""

    def __init__(self, held: Sequence[tuple[str, int]], remedy: str) -> None:
        shown = ", ".join(f"{node}:{gpu}" for node, gpu in held[:5]) + (", ..." if len(held) > 5 else "")
        super().__init__(f"{len(held)} GPUs are held by other jobs: {shown}; {remedy}.")


class VersionMismatch(Refused):
    """The caller changed a thing that somebody else changed meanwhile."""

    def __init__(self, difference: str) -> None:
        super().__init__(f"{difference}; read it again and repeat the change.")


class Forbidden(Refused):
    """The caller is known and may not do this."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"This needs the scope '{scope}', which your key or role does not have.")
        self.scope = scope


class NotAuthentic(Refused):
    """A report is neither signed with its source's secret nor carries it; ``reason`` says what is wrong with it."""

    def __init__(self, source: str, reason: str = "") -> None:
        remedy = (
            "Sign it (webhook-id, webhook-timestamp and webhook-signature), or send the source's secret as "
            "Authorization: Bearer."
        )
        super().__init__(f"The report is not proven to come from {source!r}. {reason or remedy}")
