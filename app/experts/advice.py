"""Advice on a placement: where it was planned for the wrong thing, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from app.experts.judging import Verdict
from app.experts.placing import Proposal
from cluster_models.routing.counts import RoutedWorkload
from cluster_models.wording import joined
from solver.experts.bounds import plain_bound
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice
from solver.experts.near_bounds import least_near_load

_MUCH: Final = 0.9
"""Share of what is possible: a workload below it was left behind by the plan."""
_BOUND_HINT: Final = 0.97
_GAIN: Final = 0.01
_HALF: Final = 0.5


def warnings_of(proposal: Proposal) -> tuple[str, ...]:
    """Trouble with the map where another workload runs."""
    planned = joined([each.name for each in proposal.verdicts if each.planned])
    found = [] if proposal.chained is None else _less_local(proposal, planned)
    for each in proposal.verdicts:
        if each.planned:
            continue
        if not each.layers:
            found.append(f"{each.name} has none of the layers that were placed: nothing is known of it")
            continue
        reached, possible = float(each.balancedness.mean()), float(each.bound.mean())
        if proposal.chained is None and reached < _MUCH * possible:
            found.append(
                f"planned for {planned}; {each.name} would run at {reached:.2f} of perfect balance, where up to "
                f"{possible:.2f} may be possible: plan for both"
            )
    if proposal.left_out_layers:
        layers = joined([str(layer) for layer in proposal.left_out_layers])
        found.append(f"layers {layers} were left out: not all workloads planned for have counts of them")
    return tuple(found)


def next_steps(proposal: Proposal, workloads: Sequence[RoutedWorkload]) -> tuple[str, ...]:
    """Steps that would make the map better, or sentences that nothing would."""
    planned = [each for each in proposal.verdicts if each.planned]
    if proposal.chained is not None:
        return _after_following(proposal)
    found = []
    worst = min(planned, key=lambda each: float(each.bound.mean()))
    limit = float(worst.bound.mean())
    layout = proposal.ask.layout
    if limit < _BOUND_HINT and layout.slots_per_rank < proposal.slots.experts:
        more = _with_one_more(layout)
        chosen = next(workload for workload in workloads if workload.name == worst.name)
        least = least_near_load if proposal.ask.choice is CopyChoice.NEAREST else plain_bound
        bounds = [1.0 / max(1.0, least(row, more)) for row in chosen.shares() * more.ranks]
        wider = float(np.mean(bounds))
        if wider > limit + _GAIN:
            found.append(
                f"no map on {layout.slots} slots exceeds {limit:.3f} for {worst.name}; with {more.slots} (one more "
                f"on each rank) up to {wider:.3f} may be possible"
            )
    if all(np.allclose(each.balancedness, each.bound, atol=5e-4) for each in planned) and len(planned) == 1:
        found.append("this is the best balance that these slots allow: the bound is reached")
    if any(each.locality is not None for each in planned):
        found.append("transitions between layers were counted: objective locality places by them")
    found += _under_the_other_choice(proposal, planned)
    gain = min(float(each.balancedness.mean() - each.in_order.mean()) for each in planned)
    if gain < _GAIN:
        found.append("experts in their order are as good: nothing needs to move")
    return tuple(found)


def _under_the_other_choice(proposal: Proposal, planned: Sequence[Verdict]) -> list[str]:
    """Hint where the nearest copy may serve tokens, and the map suits that worse."""
    if proposal.ask.choice is not None:
        return []
    reached = {choice: min(float(each.by_choice[choice].mean()) for each in planned) for choice in CopyChoice}
    if reached[CopyChoice.NEAREST] > reached[CopyChoice.ANY] - _GAIN:
        return []
    sentence = (
        f"where the nearest copy serves a token, as in SGLang's static dispatch, ranks run at "
        f"{reached[CopyChoice.NEAREST]:.3f} of perfect balance: copy choice nearest plans for that"
    )
    return [sentence]


def _after_following(proposal: Proposal) -> tuple[str, ...]:
    """Steps after a map by transitions."""
    if proposal.worth >= _MUCH or proposal.worth >= _MUCH * proposal.bound:
        return ()
    sentence = (
        f"ranks run at {proposal.worth:.2f} of perfect balance: a lower least_locality leaves more room for it"
    )
    return (sentence,)


def _less_local(proposal: Proposal, planned: str) -> list[str]:
    """Workloads with whose transitions the map does not keep half of what it gains with those planned for."""
    told = {each.name: each.locality for each in proposal.verdicts if each.locality is not None}
    gains = {name: local.own.on_rank - local.in_order.on_rank for name, local in told.items()}
    least = min(gains[each.name] for each in proposal.verdicts if each.planned)
    found = []
    for each in proposal.verdicts:
        if each.planned or not each.layers:
            continue
        if each.locality is None:
            found.append(f"{each.name} has no transitions: how much of it would stay is not known")
        elif gains[each.name] < _HALF * least:
            stays = f"{each.locality.own.on_rank:.2f} of the transitions of {each.name} would stay on their GPU"
            found.append(
                f"planned for {planned}; {stays}, in order {each.locality.in_order.on_rank:.2f}: plan for both"
            )
    return found


def _with_one_more(layout: ExpertLayout) -> ExpertLayout:
    """The layout with one slot more on each rank."""
    return replace(layout, slots=layout.slots + layout.ranks)
