"""How much search a placement gets: the same sizes get the same, and none takes minutes.

Costs are of one core of 2020 or later, fitted to runs of 1 to 58 layers (docs/serving_experts.md); two threads
search side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cluster_models.errors import InvalidInput
from solver.experts.layout import ExpertLayout
from solver.experts.nodewise import PROPOSALS
from solver.experts.place import STEPS

MOST_SECONDS: Final = 20.0
"""Seconds of one core for each of the two searches at effort 1."""
MOST_SLOTS: Final = 16_384
MOST_RANKS: Final = 4_096
MOST_FIXED_SECONDS: Final = 40.0
"""Seconds of one core for what does not depend on effort: packing, times of maps, bounds."""
_FEWEST_STEPS, _FEWEST_PROPOSALS = 500, 300
_STEP_S, _STEP_SLOT_S = 8e-7, 6e-8
_EXCHANGE_S, _EXCHANGE_RANK_S = 1e-6, 6e-8
_PROPOSAL_S, _PROPOSAL_NODES_S = 1e-6, 9e-8
_SLOT_PAIR_S, _JUDGED_S, _JUDGED_NODES_S = 1.2e-8, 1e-3, 1e-4
_PAIR_S: Final = 3e-6
"""Seconds for two experts of neighbouring layers; 58 layers of 256 experts take 5 to 12 seconds."""
_ROUNDS: Final = 7
"""Searches of a set beside one of a single workload."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Steps of the search by loads for each layer, and proposals of the one over nodes."""

    steps: int
    proposals: int


def budget_of(
    layout: ExpertLayout,
    *,
    layers: int,
    planned: int,
    judged: int,
    over_nodes: bool,
    along_layers: bool = False,
    nearest: bool = False,
    effort: float = 1.0,
) -> Budget:
    """Budget of a placement over ``layers``, for ``planned`` workloads of the ``judged`` ones.

    ``nearest``: slots are exchanged under the rule that the nearest copy serves.

    Raises ``InvalidInput`` where it would take minutes.
    """
    _check_size(layout, layers, judged, over_nodes=over_nodes)
    following = _PAIR_S * layout.slots**2 * layers
    if along_layers and following > MOST_FIXED_SECONDS:
        problem = f"transitions between {layers} layers of so many experts take minutes to follow"
        raise InvalidInput("objective", "locality", problem, "place a part of the layers at a time, or by balance")
    rounds = 1 if planned == 1 else _ROUNDS
    step = (_STEP_S + _STEP_SLOT_S * layout.slots_per_rank * planned) * layers * rounds
    if nearest:
        step += (_EXCHANGE_S + _EXCHANGE_RANK_S * layout.ranks * planned) * layers * rounds
    proposal = (_PROPOSAL_S + _PROPOSAL_NODES_S * layout.nodes**2) * layers
    seconds = MOST_SECONDS * effort
    steps = min(STEPS * effort, seconds / step)
    proposals = min(PROPOSALS * effort, seconds / proposal)
    least = min(1.0, effort)
    if over_nodes and proposals < _FEWEST_PROPOSALS * least:
        problem = f"{layers} layers over so many nodes take minutes"
        remedy = "place a part of the layers at a time, or give the nodes of one scale-up domain as one node"
        raise InvalidInput("nodes", layout.nodes, problem, remedy)
    if steps < _FEWEST_STEPS * least:
        problem = f"{planned} workloads of {layers} layers on so many slots take minutes"
        raise InvalidInput("slots", layout.slots, problem, "plan for fewer workloads, those that differ most")
    return Budget(int(steps), int(proposals))


def _check_size(layout: ExpertLayout, layers: int, judged: int, *, over_nodes: bool) -> None:
    if layout.slots > MOST_SLOTS:
        raise InvalidInput("slots", layout.slots, f"a layer has at most {MOST_SLOTS:,} slots here")
    if layout.ranks > MOST_RANKS:
        raise InvalidInput("ranks", layout.ranks, f"at most {MOST_RANKS:,} ranks share the experts of a layer here")
    packing = _SLOT_PAIR_S * layout.slots**2 * layers
    if packing > MOST_FIXED_SECONDS:
        problem = f"{layers} layers of so many slots take minutes"
        raise InvalidInput("slots", layout.slots, problem, "place a part of the layers at a time")
    judging = (_JUDGED_S + over_nodes * _JUDGED_NODES_S * layout.nodes**2) * layers * judged
    if judging > MOST_FIXED_SECONDS:
        problem = f"{judged} workloads of {layers} layers on {layout.nodes} nodes take minutes to judge"
        raise InvalidInput("workloads", judged, problem, "name those to plan for, with judge_others false")
