"""Moves on a map of one layer: loads follow them under both choices of copies, and each can be taken back."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from solver.experts import compiled_map
from solver.experts.balance import layer_case
from solver.experts.compiled_map import Move
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice, rank_loads

MOVING = ("holds", "near_parts", "opened", "allowed", "put", "take_back", "relocate", "_carry", "_rehome")


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The source as Python runs it: a door from Python into each of these would be compiled for seconds."""
    plain = {name: getattr(compiled_map, name).py_func for name in MOVING}
    for name, function in plain.items():
        monkeypatch.setattr(compiled_map, name, function)
    return SimpleNamespace(**plain)


@pytest.mark.parametrize("choices", [[CopyChoice.ANY, CopyChoice.ANY], [CopyChoice.NEAREST, CopyChoice.ANY]])
@pytest.mark.parametrize("layout", [ExpertLayout(6, 3, 18), ExpertLayout(4, 2, 12, (1.0, 2.0, 1.0, 1.0))])
def test_loads_after_moves_are_those_of_the_map(
    moves: SimpleNamespace, choices: list[CopyChoice], layout: ExpertLayout
) -> None:
    """Swaps and replaced copies, kept or taken back, against the loads worked out anew."""
    random = np.random.default_rng(layout.ranks)
    experts = layout.slots - 4
    shares = random.lognormal(0.0, 0.8, (2, experts))
    held = (np.arange(layout.slots) % experts).reshape(layout.ranks, -1)
    layer = moves.opened(layer_case(shares, choices, layout), held.copy())

    def expected() -> list[float]:
        rows = layer.held.reshape(1, -1)
        return [rank_loads(rows, row[None], layout, each)[0] for row, each in zip(shares, choices, strict=True)]

    kept = 0
    for _ in range(200):
        g, i, h, j = (int(random.integers(most)) for most in (*held.shape, *held.shape))
        copied = bool(random.integers(2))
        expert = int(random.integers(experts)) if copied else int(layer.held[g, i])
        move = Move(g, -1 if copied else i, h, j, expert, int(layer.held[h, j]))
        if not moves.allowed(layer, move):
            continue
        before = layer.held.copy()
        moves.put(layer, move)
        assert layer.tried == pytest.approx(np.array(expected()))
        if random.integers(2):
            layer.loads[:] = layer.tried
            kept += 1
        else:
            moves.take_back(layer, move)
            assert (layer.held == before).all()
        assert all(len(set(rank)) == len(rank) for rank in layer.held.tolist())
        assert set(layer.held.ravel().tolist()) == set(range(experts))
    assert kept > 10
