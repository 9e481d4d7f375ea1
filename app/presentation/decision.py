"""What a plan is decided by beside its step: room in memory, tokens and dollars a day."""

from __future__ import annotations

from typing import Final

from app.presentation.figures import count, gib, percent
from cluster_models.catalogue import gpu_kinds
from cluster_models.plan import Plan
from cluster_models.units import GIB, HOUR

DAY: Final = 24 * HOUR


def decision_figures(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Each with its name; dollars where the shipped catalogue prices every GPU kind of the plan."""
    fullest = max(plan.memory, key=lambda memory: memory.total_bytes / memory.limit_bytes)
    used = fullest.total_bytes / fullest.limit_bytes
    room = f"fullest GPU {fullest.total_bytes / GIB:.1f} of {gib(fullest.limit_bytes)} ({percent(used, places=0)})"
    billions = plan.tokens_per_s * DAY / 1e9
    dollars = dollars_per_day(plan)
    return (
        ("memory", room),
        ("tokens a day", f"{billions:,.3g} billion tokens a day"),
        *(() if dollars is None else (("list price", f"about {count(dollars)} USD a day at list prices"),)),
    )


def dollars_per_day(plan: Plan) -> float | None:
    """The price of all its GPUs by the shipped catalogue; ``None`` where that does not know one."""
    known = gpu_kinds()
    prices = [
        known[stage.gpu_kind].price_usd_per_hour if stage.gpu_kind in known else None for stage in plan.stages
    ]
    priced = [price for price in prices if price is not None]
    if not priced or len(priced) < len(prices):
        return None
    return sum(priced) / len(priced) * plan.configuration.degrees.gpus * DAY / HOUR
