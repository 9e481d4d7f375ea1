"""The worth of a map of experts: checked by hand and by counting slot by slot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.errors import InvalidInput
from solver.experts.layout import ExpertLayout
from solver.experts.loads import balancedness, layer_balancedness, node_local_share, rank_loads, replica_counts


def test_copies_share_their_expert_equally() -> None:
    """Expert 0 with 6 of 8 and two copies puts 3 on either rank."""
    slots, shares = np.array([[0, 1, 2, 0]]), np.array([[6.0, 1.0, 1.0]])
    layout = ExpertLayout(ranks=2, nodes=1, slots=4)
    assert rank_loads(slots, shares, layout).tolist() == [[4.0, 4.0]]
    assert balancedness(slots, shares, layout) == 1.0


def test_a_slow_rank_needs_less_to_be_balanced() -> None:
    """A rank of half the speed is balanced by half the load."""
    slots, shares = np.array([[0, 1]]), np.array([[2.0, 1.0]])
    assert balancedness(slots, shares, ExpertLayout(2, 1, 2, (2.0, 1.0))) == pytest.approx(1.0)
    assert balancedness(slots, shares, ExpertLayout(2, 1, 2)) == pytest.approx(0.75)


def test_local_share_of_a_map_without_copies_is_one_node_in_all() -> None:
    """Without copies an expert serves one node's own tokens, with a copy on each node everybody's."""
    shares = np.array([[3.0, 1.0]])
    assert node_local_share(np.array([[0, 1]]), shares, ExpertLayout(2, 2, 2)) == pytest.approx(0.5)
    assert node_local_share(np.array([[0, 1, 1, 0]]), shares, ExpertLayout(2, 2, 4)) == pytest.approx(1.0)
    assert node_local_share(np.array([[0, 1, 0, 1, 0, 1]]), shares, ExpertLayout(3, 3, 6)) == pytest.approx(1.0)
    uneven = np.array([[0, 1, 0, 2, 0, 3]])
    assert node_local_share(uneven, np.array([[1.0, 0, 0, 0]]), ExpertLayout(6, 2, 6)) == pytest.approx(1.0)
    assert node_local_share(uneven, np.array([[0, 1.0, 0, 0]]), ExpertLayout(6, 2, 6)) == pytest.approx(0.5)


@given(st.data())
def test_loads_agree_with_counting_slot_by_slot(data: st.DataObject) -> None:
    """Each slot adds its share to its rank; nothing is lost."""
    ranks, nodes = data.draw(st.sampled_from([(2, 1), (2, 2), (4, 2), (3, 1)]))
    per_rank, experts, layers = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)), 2
    slots = np.array(
        data.draw(
            st.lists(
                st.lists(st.integers(0, experts - 1), min_size=ranks * per_rank, max_size=ranks * per_rank),
                min_size=layers,
                max_size=layers,
            )
        )
    )
    shares = np.array([[1.0 + e + layer for e in range(experts)] for layer in range(layers)])
    layout = ExpertLayout(ranks, nodes, ranks * per_rank)
    counts = replica_counts(slots, experts)
    loads = rank_loads(slots, shares, layout)
    for layer in range(layers):
        expected = [0.0] * ranks
        for slot, expert in enumerate(slots[layer]):
            expected[slot // per_rank] += shares[layer, expert] / list(slots[layer]).count(expert)
        assert loads[layer].tolist() == pytest.approx(expected)
        assert counts[layer].sum() == layout.slots
    assert (layer_balancedness(slots, shares, layout) <= 1 + 1e-12).all() or (counts == 0).any()
    assert 0 <= node_local_share(slots, shares, layout) <= 1 + 1e-12


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((0, 1, 4), "experts.ranks"),
        ((4, 3, 4), "experts.nodes"),
        ((4, 2, 6), "experts.slots"),
        ((2, 1, 2, (1.0,)), "experts.speeds"),
        ((2, 1, 2, (1.0, float("nan"))), "experts.speeds[1]"),
    ],
)
def test_layouts_that_do_not_add_up_are_refused(arguments: tuple[int, ...], field: str) -> None:
    """The message names the field, and slots that would do."""
    with pytest.raises(InvalidInput) as refused:
        ExpertLayout(*arguments)  # type: ignore[arg-type]
    assert refused.value.field == field


@pytest.mark.parametrize(("layout", "experts"), [(ExpertLayout(2, 1, 4), 5), (ExpertLayout(2, 1, 8), 3)])
def test_too_few_slots_or_too_many_are_refused(layout: ExpertLayout, experts: int) -> None:
    """Each expert needs a slot, and a rank cannot fill its slots with fewer experts than slots."""
    with pytest.raises(InvalidInput, match="take"):
        layout.check(experts)
