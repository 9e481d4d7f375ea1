"""Changes that are to be made only to what the caller has read."""

from __future__ import annotations

from app.services.errors import VersionMismatch

ExpectedVersions = frozenset[int] | None
"""Versions of which a thing must have one to be changed; ``None`` means any."""
ExpectedTags = frozenset[str] | None
"""The same of things that have no version but a tag of their content."""


def check_version(kind: str, name: str, *, expected: ExpectedVersions, current: int) -> None:
    """Raise ``VersionMismatch`` where a thing is at none of the expected versions."""
    if expected is not None and current not in expected:
        named = " or ".join(map(str, sorted(expected))) or "one of those named"
        raise VersionMismatch(f"The {kind} {name!r} is at version {current}, not {named}")


def check_tag(kind: str, name: str, *, expected: ExpectedTags, current: str) -> None:
    """Raise ``VersionMismatch`` where the content of a thing is not one of those expected."""
    if expected is not None and current not in expected:
        raise VersionMismatch(f"Somebody changed the {kind} {name!r} meanwhile")
