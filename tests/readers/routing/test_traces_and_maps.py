"""Traces of tokens, SGLang's records of passes, maps of running engines."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.exports.expert_maps import EXPERT_MAPS
from cluster_models.errors import InvalidConfiguration, InvalidInput
from cluster_models.training.expert_slots import ExpertSlots
from tests.readers.routing.made import found_in, read_of, trace


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.integers(0, 99))
def test_traces_are_counted_as_by_hand(tokens: int, layers: int, top: int, seed: int) -> None:
    """Loads, transitions and co-activation, pair by pair."""
    ids = trace(tokens, layers, 6, top, seed)
    (workload,) = found_in({"experts": ids.tolist()}, experts=6).workloads
    loads = np.zeros((layers, 6))
    moves = np.zeros((max(layers - 1, 0), 6, 6))
    pairs = np.zeros((layers, 6, 6))
    for token in ids:
        for layer, chosen in enumerate(token):
            for expert in chosen:
                loads[layer, expert] += 1
                for following in token[layer + 1] if layer + 1 < layers else ():
                    moves[layer, expert, following] += 1
            for one, other in combinations(chosen, 2):
                pairs[layer, one, other] += 1
                pairs[layer, other, one] += 1
    assert (workload.loads == loads).all()
    assert all((workload.transitions[index] == moves[index]).all() for index in range(layers - 1))
    assert all((table == pairs[index]).all() for index, table in workload.coactivation.items())
    assert workload.tokens == tokens


def test_padding_and_dense_layers_of_a_trace() -> None:
    """-1 selects nothing; a layer that no token reached is left out, and its neighbours follow each other."""
    ids = [[[0, 1], [-1, -1], [2, -1]], [[1, 2], [-1, -1], [0, 1]], [[-1, -1], [-1, -1], [-1, -1]]]
    (workload,) = found_in({"experts": ids, "num_experts": 4}).workloads
    assert workload.layers == (0, 2)
    assert workload.loads.tolist() == [[1, 2, 1, 0], [1, 1, 1, 0]]
    assert workload.transitions[0][1].tolist() == [1, 1, 1, 0]
    assert workload.tokens == 2


def test_axes_may_come_in_another_order() -> None:
    """``axes`` names them."""
    ids = trace(5, 3, 8, 2)
    turned = {"axes": ["layer", "token", "expert"], "experts": ids.transpose(1, 0, 2).tolist()}
    plain = {"axes": ["token", "layer", "expert"], "experts": ids.tolist()}
    assert (found_in(turned).workloads[0].loads == found_in(plain).workloads[0].loads).all()
    with pytest.raises(InvalidInput, match="axes: must name one axis token"):
        found_in({"axes": ["a", "b", "c"], "experts": ids.tolist()})


def test_tokens_with_fewer_selections_are_filled_up() -> None:
    """Lists of unequal lengths: the last layer of the second token is not known."""
    found = found_in({"experts": [[[0, 1], [2]], [[1, 0]]]}, experts=4)
    assert found.workloads[0].loads.tolist() == [[2, 2, 0, 0], [0, 0, 1, 0]]


def test_ids_of_no_expert() -> None:
    """Few are left out with a notice; where most are none, the file is of another model, or of words."""
    ids = trace(20, 3, 8, 2).tolist()
    ids[4][1][0] = 99
    found = found_in({"experts": ids}, experts=8)
    assert [(notice.code, notice.place.path) for notice in found.notices] == [("ids-left-out", "experts[4][1][0]")]
    assert found.workloads[0].loads.sum() == 20 * 3 * 2 - 1
    with pytest.raises(InvalidInput, match="are of no expert: the model has 8"):
        found_in({"experts": (trace(20, 3, 8, 2) + 8).tolist()}, experts=8)
    with pytest.raises(InvalidInput, match="look like ids of tokens"):
        found_in({"experts": (trace(20, 3, 8, 2) + 50_000).tolist()})
    with pytest.raises(InvalidInput, match=r"experts\[0\]\[0\]\[1\]: is not an expert id"):
        found_in({"experts": [[[0, 1.5]], [[1, 2]]]})


def _records(passes: list[dict[str, Any]], table: list[list[int]] | None) -> dict[str, Any]:
    head = {"rank": 0, "gatherer_key": "primary"}
    records = [{"forward_pass_id": index, **head, **one} for index, one in enumerate(passes)]
    return {"records": records, "last_physical_to_logical_map": table}


def test_counts_of_passes_are_those_of_experts() -> None:
    """``per_pass``: slots 0 and 3 hold expert 0; layer 0 is dense."""
    table = [[0, 1, 2, 0], [0, 1, 2, 0]]
    passes = [{"global_physical_count": [[0, 0, 0, 0], [1, 2, 3, 4]]} for _ in range(2)]
    found = found_in(_records(passes, table))
    (workload,) = found.workloads
    assert workload.layers == (1,)
    assert workload.loads.tolist() == [[10, 4, 6]]
    assert found.maps[0].on(2) == ExpertSlots((0, 1), ((0, 1, 2, 0), (0, 1, 2, 0)), 3, 2)


def test_ids_of_passes_are_those_of_experts_and_split_by_phase() -> None:
    """``per_token``: ids are of slots, (layers, tokens, selections); passes that extend nothing decode."""
    table = [[0, 1, 2, 0], [2, 1, 0, 1]]
    prefill = {"extend_seq_lens": [2], "topk_ids_of_layer": [[[3, 1], [2, -1]], [[0, 3], [1, -1]]]}
    decode = {"extend_seq_lens": None, "topk_ids_of_layer": [[[3, 1]], [[0, 3]]]}
    found = found_in(_records([prefill, decode], table))
    by_name = {workload.name: workload for workload in found.workloads}
    assert by_name["made:prefill"].loads.tolist() == [[1, 1, 1], [0, 2, 1]]
    assert by_name["made:decode"].loads.tolist() == [[1, 1, 0], [0, 1, 1]]
    assert by_name["made:prefill"].transitions[0].tolist() == [[0, 1, 1], [0, 1, 1], [0, 1, 0]]


def test_records_without_a_map_take_slots_for_experts() -> None:
    """SourcedValue in a notice; a map of other layers is refused."""
    passes = [{"global_physical_count": [[1, 2], [3, 4]]}]
    assert [notice.code for notice in found_in(_records(passes, None)).notices] == ["slots-as-experts"]
    with pytest.raises(InvalidInput, match="last_physical_to_logical_map: must have a slot for each count"):
        found_in(_records(passes, [[0, 1]]))


@pytest.mark.parametrize("name", ["sglang", "trtllm", "vllm-ascend"])
def test_maps_that_are_written_can_be_read(name: str) -> None:
    """The export for an engine comes back as the map that runs."""
    slots = ExpertSlots((0, 1), ((0, 1, 2, 0), (2, 1, 0, 1)), 3, 2)
    form = EXPERT_MAPS[f"experts-{name}"]
    for file in form.files(slots, 2):
        if file.name.endswith((".json", ".yaml")) and file.name != "config.yaml":
            (running,) = read_of(file.name, file.text).maps
            found = running.on(2)
            layers = len(slots.layers)  # files for TensorRT-LLM go on with rows for prediction layers
            assert replace(found, layers=found.layers[:layers], slots=found.slots[:layers]) == slots


def test_a_map_needs_the_ranks_of_its_engine() -> None:
    """Other ranks than the file says, slots that do not divide, experts that lie nowhere."""
    devices = [{"device_id": rank, "device_expert": [2 * rank, 2 * rank + 1]} for rank in (1, 0)]
    tree = {"moe_layer_count": 1, "layer_list": [{"layer_id": 3, "device_count": 2, "device_list": devices}]}
    (running,) = found_in(tree).maps
    assert (running.layers, running.ranks, running.slots.tolist()) == ((3,), 2, [[0, 1, 2, 3]])
    with pytest.raises(InvalidConfiguration, match="made for 2 ranks"):
        running.on(4)
    (partial,) = found_in({"physical_to_logical_map": [[0, 0, 2, 3]]}).maps
    with pytest.raises(InvalidConfiguration, match="each of 4 experts"):
        partial.on(2)
    with pytest.raises(InvalidInput, match=r"physical_to_logical_map\[0\]\[1\]: is not an expert"):
        found_in({"physical_to_logical_map": [[0, -1], [1, 0]]})
    with pytest.raises(InvalidInput, match="not divisible by 3 ranks"):
        found_in({"physical_to_logical_map": [[0, 1], [1, 0]], "ep_size": 3})


def test_json_lines_are_a_list() -> None:
    """One workload on each line."""
    lines = "\n".join(json.dumps({"name": name, "loads": [[1, 2], [3, 4]]}) for name in ("a", "b"))
    assert {workload.name for workload in read_of("all.jsonl", lines).workloads} == {"all:a", "all:b"}


def test_a_trace_that_was_cut_off_says_so() -> None:
    """The shape beside it is another."""
    found = found_in({"shape": [9, 3, 2], "experts": trace(5, 3, 8, 2).tolist()}, experts=8)
    assert [notice.code for notice in found.notices] == ["shape-differs"]
    assert found.workloads[0].tokens == 5


def test_traces_are_bounded() -> None:
    """So many ids would take gigabytes while they are counted."""
    with pytest.raises(InvalidInput, match=r"holds 17,000,000 selections.*send \d+,\d+ tokens at most"):
        found_in({"experts": np.zeros((17_000, 100, 10), np.int8)})
