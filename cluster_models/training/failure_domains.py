"""Losses that a plan survives: failure domains are the places of a label (``leaf``, ``rack``, ``node``, ...)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FailureDomainLosses:
    """How many domains of one kind may be lost together, whichever, with every part of the state still alive.

    ``label``: ``node``, ``nvlink_domain``, ``leaf``, ``rack``, ... (``Node.place``); ``count`` of ``domains`` in
    use; ``weakest`` names places whose loss together takes a last copy.
    """

    label: str
    count: int
    domains: int
    weakest: tuple[str, ...]
