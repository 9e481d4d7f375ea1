"""Where the experts of a model lie, copies included, as the files that engines load.

The slots come from the caller, or from a plan, which holds each expert once.  Each format is read back and compared
before it leaves, as the launch files are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml

from app.exports.claims import Claims
from app.exports.contract import ZIP, Export, ExportFile, Family, Files, unreadable
from app.exports.launch_value import Launch
from app.exports.options import Options
from app.exports.readback.words import file_named, flags, number, value, words
from cluster_models.errors import InvalidConfiguration
from cluster_models.training.expert_slots import ExpertSlots

MOST_PREDICTION_LAYERS: Final = 8
"""Layers of multi-token prediction for which there are rows: published checkpoints have one, drafts repeat it."""


@dataclass(frozen=True, slots=True)
class ExpertMap:
    """One format of expert slots; ``model_layers`` counts all decoder layers, dense ones included."""

    name: str
    description: str
    render: Callable[[ExpertSlots, int], Files]
    read_back: Callable[[Files], ExpertSlots]
    expected: Callable[[ExpertSlots, int], ExpertSlots]
    family: Family = Family.INFERENCE

    def files(self, slots: ExpertSlots, model_layers: int) -> Files:
        """The files, read back; raises ``InvalidConfiguration`` where the format cannot say the slots."""
        if slots.layers[-1] >= model_layers:
            raise InvalidConfiguration("experts.layers", slots.layers[-1], f"the model has {model_layers} layers")
        files = self.render(slots, model_layers)
        self.check(files, slots, model_layers)
        return files

    def check(self, files: Files, slots: ExpertSlots, model_layers: int) -> None:
        """Raise ``InvalidConfiguration`` where files say other slots."""
        try:
            found = self.read_back(files)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
            raise unreadable(f"exports.{self.name}", str(error)) from error
        if found != self.expected(slots, model_layers):
            raise unreadable(f"exports.{self.name}", found, "the files do not say the slots given")


def _sglang(slots: ExpertSlots, model_layers: int) -> Files:
    """``--init-expert-location``: one row for every decoder layer, dense ones too."""
    rows = [list(row) for row in _filled(slots, model_layers).slots]
    given = [
        "--init-expert-location expert_location.json",
        f"--ep-size {slots.ranks}",
        f"--ep-num-redundant-experts {slots.count - slots.experts}",
    ]
    return (
        ExportFile("expert_location.json", json.dumps({"physical_to_logical_map": rows}) + "\n"),
        ExportFile("flags.txt", "\n".join(given) + "\n"),
    )


def _read_sglang(files: Files) -> ExpertSlots:
    rows = json.loads(file_named(files, "expert_location.json"))["physical_to_logical_map"]
    given = flags(words(file_named(files, "flags.txt")))
    if value(given, "--init-expert-location") != "expert_location.json":
        raise unreadable("exports.--init-expert-location", given, "must name the file beside it")
    spare = number(value(given, "--ep-num-redundant-experts"), "--ep-num-redundant-experts")
    ranks = number(value(given, "--ep-size"), "--ep-size")
    table = tuple(tuple(row) for row in rows)
    return ExpertSlots(tuple(range(len(rows))), table, len(rows[0]) - spare, ranks)


def _filled(slots: ExpertSlots, model_layers: int) -> ExpertSlots:
    """The slots with rows for dense layers, in natural order: their rows are read and never used.

    A rank has at most as many slots as there are experts, so that neighbours modulo their number differ.
    """
    natural = tuple(slot % slots.experts for slot in range(slots.count))
    told = dict(zip(slots.layers, slots.slots, strict=True))
    rows = tuple(told.get(layer, natural) for layer in range(model_layers))
    return replace(slots, layers=tuple(range(model_layers)), slots=rows)


def _filled_beyond(slots: ExpertSlots, model_layers: int) -> ExpertSlots:
    """The same, also with rows for layers of multi-token prediction, numbered after the last decoder layer.

    TensorRT-LLM looks a row up for every layer with experts and stops where there is none; a row that no layer
    looks up is never used.
    """
    return _filled(slots, model_layers + MOST_PREDICTION_LAYERS)


def _trtllm(slots: ExpertSlots, model_layers: int) -> Files:
    """The load balancer's YAML, which keeps the assignments as they are, and the keys that name it.

    Without attention data parallelism TensorRT-LLM ignores the load balancer and says nothing.
    """
    told = _filled_beyond(slots, model_layers)
    balancer = {
        "num_slots": slots.count,
        "initial_global_assignments": {
            layer: list(row) for layer, row in zip(told.layers, told.slots, strict=True)
        },
        "layer_updates_per_iter": 0,
    }
    config = {
        "enable_attention_dp": True,
        "moe_expert_parallel_size": slots.ranks,
        "moe_config": {"load_balancer": "load_balancer.yaml"},
    }
    return (
        ExportFile("load_balancer.yaml", yaml.safe_dump(balancer, sort_keys=False, width=10_000)),
        ExportFile("config.yaml", yaml.safe_dump(config, sort_keys=False)),
    )


def _read_trtllm(files: Files) -> ExpertSlots:
    balancer = yaml.safe_load(file_named(files, "load_balancer.yaml"))
    config = yaml.safe_load(file_named(files, "config.yaml"))
    if config["moe_config"] != {"load_balancer": "load_balancer.yaml"} or balancer["layer_updates_per_iter"] != 0:
        raise unreadable("exports.load_balancer", config, "must name the file beside it and keep the assignments")
    if config["enable_attention_dp"] is not True:
        raise unreadable("exports.enable_attention_dp", config, "must be true, or the load balancer is ignored")
    table = balancer["initial_global_assignments"]
    if {len(row) for row in table.values()} != {balancer["num_slots"]}:
        raise unreadable("exports.num_slots", balancer["num_slots"], "is not the length of every row")
    return _slots_of(table, config["moe_expert_parallel_size"])


def _ascend(slots: ExpertSlots, model_layers: int) -> Files:  # noqa: ARG001 - the shape of every renderer
    """The expert map that vLLM on Ascend loads: experts of each device, sparse layers counted from 0."""
    layers = [
        {
            "layer_id": place,
            "device_count": slots.ranks,
            "device_list": [
                {"device_id": rank, "device_expert": list(held)} for rank, held in enumerate(slots.by_rank(row))
            ],
        }
        for place, row in enumerate(slots.slots)
    ]
    text = json.dumps({"moe_layer_count": len(layers), "layer_list": layers}) + "\n"
    return (ExportFile("expert_map.json", text),)


def _read_ascend(files: Files) -> ExpertSlots:
    tree = json.loads(file_named(files, "expert_map.json"))
    if tree["moe_layer_count"] != len(tree["layer_list"]):
        raise unreadable("exports.moe_layer_count", tree["moe_layer_count"], "is not the number of layers")
    table: dict[int, list[int]] = {}
    counts = set()
    for layer in tree["layer_list"]:
        devices = layer["device_list"]
        counts |= {layer["device_count"], len(devices)}
        if [device["device_id"] for device in devices] != list(range(len(devices))):
            raise unreadable("exports.device_id", layer["layer_id"], "must count up from 0")
        if len({len(device["device_expert"]) for device in devices}) > 1 or layer["layer_id"] in table:
            raise unreadable("exports.device_expert", layer["layer_id"], "must be as many everywhere, once a layer")
        table[layer["layer_id"]] = [expert for device in devices for expert in device["device_expert"]]
    if len(counts) != 1:
        raise unreadable("exports.device_count", sorted(counts), "must be the same everywhere")
    return _slots_of(table, counts.pop())


def _megatron(slots: ExpertSlots, model_layers: int) -> Files:  # noqa: ARG001 - the shape of every renderer
    """A permutation of each layer's experts, to be applied once when the checkpoint is converted."""
    if slots.count != slots.experts:
        raise InvalidConfiguration(
            "experts.slots",
            slots.count,
            f"Megatron-LM holds each of {slots.experts} experts once",
            "give each expert one slot",
        )
    orders = {str(layer): list(row) for layer, row in zip(slots.layers, slots.slots, strict=True)}
    tree = {
        "note": "Position i of a layer holds expert order[i]: permute router rows, expert bias and expert weights.",
        "expert_model_parallel_size": slots.ranks,
        "order": orders,
    }
    return (ExportFile("expert_order.json", json.dumps(tree) + "\n"),)


