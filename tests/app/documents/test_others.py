"""Models, workloads, configurations and plans, between their documents and their values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.architecture import ArchitectureDocument, ExpertsDocument, LatentAttentionDocument
from app.documents.configuration import ConfigurationDocument, even_stage_layers
from app.documents.model import ModelDocument, model_document
from app.documents.plan import NoPlanDocument, PlanDocument, plan_from_text, result_document
from app.documents.reading import InvalidDocument, problems_of, read_document
from app.documents.workload import WorkloadDocument
from cluster_models.errors import InvalidConfiguration, InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.model.catalogue import catalogue_model, catalogue_models
from cluster_models.model.experts import Experts
from cluster_models.model.mixers import LatentAttention
from cluster_models.training.plan import Degrees
from cluster_models.training.workload import DEGREE_NAMES, LinkBandwidth, Objective, Recompute, TrainingWorkload
from cluster_models.units import GIB
from tests.plans import small_architecture, small_configuration, small_no_plan, small_plan

CONFIG = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 2816,
    "vocab_size": 32000,
}


def complaint(kind: Any, value: object) -> str:
    """The sentences that reading ``value`` as ``kind`` ends in."""
    with pytest.raises(InvalidInput) as caught:
        read_document(kind, value, what="document")
    return "\n".join(map(str, problems_of(caught.value)))


@pytest.mark.parametrize(
    ("document", "value"),
    [
        (ArchitectureDocument, Architecture),
        (ExpertsDocument, Experts),
        (LatentAttentionDocument, LatentAttention),
    ],
)
def test_architecture_document_has_every_field_of_its_value(document: Any, value: Any) -> None:
    """A field added to the domain cannot be forgotten in the document."""
    assert tuple(document.model_fields) == value.__slots__


@pytest.mark.parametrize("name", catalogue_models())
def test_every_catalogue_model_survives_its_document(name: str) -> None:
    """Written out in full and read again, each model is the same."""
    architecture = catalogue_model(name)
    assert ModelDocument.from_architecture(architecture).to_architecture() == architecture


def test_models_are_recognised_in_every_spelling() -> None:
    """A name, a config.json, bare numbers, and the document around each."""
    numbers = ArchitectureDocument.from_value(small_architecture()).model_dump(mode="json")
    assert model_document("llama-3-70b").to_architecture().layers == 80
    assert model_document({"catalogue": "llama-3-70b"}).to_architecture().layers == 80
    assert model_document(CONFIG, name="mine").to_architecture().name == "mine"
    assert model_document({"huggingface": CONFIG, "name": "mine"}).to_architecture().hidden == 1024
    assert model_document(numbers).to_architecture() == small_architecture()
    assert model_document({"architecture": numbers}).to_architecture() == small_architecture()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("llama-3-70", "llama-3-70b"),
        ({}, "neither a model document"),
        ({"catalogue": "llama-3-70b", "huggingface": CONFIG}, "exactly one of"),
        ({"catalogue": "llama-3-70b", "name": "x"}, "name goes with huggingface only"),
        ({"layers": 4}, "is missing"),
        ({"model_type": "no-such"}, "give the numbers by hand"),
        ([1], "must be a mapping"),
        (7, "must be a mapping"),
    ],
)
def test_unusable_models_say_what_to_give(value: object, words: str) -> None:
    """Every dead end points to a way on."""
    with pytest.raises(InvalidInput) as caught:
        model_document(value).to_architecture()
    assert words in "\n".join(map(str, problems_of(caught.value)))


def test_workload_defaults_are_the_domains() -> None:
    """Fields left out of the file have the defaults of the dataclass."""
    document = WorkloadDocument(sequence_length=8192, global_batch_sequences=512)
    assert document.to_value() == TrainingWorkload(sequence_length=8192, global_batch=512)


@given(
    st.builds(
        TrainingWorkload,
        sequence_length=st.integers(1, 10**6),
        global_batch=st.integers(1, 10**5),
        recompute=st.lists(st.sampled_from(Recompute), min_size=1, unique=True).map(tuple),
        memory_headroom=st.floats(0, 0.9),
        pinned=st.dictionaries(st.sampled_from(DEGREE_NAMES[:3]), st.integers(1, 64)),
        forbidden=st.dictionaries(
            st.sampled_from(DEGREE_NAMES[3:]), st.lists(st.integers(1, 64), min_size=1, max_size=3).map(tuple)
        ),
        max_gpus=st.none() | st.integers(1, 4096),
        avoid_nodes=st.lists(st.sampled_from("abc"), unique=True).map(tuple),
        objective=st.sampled_from(Objective),
        link_bandwidth=st.sampled_from(LinkBandwidth),
        survive=st.dictionaries(st.sampled_from(["node", "leaf", "rack"]), st.integers(1, 4)),
        memory_checkpoint=st.booleans(),
    )
)
def test_a_workload_survives_its_document(workload: TrainingWorkload) -> None:
    """To JSON and back changes nothing."""
    text = WorkloadDocument.from_value(workload).model_dump_json()
    assert WorkloadDocument.model_validate_json(text).to_value() == workload


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sequence_length": 0}, "sequence_length: must be at least 1"),
        ({"sequence_length": 1.5}, "must be a whole number"),
        ({"precision": "bf61"}, "did you mean 'bf16'?"),
        ({"recompute": []}, "is empty"),
        ({"memory_headroom_fraction": 6}, "must be less than 1"),
        ({"max_gpu": 8}, "did you mean 'max_gpus'?"),
        ({"choose_power_caps": 2}, "choose_power_caps: must be true or false, not a number"),
        ({"pinned": {"tensor": 0}}, "pinned.tensor: must be at least 1"),
        ({"global_batch_sequences": 10**7}, "global_batch_sequences: must be at most 131072"),
        ({"sequence_length": 10**12}, "sequence_length: must be at most 100000000"),
        ({"forbidden": {"tensor": list(range(1, 2000))}}, "forbidden.tensor: has more than 1000 entries"),
        ({"avoid_nodes": ["a"] * 5000}, "avoid_nodes: has more than 2048 entries"),
    ],
)
def test_wrong_workloads_are_named(fields: dict[str, object], words: str) -> None:
    """Each mistake is named with its field."""
    assert words in complaint(WorkloadDocument, {"sequence_length": 8192, "global_batch_sequences": 512, **fields})


def test_unknown_degrees_get_a_suggestion() -> None:
    """A misspelt degree must not be ignored."""
    document = WorkloadDocument(sequence_length=1, global_batch_sequences=1, pinned={"tensr": 8})
    with pytest.raises(InvalidInput, match="did you mean 'tensor'"):
        document.to_value()


def test_unknown_frameworks_get_a_suggestion() -> None:
    """A misspelt generation must not fall back to another."""
    document = WorkloadDocument(sequence_length=1, global_batch_sequences=1, framework="megatron-core-0.21")
    with pytest.raises(InvalidInput, match=r"framework.*did you mean 'megatron-core-0.1"):
        document.to_value()


def test_configuration_survives_its_document() -> None:
    """With the hosts, a configuration says where everything sits."""
    document = ConfigurationDocument.from_value(small_configuration(), hosts=["b", "a"], gpus_per_node=4)
    assert document.to_configuration(small_architecture()) == small_configuration()
    assert document.host_order() == ("b", "a")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stage_layers": [[2, 3]]}, "adds up to 5 layers; the model has 4"),
        ({"stage_layers": [[4]]}, "needs 1 list.s. of 2 numbers"),
        ({"degrees": {"pipeline": 8}}, "makes 8 pipeline chunks of 4 layers"),
    ],
)
def test_layers_must_fit_the_model(fields: dict[str, Any], words: str) -> None:
    """Layers that do not add up are refused before any prediction."""
    document = ConfigurationDocument.model_validate({"degrees": {"pipeline": 2}, **fields})
    with pytest.raises(InvalidConfiguration, match=words):
        document.to_configuration(small_architecture())


def test_a_host_given_twice_is_refused() -> None:
    """One host cannot play two parts."""
    document = ConfigurationDocument.model_validate({"degrees": {}, "hosts": ["a", "b", "a"]})
    with pytest.raises(InvalidInput, match=r"hosts\[2\]"):
        document.host_order()


@given(st.integers(1, 200), st.integers(1, 16), st.integers(1, 4))
def test_even_layers_add_up_and_differ_by_one(layers: int, pipeline: int, virtual: int) -> None:
    """All layers are dealt out, and neither the first nor the last chunk gets more than a middle one."""
    degrees = Degrees(pipeline=pipeline, virtual_pipeline=virtual)
    if pipeline * virtual > layers:
        with pytest.raises(InvalidConfiguration):
            even_stage_layers(layers, degrees)
        return
    counts = [count for row in even_stage_layers(layers, degrees) for count in row]
    assert sum(counts) == layers
    assert max(counts) - min(counts) <= 1
    assert max(counts[0], counts[-1]) <= max(counts[1:-1] or counts)


def test_a_plan_survives_its_document() -> None:
    """Printed as JSON and read again, every figure is the same."""
    text = PlanDocument.from_plan(small_plan()).model_dump_json()
    assert plan_from_text(text) == small_plan()


def test_plan_document_carries_units() -> None:
    """Memory is in GiB with its total, rates in TFLOP/s."""
    document = PlanDocument.from_plan(small_plan(), timeline=False)
    assert document.memory[0].total_gib == pytest.approx(63.5)
    assert document.memory[0].total_gib * GIB == pytest.approx(small_plan().memory[0].total_bytes)
    assert document.model_tflops_per_s_per_gpu == pytest.approx(small_plan().model_flops_per_s_per_gpu / 1e12)
    assert document.timeline is None


def test_no_plan_says_by_how_much_it_misses() -> None:
    """The document of a failure has the closest candidate and the missing GiB."""
    document = result_document(small_no_plan())
    assert isinstance(document, NoPlanDocument)
    assert (document.result, document.missing_gib) == ("no_plan", 3.5)
    with pytest.raises(InvalidInput, match="nothing to export"):
        plan_from_text(document.model_dump_json())


def test_a_plan_without_hosts_is_refused() -> None:
    """A plan document that somebody shortened is not a plan."""
    value = PlanDocument.from_plan(small_plan()).model_dump(mode="json")
    value["configuration"]["hosts"] = None
    with pytest.raises(InvalidInput, match="names its hosts"):
        plan_from_text(json.dumps(value))


@pytest.mark.parametrize("kind", [ConfigurationDocument, WorkloadDocument, PlanDocument, ArchitectureDocument])
def test_every_field_is_described(kind: Any) -> None:
    """The HTTP reference is made of these texts."""
    definitions = kind.model_json_schema()
    schemas = [definitions, *definitions.get("$defs", {}).values()]
    for schema in schemas:
        for name, field in schema.get("properties", {}).items():
            assert field.get("description"), f"{schema['title']}.{name} has no description"
        if "properties" in schema:
            assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "serving", "prompt_tokens": 1000, "output_tokens": 200, "requests_per_second": 10},
        {"TTFT-ms": 500, "tpot_ms": 30, "precision": "fp8"},
        {"task": "Offline Inference", "sequence_length": 8192, "global_batch_sequences": 8},
        {"serving": {"input_len": 1}, "concurrency": 64, "p99_ttft_ms": 1},
    ],
)
def test_a_workload_of_serving_is_answered_in_one_sentence(fields: dict[str, object]) -> None:
    """It says how one of serving is written, instead of a line for each field that training has not."""
    with pytest.raises(InvalidDocument) as raised:
        read_document(WorkloadDocument, fields, what="workload")
    (problem,) = raised.value.problems
    assert "describes serving" in problem.problem
    assert "says kind: serving" in problem.remedy
    assert problem.field in fields


@pytest.mark.parametrize("name", ["output", "mode", "type", "batch_size", "latency_hiding", "tokens", "request"])
def test_a_misspelt_field_of_training_is_no_serving(name: str) -> None:
    """Fields that both kinds of workload could have are unknown, as before."""
    fields = {"sequence_length": 8192, "global_batch_sequences": 8, name: "training"}
    with pytest.raises(InvalidDocument) as raised:
        read_document(WorkloadDocument, fields, what="workload")
    assert [problem.problem for problem in raised.value.problems] == ["unknown field"]


@pytest.mark.parametrize("written", [4096, 4096.0])
def test_a_number_without_a_fraction_is_whole(written: float) -> None:
    """JSON has one kind of number, and schemas say that 8.0 is an integer."""
    body = {"sequence_length": written, "global_batch_sequences": 8}
    assert read_document(WorkloadDocument, body, what="workload").to_value().sequence_length == 4096
