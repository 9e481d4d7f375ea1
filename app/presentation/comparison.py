"""A plan beside other configurations, part by part: made once for terminal, pages and programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.comparing.standings import Standing
from app.presentation.configuration import chosen_words, offload_words, schedule_words
from app.presentation.decision import (
    NO_BUDGET,
    Budget,
    billions,
    days_words,
    dollars_per_day,
    price_basis,
    run_days,
    spare_bytes,
    spare_words,
    tokens_per_dollar,
)
from app.presentation.differences import step_difference
from app.presentation.figures import NOT_KNOWN, count, gib, interval, interval_name, percent, plural, seconds
from cluster_models.training.framework_choices import ContextExchange
from cluster_models.training.plan import Configuration, Plan
from cluster_models.training.rank_costs import TIME_PARTS, TimeBreakdown

PLAN: Final = "plan"
"""Name of the plan at the head of its column."""
_EQUAL: Final = 5e-5
"""Differences below this share of a step are not worth a word."""


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One figure of the plan and of each contender."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """Figures that belong together; the first column is the plan's."""

    title: str
    rows: tuple[ComparisonRow, ...]


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """Report that a reader decides by: a verdict for each contender, then the figures."""

    verdicts: tuple[tuple[str, tuple[str, ...]], ...]
    """Name of a contender and sentences about it."""
    columns: tuple[str, ...]
    tables: tuple[ComparisonTable, ...]


def comparison_report(plan: Plan, others: Sequence[Standing], budget: Budget = NO_BUDGET) -> ComparisonReport:
    """The report on ``others``, each against ``plan``."""
    plans = [plan, *(each.contender.plan for each in others)]
    return ComparisonReport(
        verdicts=tuple((each.contender.name, verdict(plan, each, budget)) for each in others),
        columns=(PLAN, *(each.contender.name for each in others)),
        tables=(
            ComparisonTable("Step, memory and cost", _figures(plans, others, budget)),
            ComparisonTable("Where a step's time goes", _parts(plans)),
            ComparisonTable("Configuration", _settings(plans)),
        ),
    )


def verdict(plan: Plan, other: Standing, budget: Budget = NO_BUDGET) -> tuple[str, ...]:
    """Sentences on a contender: whether it fits, the step by gains and losses, how sure that is, days and cost."""
    its, found = other.contender.plan, other.comparison
    sentences = []
    if spare_bytes(its) < 0:
        sentences.append(f"Does not fit: its fullest GPU {spare_words(its)}.")
    sentences.append(_step_sentence(plan, its))
    own_gpus, its_gpus = plan.configuration.degrees.gpus, its.configuration.degrees.gpus
    if its_gpus != own_gpus:
        more = its.time.step_s * its_gpus / (plan.time.step_s * own_gpus) - 1
        words = f"{percent(abs(more))} {'more' if more > 0 else 'less'} GPU time a step"
        sentences.append(f"It runs on {plural(its_gpus, 'GPU')}, the plan on {count(own_gpus)}: {words}.")
    unit = "step" if plan.workload is None or plan.workload.objective == "step_time" else "objective"
    told = "predictions can tell them apart" if found.can_be_told else "predictions cannot tell them apart"
    sentences.append(
        f"In truth its {unit} is expected {_apart(found.ratio_low)} to {_apart(found.ratio_high)} than the plan's "
        f"({percent(found.level, places=0)} interval), and the chance that it is the better one "
        f"is {percent(found.chance_better, places=0)}: {told}."
    )
    if saved := _saved(plan, its, budget):
        sentences.append(saved)
    if other.cautions:
        sentences.append(f"Not made alike, so compare with care: {', '.join(other.cautions)}.")
    return tuple(sentences)


def _step_sentence(plan: Plan, its: Plan) -> str:
    more = its.time.step_s / plan.time.step_s - 1
    if abs(more) < _EQUAL:
        return "Its step takes as long as the plan's."
    word = "slower" if more > 0 else "faster"
    return f"{percent(abs(more), places=2)} {word} a step than the plan {step_difference(its.time, plan.time)}."


def _apart(ratio: float) -> str:
    return f"{percent(abs(ratio - 1), places=0)} {'higher' if ratio > 1 else 'lower'}"


def _saved(plan: Plan, its: Plan, budget: Budget) -> str:
    """Saving of the plan, or its extra cost, over the whole run."""
    own_days, its_days = run_days(plan, budget), run_days(its, budget)
    if own_days is None or its_days is None or abs(its_days / own_days - 1) < _EQUAL:
        return ""
    words = [f"{days_words(abs(its_days - own_days))} {'longer' if its_days > own_days else 'shorter'}"]
    own, other = dollars_per_day(plan, budget), dollars_per_day(its, budget)
    if own is not None and other is not None:
        more = other * its_days - own * own_days
        words.append(f"{count(abs(more))} USD {'dearer' if more > 0 else 'cheaper'}{price_basis(budget)}")
    return f"Over the whole run it is {' and '.join(words)}."


