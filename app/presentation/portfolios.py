"""A portfolio of plans in words and figures, the same on the terminal and in a page."""

from __future__ import annotations

import math
from typing import Final

from app.presentation.figures import count, percent, plural, seconds
from app.presentation.proof import TOO_SMALL_TO_SAY
from app.services.planning.portfolios import Portfolio, PortfolioHead

MEMBER_COLUMNS: Final = ("plan", "status", "GPUs", "step", "tokens/s", "best of", "at most better by")


def member_cells(
    name: str,
    status: str,
    figures: tuple[int | None, float | None, float | None],
    best: str | None,
    gap: float | None,
) -> tuple[str, ...]:
    """A member as a line of a table with ``MEMBER_COLUMNS``; ``figures``: GPUs, step and tokens per second."""
    gpus, step_s, tokens_per_s = figures
    shown = "" if gap is None else percent(gap, places=2)
    return name, status, count(gpus), seconds(step_s), count(tokens_per_s), best or "", shown


def head_words(head: PortfolioHead) -> str:
    """How many of the plans have ended."""
    asked = len(head.plans)
    return f"{asked - len(head.waiting)} of {plural(asked, 'plan')} {'has' if asked == 1 else 'have'} ended."


def portfolio_words(portfolio: Portfolio) -> str:
    """How far a portfolio is, its best plan and the proof of it."""
    told = head_words(portfolio.head)
    if not portfolio.members:
        return f"{told} All were forgotten since."
    if portfolio.joint is None:
        return f"{told} Models, tokens of a step or objectives differ: there is no best of all."
    if portfolio.best is None:
        return f"{told} Nothing fits, which is proven of all." if portfolio.joint.bound == math.inf else told
    told += f" The best is {portfolio.best}"
    if portfolio.joint.gap is None:
        return f"{told}; plans without a proof may be better."
    more = (
        "" if portfolio.joint.gap <= TOO_SMALL_TO_SAY else f" by more than {percent(portfolio.joint.gap, places=2)}"
    )
    return f"{told}: no plan of any member is better{more}."