def _read_megatron(files: Files) -> ExpertSlots:
    tree = json.loads(file_named(files, "expert_order.json"))
    table = {number(layer, "layer"): order for layer, order in tree["order"].items()}
    if any(sorted(order) != list(range(len(order))) for order in table.values()):
        raise unreadable("exports.order", "", "is not a permutation")
    return _slots_of(table, tree["expert_model_parallel_size"])


def _slots_of(table: Mapping[int, Any], ranks: int) -> ExpertSlots:
    """Slots from rows by layer, in the order of the layers; experts are numbered from 0."""
    rows = tuple(tuple(table[layer]) for layer in sorted(table))
    return ExpertSlots(tuple(sorted(table)), rows, max(map(max, rows)) + 1, ranks)


def _same(slots: ExpertSlots, model_layers: int) -> ExpertSlots:  # noqa: ARG001 - the shape of ``expected``
    return slots


def _counted(slots: ExpertSlots, model_layers: int) -> ExpertSlots:  # noqa: ARG001 - the shape of ``expected``
    return replace(slots, layers=tuple(range(len(slots.layers))))


EXPERT_MAPS: Final = {
    form.name: form
    for form in (
        ExpertMap("experts-sglang", "SGLang expert location", _sglang, _read_sglang, _filled),
        ExpertMap("experts-trtllm", "TensorRT-LLM load balancer", _trtllm, _read_trtllm, _filled_beyond),
        ExpertMap("experts-vllm-ascend", "vLLM Ascend expert map", _ascend, _read_ascend, _counted),
        ExpertMap(
            "experts-megatron",
            "Order of experts in Megatron-LM",
            _megatron,
            _read_megatron,
            _same,
            family=Family.TRAINING,
        ),
    )
}


def _of_plan(form: ExpertMap) -> Export:
    """The format as an export of a plan; refuses models without experts."""

    def render(launch: Launch, options: Options) -> Files:  # noqa: ARG001 - the shape of every renderer
        return form.render(_slots(launch), launch.layers)

    def read(files: Files) -> Claims:
        try:
            return Claims(expert_slots=form.read_back(files))
        except (AttributeError, yaml.YAMLError) as error:
            raise unreadable(f"exports.{form.name}", str(error)) from error

    def expected(launch: Launch) -> Claims:
        return Claims(expert_slots=form.expected(_slots(launch), launch.layers))

    return Export(
        form.name,
        f"{form.name}.zip",
        ZIP,
        form.description,
        render,
        read,
        frozenset({"expert_slots"}),
        family=form.family,
        expected=expected,
        refuse=lambda launch, options: _slots(launch),  # noqa: ARG005 - the shape of every renderer
    )


def _slots(launch: Launch) -> ExpertSlots:
    if launch.plan.expert_slots is None:
        raise InvalidConfiguration(
            "plan.expert_slots", None, "the plan does not say where experts lie", "plan a model with experts"
        )
    return launch.plan.expert_slots


EXPORTS_HERE: Final = tuple(_of_plan(form) for form in EXPERT_MAPS.values())
