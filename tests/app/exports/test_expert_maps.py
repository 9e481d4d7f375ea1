"""Expert slots as engines load them: what goes in comes out of every file, and no changed slot leaves."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.exports.expert_maps import EXPERT_MAPS
from cluster_models.errors import InvalidConfiguration
from cluster_models.training.expert_slots import ExpertSlots

COPIES: Final = ExpertSlots((1, 3), ((0, 1, 2, 3, 1, 0), (3, 2, 1, 0, 3, 2)), experts=4, ranks=3)
ONCE: Final = ExpertSlots((0, 2), ((1, 0, 3, 2), (0, 1, 2, 3)), experts=4, ranks=2)


@st.composite
def expert_slots(draw: st.DrawFn, *, copies: bool = True) -> ExpertSlots:
    """Any legal slots: neighbours modulo the experts, in an order of each layer's own."""
    ranks, size = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    experts = draw(st.integers(size, ranks * size)) if copies else ranks * size
    layers = draw(st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True).map(sorted))
    orders = [draw(st.permutations(range(experts))) for _ in layers]
    rows = tuple(tuple(order[slot % experts] for slot in range(ranks * size)) for order in orders)
    return ExpertSlots(tuple(layers), rows, experts, ranks)


@pytest.mark.parametrize("name", [name for name in EXPERT_MAPS if name != "experts-megatron"])
@given(slots=expert_slots())
def test_slots_survive_every_format(name: str, slots: ExpertSlots) -> None:
    """Rendering reads its own files back; the same slots give the same bytes."""
    assert EXPERT_MAPS[name].files(slots, 8) == EXPERT_MAPS[name].files(slots, 8)


@given(expert_slots(copies=False))
def test_megatron_takes_permutations(slots: ExpertSlots) -> None:
    """Each expert once, in any order."""
    (file,) = EXPERT_MAPS["experts-megatron"].files(slots, 8)
    assert {int(layer): tuple(order) for layer, order in json.loads(file.text)["order"].items()} == dict(
        zip(slots.layers, slots.slots, strict=True)
    )


def test_megatron_takes_no_copies() -> None:
    """A copy has no place in a checkpoint."""
    with pytest.raises(InvalidConfiguration, match="each of 4 experts once"):
        EXPERT_MAPS["experts-megatron"].files(COPIES, 4)


def test_shapes_as_the_engines_read_them() -> None:
    """One small map, written out by hand."""
    location, given_flags = EXPERT_MAPS["experts-sglang"].files(COPIES, 4)
    natural = [0, 1, 2, 3, 0, 1]
    assert json.loads(location.text) == {
        "physical_to_logical_map": [natural, [0, 1, 2, 3, 1, 0], natural, [3, 2, 1, 0, 3, 2]]
    }
    assert "--ep-num-redundant-experts 2\n" in given_flags.text
    balancer, config = EXPERT_MAPS["experts-trtllm"].files(COPIES, 4)
    tree = yaml.safe_load(balancer.text)
    rows = tree.pop("initial_global_assignments")
    assert tree == {"num_slots": 6, "layer_updates_per_iter": 0}
    assert [rows[layer] for layer in range(4)] == [natural, [0, 1, 2, 3, 1, 0], natural, [3, 2, 1, 0, 3, 2]]
    assert yaml.safe_load(config.text) == {
        "enable_attention_dp": True,
        "moe_expert_parallel_size": 3,
        "moe_config": {"load_balancer": "load_balancer.yaml"},
    }
    (ascend,) = EXPERT_MAPS["experts-vllm-ascend"].files(COPIES, 4)
    tree = json.loads(ascend.text)
    assert tree["moe_layer_count"] == 2
    assert [layer["layer_id"] for layer in tree["layer_list"]] == [0, 1]
    assert tree["layer_list"][1]["device_list"][2] == {"device_id": 2, "device_expert": [3, 2]}


def test_tensorrt_llm_finds_a_row_for_each_layer_that_predicts_further_tokens() -> None:
    """DeepSeek-V3's 61 layers and its layer 61: without a row for it the worker ends with KeyError."""
    slots = ExpertSlots((3, 60), ((0, 1, 2, 3, 1, 0), (3, 2, 1, 0, 3, 2)), experts=4, ranks=3)
    balancer, _ = EXPERT_MAPS["experts-trtllm"].files(slots, 61)
    rows = yaml.safe_load(balancer.text)["initial_global_assignments"]
    assert rows[60] == [3, 2, 1, 0, 3, 2]
    assert rows[61] == rows[62] == [0, 1, 2, 3, 0, 1]


