"""Figures that decide on a plan beside its step: room in memory, tokens and dollars a day, days of the run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from app.presentation.figures import count, gib, percent
from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.training.plan import Plan
from cluster_models.training.rank_costs import StageMemory
from cluster_models.training.workload import Objective
from cluster_models.units import GIB, HOUR

DAY: Final = 24 * HOUR
_WORDS: Final = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a run is and what a GPU costs, where its owner says so.

    ``usd_per_gpu_hour`` stands in for the list prices of the catalogue.
    """

    tokens: float | None = None
    usd_per_gpu_hour: float | None = None


NO_BUDGET: Final = Budget()


def decision_figures(plan: Plan, budget: Budget = NO_BUDGET) -> tuple[tuple[str, str], ...]:
    """Each with its name; dollars where a price is given or the shipped catalogue has one for every GPU kind."""
    fullest = fullest_stage(plan)
    used = fullest.total_bytes / fullest.limit_bytes
    room = (
        f"fullest GPU {fullest.total_bytes / GIB:.1f} of {gib(fullest.limit_bytes)} ({percent(used, places=0)}), "
        f"{spare_words(plan)}"
    )
    dollars, days = dollars_per_day(plan, budget), run_days(plan, budget)
    return (
        ("memory", room),
        ("tokens a day", f"{billions(plan)} billion"),
        *(() if dollars is None else (("price", _price_words(plan, dollars, budget)),)),
        *(() if (power := power_words(plan)) is None else (("power", power),)),
        *(() if days is None else (("whole run", run_words(plan, budget)),)),
    )


def _price_words(plan: Plan, dollars: float, budget: Budget) -> str:
    worth = count(tokens_per_dollar(plan, dollars))
    return f"about {count(dollars)} USD a day{price_basis(budget)}, {worth} tokens a dollar"


def power_words(plan: Plan) -> str | None:
    """Power of the GPUs and what it makes, where the workload asks for it and the catalogue has all their kinds."""
    work, known = plan.workload, gpu_kinds()
    if work is None or not (work.gpu_power_cap_watts or work.max_power_watts or work.objective is Objective.ENERGY):
        return None
    if any(stage.gpu_kind not in known for stage in plan.stages):
        return None
    cap = work.gpu_power_cap_watts or math.inf
    rated = [known[stage.gpu_kind].power_watts for stage in plan.stages]
    watts = sum(min(cap, each) for each in rated) / len(rated) * plan.configuration.degrees.gpus
    limit = f"capped at {cap:g} W a GPU" if cap < max(rated) else "by data sheets"
    return f"{watts / 1000:,.4g} kW {limit}, {plan.tokens_per_s / watts:,.3g} tokens a joule"


def tokens_per_dollar(plan: Plan, dollars: float) -> float:
    """Tokens for a dollar of so many ``dollars`` a day."""
    return plan.tokens_per_s * DAY / dollars


def fullest_stage(plan: Plan) -> StageMemory:
    """The memory of the pipeline rank whose GPUs are fullest."""
    return max(plan.memory, key=lambda memory: memory.total_bytes / memory.limit_bytes)


def spare_bytes(plan: Plan) -> float:
    """Bytes that the fullest GPU has left below its limit; negative where it has not enough."""
    return min(memory.limit_bytes - memory.total_bytes for memory in plan.memory)


def spare_words(plan: Plan) -> str:
    """The margin: "7.0 GiB to spare" or "misses 4.2 GiB"."""
    spare = spare_bytes(plan) / GIB
    return f"{spare:.1f} GiB to spare" if spare >= 0 else f"misses {-spare:.1f} GiB"


def billions(plan: Plan) -> str:
    """Billions of tokens a day, with the digits that matter."""
    return f"{plan.tokens_per_s * DAY / 1e9:,.3g}"


def run_days(plan: Plan, budget: Budget) -> float | None:
    """Days of the whole run without failures; ``None`` where nobody says how many tokens it has."""
    return None if budget.tokens is None else budget.tokens / plan.tokens_per_s / DAY


def run_words(plan: Plan, budget: Budget) -> str:
    """The whole run: "34.2 days for 15 trillion tokens, about 1,200,000 USD"."""
    days, dollars = run_days(plan, budget), dollars_per_day(plan, budget)
    assert days is not None
    assert budget.tokens is not None
    cost = "" if dollars is None else f", about {count(dollars * days)} USD"
    return f"{days_words(days)} for {token_words(budget.tokens)}{cost}"


def token_words(tokens: float) -> str:
    """Tokens in trillions, billions or millions: "15 trillion tokens"."""
    size, word = next((each for each in _WORDS if tokens >= each[0]), _WORDS[-1])
    return f"{tokens / size:,.4g} {word} tokens"


def days_words(days: float) -> str:
    """Days with the digits that matter: "34.2 days"."""
    return f"{days:,.1f} days" if days >= 1 else f"{days * 24:,.1f} hours"


def price_basis(budget: Budget) -> str:
    """Where the price is from, as the end of a sentence."""
    given = budget.usd_per_gpu_hour
    return " at list prices" if given is None else f" at {given:g} USD per GPU-hour"


def dollars_per_day(plan: Plan, budget: Budget = NO_BUDGET) -> float | None:
    """The price of all its GPUs, given or by the shipped catalogue; ``None`` where that does not know one."""
    gpus = plan.configuration.degrees.gpus
    if budget.usd_per_gpu_hour is not None:
        return budget.usd_per_gpu_hour * gpus * DAY / HOUR
    known = gpu_kinds()
    prices = [
        known[stage.gpu_kind].price_usd_per_hour if stage.gpu_kind in known else None for stage in plan.stages
    ]
    priced = [price for price in prices if price is not None]
    if not priced or len(priced) < len(prices):
        return None
    return sum(priced) / len(priced) * gpus * DAY / HOUR
