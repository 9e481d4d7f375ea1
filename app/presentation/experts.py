"""Worth of a plan's map of experts, in words and rows."""

from __future__ import annotations

from dataclasses import dataclass

from app.presentation.figures import percent, seconds, spans
from cluster_models.training.plan import Plan


@dataclass(frozen=True, slots=True)
class BalanceRow:
    """One workload or layer; workloads have a ``weight``, layers a ``least``."""

    name: str
    imbalance: str
    contiguous: str
    weight: str = ""
    least: str = ""


@dataclass(frozen=True, slots=True)
class ExpertPage:
    """``ranks``: the experts of each rank in the layers ``alike``, where all layers share one map."""

    summary: str
    workloads: tuple[BalanceRow, ...]
    layers: tuple[BalanceRow, ...]
    alike: str
    ranks: tuple[str, ...]


def expert_summary(plan: Plan) -> str:
    """The balance in a few sentences; empty where no routing was given."""
    balance = plan.expert_balance
    if balance is None:
        return ""
    sentence = (
        f"Slowest expert rank {balance.imbalance:.2f} times the mean; in contiguous blocks "
        f"{balance.contiguous:.2f} times, and no order of the experts gets below {balance.least:.2f}."
    )
    if balance.leaving_copies:
        sentence += f" {balance.leaving_copies:.2f} copies of each token leave its NVLink domain."
    if _moved(plan):
        step = seconds(balance.contiguous_step_s)
        sentence += (
            f" Without the permutation a step would take {step}: the exports say how to permute a checkpoint."
        )
    else:
        sentence += " Experts keep their natural order."
    return sentence


def expert_page(plan: Plan) -> ExpertPage | None:
    """Experts as the page of a plan shows them; ``None`` for dense models."""
    slots, balance = plan.expert_slots, plan.expert_balance
    if slots is None:
        return None
    one = len(set(slots.slots)) == 1
    return ExpertPage(
        summary=expert_summary(plan),
        workloads=tuple(
            BalanceRow(each.name, f"{each.imbalance:.2f}", f"{each.contiguous:.2f}", percent(each.weight))
            for each in (balance.workloads if balance else ())
        ),
        layers=tuple(
            BalanceRow(
                str(each.layer), f"{each.imbalance:.2f}", f"{each.contiguous:.2f}", least=f"{each.least:.2f}"
            )
            for each in (balance.layers if balance else ())
        ),
        alike=spans(slots.layers),
        ranks=tuple(spans(held) for held in slots.by_rank(slots.slots[0])) if one else (),
    )


def _moved(plan: Plan) -> bool:
    slots = plan.expert_slots
    return slots is not None and any(row != tuple(range(slots.count)) for row in slots.slots)