def _figures(plans: Sequence[Plan], others: Sequence[Standing], budget: Budget) -> tuple[ComparisonRow, ...]:
    base, sure = plans[0].time.step_s, plans[0].confidence
    more = [f"{100 * (each.time.step_s / base - 1):+.2f} %" for each in plans[1:]]
    chances = [percent(each.comparison.chance_better, places=0) for each in others]
    rows = [("step", [seconds(each.time.step_s) for each in plans]), ("against the plan", [NOT_KNOWN, *more])]
    if sure is not None:
        intervals = [NOT_KNOWN if each.confidence is None else interval(each.confidence) for each in plans]
        rows.append((f"step, {interval_name(sure)}", intervals))
    rows += [
        ("chance to be the better one", [NOT_KNOWN, *chances]),
        ("fullest GPU", [gib(max(memory.total_bytes for memory in each.memory)) for each in plans]),
        ("memory margin", [spare_words(each) for each in plans]),
        ("GPUs", [count(each.configuration.degrees.gpus) for each in plans]),
        ("tokens/s/GPU", [count(each.tokens_per_s_per_gpu) for each in plans]),
        ("billion tokens a day", [billions(each) for each in plans]),
        ("MFU", [percent(each.mfu) for each in plans]),
    ]
    dollars = [dollars_per_day(each, budget) for each in plans]
    if any(each is not None for each in dollars):
        rows.append((f"USD a day{price_basis(budget)}", [count(each) for each in dollars]))
        worth = [None if d is None else tokens_per_dollar(each, d) for each, d in zip(plans, dollars, strict=True)]
        rows.append(("tokens a dollar", [count(each) for each in worth]))
    days = [run_days(each, budget) for each in plans]
    if budget.tokens is not None:
        rows.append(("whole run", [NOT_KNOWN if each is None else days_words(each) for each in days]))
        whole = [None if d is None or p is None else d * p for d, p in zip(days, dollars, strict=True)]
        if any(each is not None for each in whole):
            rows.append(("whole run, USD", [count(each) for each in whole]))
    return tuple(ComparisonRow(name, tuple(values)) for name, values in rows)


def _parts(plans: Sequence[Plan]) -> tuple[ComparisonRow, ...]:
    """The parts of each step and what they are more than the plan's; every column adds up as printed."""
    unit, scale, places = ("s", 1.0, 2) if max(each.time.step_s for each in plans) >= 10 else ("ms", 1e3, 1)
    columns = [rounded_parts(each.time, scale, places) for each in plans]
    rows = []
    for part, name in (*TIME_PARTS.items(), ("step_s", "step")):
        values = [column[part] for column in columns]
        if any(values):
            more = [f" ({value - values[0]:+.{places}f})" for value in values[1:]]
            shown = [f"{value:.{places}f} {unit}{text}" for value, text in zip(values, ["", *more], strict=True)]
            rows.append(ComparisonRow(name, tuple(shown)))
    return tuple(rows)


def rounded_parts(time: TimeBreakdown, scale: float, places: int) -> dict[str, float]:
    """The parts of a step times ``scale``, rounded so that they add up to the rounded step.

    The remainder of rounding is shared out by single last digits, first to the parts that lost most.
    """
    exact = {part: getattr(time, part) * scale for part in TIME_PARTS}
    parts = {part: round(value, places) for part, value in exact.items()}
    step, digit = round(time.step_s * scale, places), 10.0**-places
    left = round((step - sum(parts.values())) / digit)
    sign = 1 if left > 0 else -1
    for part in sorted(exact, key=lambda name: sign * (parts[name] - exact[name]))[: abs(left)]:
        parts[part] = round(parts[part] + sign * digit, places)
    return parts | {"step_s": step}


def _settings(plans: Sequence[Plan]) -> tuple[ComparisonRow, ...]:
    chosen = [each.configuration for each in plans]
    rows = {
        "degrees": [str(each.degrees) for each in chosen],
        "micro-batch": [str(each.micro_batch) for each in chosen],
        "recomputation": [each.recomputation for each in chosen],
        "sharding": [str(each.sharding) for each in chosen],
        **({"offload": [offload_words(each) for each in chosen]} if _offloads(chosen) else {}),
        **({"offloaded layers": [str(each.offloaded_layers) for each in chosen]} if _waits(chosen) else {}),
        **({"context exchange": [each.exchange_words for each in chosen]} if _exchanges(chosen) else {}),
        **({"chosen": [chosen_words(each) or "none" for each in chosen]} if any(map(_chose, chosen)) else {}),
        "rank order": [str(each.rank_order) for each in chosen],
        "schedule": [schedule_words(each) for each in chosen],
        "layers": ["; ".join(_layer_words(row) for row in _unique(each.stage_layers)) for each in chosen],
    }
    return tuple(ComparisonRow(name, tuple(values)) for name, values in rows.items())


def _exchanges(chosen: Sequence[Configuration]) -> bool:
    return any(each.context_exchange is not ContextExchange.RING for each in chosen)


def _chose(configuration: Configuration) -> bool:
    return bool(configuration.settings.chosen)


def _offloads(chosen: Sequence[Configuration]) -> bool:
    return any(each.optimizer_offload for each in chosen)


def _waits(chosen: Sequence[Configuration]) -> bool:
    return any(each.offloaded_layers for each in chosen)


def _unique(rows: Sequence[tuple[int, ...]]) -> Sequence[tuple[int, ...]]:
    return rows[:1] if len(set(rows)) == 1 else rows


def _layer_words(row: tuple[int, ...]) -> str:
    return f"{row[0]} each" if len(set(row)) == 1 else " ".join(map(str, row))