MUTATIONS: Final = (
    ("experts-sglang", 0, r"\[0, 1, 2, 3, 1, 0\]", "[1, 0, 2, 3, 1, 0]"),
    ("experts-sglang", 0, r"\[3, 2, 1, 0, 3, 2\]", "[3, 2, 1, 0, 3, 1]"),
    ("experts-sglang", 1, r"--ep-size 3", "--ep-size 6"),
    ("experts-sglang", 1, r"redundant-experts 2", "redundant-experts 1"),
    ("experts-sglang", 1, r"expert_location.json", "other.json"),
    ("experts-trtllm", 0, r"num_slots: 6", "num_slots: 8"),
    ("experts-trtllm", 0, r"per_iter: 0", "per_iter: 2"),
    ("experts-trtllm", 0, r"  3:", "  2:"),
    ("experts-trtllm", 1, r"enable_attention_dp: true", "enable_attention_dp: false"),
    ("experts-trtllm", 1, r"enable_attention_dp: true\n", ""),
    ("experts-trtllm", 0, r"num_slots", "[num_slots"),
    ("experts-trtllm", 1, r"size: 3", "size: 2"),
    ("experts-vllm-ascend", 0, r'"layer_id": 1', '"layer_id": 0'),
    ("experts-vllm-ascend", 0, r'"moe_layer_count": 2', '"moe_layer_count": 3'),
    ("experts-vllm-ascend", 0, r'"device_count": 3', '"device_count": 6'),
    ("experts-vllm-ascend", 0, r'"device_id": 2', '"device_id": 1'),
    ("experts-vllm-ascend", 0, r'"device_expert": \[2, 3\]', '"device_expert": [3, 2]'),
    ("experts-vllm-ascend", 0, r'"layer_list"', '"layers"'),
    ("experts-megatron", 0, r"\[1, 0, 3, 2\]", "[1, 0, 2, 3]"),
    ("experts-megatron", 0, r"\[1, 0, 3, 2\]", "[1, 1, 3, 2]"),
    ("experts-megatron", 0, r'size": 2', 'size": 4'),
)


@pytest.mark.parametrize(("name", "at", "pattern", "becomes"), MUTATIONS)
def test_a_changed_slot_never_leaves(name: str, at: int, pattern: str, becomes: str) -> None:
    """One value changed: the read-back refuses the files."""
    slots = ONCE if name == "experts-megatron" else COPIES
    files = EXPERT_MAPS[name].files(slots, 4)
    text = re.sub(pattern, becomes, files[at].text, count=1)
    assert text != files[at].text
    changed = (*files[:at], replace(files[at], text=text), *files[at + 1 :])
    with pytest.raises(InvalidConfiguration):
        EXPERT_MAPS[name].check(changed, slots, 4)


@pytest.mark.parametrize(
    ("layers", "slots", "experts", "ranks", "problem"),
    [
        ((0,), ((0, 1, 2, 2),), 4, 2, "each of 4 experts"),
        ((0,), ((0, 0, 1, 2),), 3, 2, "two copies of one expert"),
        ((0,), ((0, 1, 2),), 3, 2, "divisible by 2 ranks"),
        ((0, 1), ((0, 1), (0, 1, 0)), 2, 1, "as many slots"),
        ((1, 0), ((0, 1), (0, 1)), 2, 1, "increasing"),
        ((0,), ((0, 1), (0, 1)), 2, 1, "must be 1 rows"),
        ((), (), 2, 1, "layer numbers"),
    ],
)
def test_slots_that_no_engine_could_hold(
    layers: tuple[int, ...], slots: tuple[tuple[int, ...], ...], experts: int, ranks: int, problem: str
) -> None:
    """Each rule has its own sentence."""
    with pytest.raises(InvalidConfiguration, match=problem):
        ExpertSlots(layers, slots, experts, ranks)


def test_layers_lie_in_the_model() -> None:
    """A map for another model is refused."""
    with pytest.raises(InvalidConfiguration, match="the model has 3 layers"):
        EXPERT_MAPS["experts-sglang"].files(COPIES, 3)
