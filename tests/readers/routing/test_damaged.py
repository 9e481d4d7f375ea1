"""Readers take whatever comes: values damaged anywhere, values of any shape."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.readers.routing.made import counts, found_in, trace, tried

_DEVICES = [{"device_id": rank, "device_expert": [rank, 1 - rank]} for rank in range(2)]
_WHOLE: tuple[Any, ...] = (
    {"logical_count": counts(3, 4).tolist(), "physical_to_logical_map": [[0, 1, 2, 3, 0, 1]] * 3},
    {"logical_count": [counts(3, 4).tolist()] * 2},
    {
        "records": [
            {"global_physical_count": counts(2, 4).tolist()},
            {"topk_ids_of_layer": [[[0, 1], [2, -1]]] * 2, "extend_seq_lens": [2]},
        ],
        "last_physical_to_logical_map": [[0, 1, 2, 0]] * 2,
    },
    {"records": [{"global_physical_count": counts(2, 4).tolist()}] * 2, "last_physical_to_logical_map": None},
    {"axes": ["token", "layer", "expert"], "shape": [4, 3, 2], "experts": trace(4, 3, 6, 2).tolist()},
    trace(4, 3, 6, 2).tolist(),
    {
        "layers_counted": [0, 7],
        "layer_pairs": [[0, 7]],
        "domains": {
            name: {"expert_counts": counts(2, 3).tolist(), "expert_counts_crosslayer": [counts(3, 3).tolist()]}
            for name in ("one", "two")
        },
    },
    {"total_input_tokens": 7, "expert_popularity": counts(2, 4).tolist()},
    {
        "ranks": {"rank0": {"1_3": [1, 2], "1_4": [3, 4]}},
        "meta_info": {"num_experts": 2, "num_experts_per_token": 1},
    },
    {"1_3": [1, 2], "1_4": [3, 4]},
    {"workloads": [{"name": "a", "loads": counts(2, 3).tolist(), "transitions": {"0": counts(3, 3).tolist()}}]},
    {"prefill": counts(2, 3).tolist(), "decode": counts(2, 3).tolist()},
    {"3": [1, 2, 3], "4": {"0": 1, "2": 3}},
    {"num_slots": 4, "initial_global_assignments": {3: [0, 1, 2, 0], 4: [2, 1, 0, 1]}},
    {"moe_layer_count": 1, "layer_list": [{"layer_id": 3, "device_count": 2, "device_list": _DEVICES}]},
)
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70_000),
    st.just(10**400),
    st.floats(),
    st.sampled_from(["", "x", "3", "٣", "logical_count"]),
    st.just([]),
    st.just({}),
    st.just([[1, 2], [3]]),
    st.just([[[1]]]),
)
_TREES = st.recursive(
    _LEAVES,
    lambda children: st.one_of(
        st.lists(children, max_size=4),
        st.dictionaries(
            st.sampled_from(
                ["logical_count", "records", "experts", "domains", "weight", "ranks", "1_3", "0", "loads"]
            ),
            children,
            max_size=3,
        ),
    ),
    max_leaves=12,
)


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every container with each of its keys."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    found = [(tree, key) for key in keys]
    return found + [place for key in keys for place in _places(tree[key])]


def _check(tree: Any, experts: int | None = None, text: str = "") -> None:
    error, found = tried(lambda: found_in(tree, experts=experts, text=text))
    if error is not None:
        assert error.field.startswith("made.json")
        assert error.problem
        assert error.remedy
    if found is not None:
        assert found.workloads or found.maps
        assert all(workload.experts == experts for workload in found.workloads if experts is not None)
        assert all(notice.place.file and notice.sentence for notice in found.notices)


@given(st.sampled_from(_WHOLE), st.data())
def test_damaged_values(whole: Any, data: st.DataObject) -> None:
    """Members replaced or lost anywhere: what is left is read, or one error names the file."""
    tree = copy.deepcopy(whole)
    for _ in range(data.draw(st.integers(0, 3))):
        places = _places(tree)
        if places:
            container, key = data.draw(st.sampled_from(places))
            if data.draw(st.booleans()):
                container[key] = copy.deepcopy(data.draw(_LEAVES))
            elif key in container if isinstance(container, dict) else key < len(container):
                del container[key]
    _check(tree, data.draw(st.sampled_from([None, 4])))


@given(_TREES)
def test_any_value(tree: Any) -> None:
    """No value whatever makes a reader raise another error."""
    _check(tree)


@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    """Tables of anything."""
    _check(None, text=text)


@given(
    st.lists(
        st.lists(st.sampled_from(["layer", "expert", "count", "1", "2", "x", "-1", "1e9", '"', ""]), max_size=5)
    )
)
def test_any_table(rows: list[list[str]]) -> None:
    """Tables with the right words in the wrong places."""
    _check(None, text="\n".join(",".join(row) for row in rows))
