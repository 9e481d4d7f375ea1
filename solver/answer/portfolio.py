"""Several plans asked for as one, and what the proof of each says about the others.

Members with equal ``space`` choose from the same plans but for the number of GPUs they may use.  With letters
``i`` and ``j`` of such members, ``n`` most GPUs, ``v`` the best value found and ``b`` a value that no plan beats
(infinite where nothing fits):

    v'[i] = min v[j] over n[j] <= n[i],    b'[i] = max b[j] over n[j] >= n[i],

for a plan on fewer GPUs is one on more.  No plan of any member beats the least of their ``b'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """One plan: ``value`` and ``bound`` in the unit of the objective, ``None`` while there are none.

    Plans can be compared where ``work`` is equal: the same model, tokens of a step and objective.
    """

    space: str
    work: str
    most_gpus: float
    value: float | None
    bound: float | None


@dataclass(frozen=True, slots=True)
class Proof:
    """The best value known, the member that has it, and a value that no plan beats."""

    value: float | None
    source: int | None
    bound: float | None

    @property
    def gap(self) -> float | None:
        """Distance between the two over the value; ``None`` where one lacks."""
        if self.value is None or self.bound is None:
            return None
        return max(0.0, (self.value - self.bound) / self.value)


def proofs(members: Sequence[Member]) -> tuple[Proof, ...]:
    """The proof of each member with the help of the others."""
    return tuple(_proof(member, members) for member in members)


def joint_proof(members: Sequence[Member]) -> Proof | None:
    """The proof of the best of all; ``None`` where they cannot be compared."""
    if len({member.work for member in members}) != 1:
        return None
    each = proofs(members)
    value, source = min(
        ((proof.value, proof.source) for proof in each if proof.value is not None), default=(None, None)
    )
    bounds = [proof.bound for proof in each]
    return Proof(value, source, None if None in bounds else min(bound for bound in bounds if bound is not None))


def _proof(member: Member, members: Sequence[Member]) -> Proof:
    own = [(index, each) for index, each in enumerate(members) if each.space == member.space]
    found = [
        (each.value, index) for index, each in own if each.value is not None and each.most_gpus <= member.most_gpus
    ]
    bounds = [each.bound for _, each in own if each.bound is not None and each.most_gpus >= member.most_gpus]
    value, source = min(found, default=(None, None))
    return Proof(value, source, max(bounds, default=None))
