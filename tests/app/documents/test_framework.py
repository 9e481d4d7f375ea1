"""Descriptions of frameworks: they say everything that the model knows, and nothing that cannot be."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.framework import (
    FACTS,
    FrameworkDescription,
    FrameworkSettings,
    WireFact,
    described_frameworks,
    description_text,
    starting_text,
)
from app.documents.reading import parse_text, problems_of, read_document
from app.documents.workload import WorkloadDocument
from app.serialization import jsonable, load
from cluster_models.errors import InvalidInput
from cluster_models.training.framework_choices import CudaGraphs
from cluster_models.training.framework_facts import Fact
from cluster_models.training.frameworks import ABOUT, Framework, framework, frameworks
from cluster_models.training.workload import TrainingWorkload
from tests.app.calibration_bodies import calibration_document
from tests.app.framework_bodies import DESCRIBED, described
from tests.plans import small_workload


def values(fact: WireFact) -> st.SearchStrategy[Any]:
    """Values that a description may state for a fact."""
    if fact.is_list:
        return st.lists(st.sampled_from(fact.choices), min_size=1, unique=True)
    if fact.choices:
        return st.sampled_from(fact.choices)
    if fact.kind is bool:
        return st.booleans()
    return st.integers(0, 10**12) if fact.kind is int else st.floats(0, min(fact.fact.most, 1e15))


DESCRIPTIONS = st.fixed_dictionaries(
    {"name": st.sampled_from(["ours", "fork-7.1", "2.0"]), "like": st.sampled_from(sorted(frameworks()))},
    optional={
        "title": st.just("Unser Fork: mit Umläuten"),
        "released": st.just("2026-03"),
        "source": st.just("notes\nof two lines"),
    }
    | {fact.name: values(fact) for fact in FACTS},
)


def read(data: dict[str, Any]) -> FrameworkDescription:
    """The document of a mapping."""
    return read_document(FrameworkDescription, data, what="framework")


def refused(data: dict[str, Any]) -> list[str]:
    """The sentences that refuse a description."""
    with pytest.raises(InvalidInput) as caught:
        read(data).to_framework()
    return [str(problem) for problem in problems_of(caught.value)]


@given(DESCRIPTIONS)
def test_a_description_survives_the_domain_and_its_file(data: dict[str, Any]) -> None:
    """Stated facts come back with all others; the whole makes the same framework again, as a file too."""
    stated = read(data).to_framework()
    whole = FrameworkDescription.from_framework(stated)
    written = whole.model_dump(mode="json")
    assert {name: written[name] for name in data} == data
    assert None not in written.values()
    assert whole.to_framework() == stated
    assert read(parse_text(description_text(whole), what="framework")) == whole
    assert load(Framework, jsonable(stated)) == stated


@pytest.mark.parametrize("name", sorted(frameworks()))
def test_every_shipped_generation_is_a_file_to_start_from(name: str) -> None:
    """Read as it is printed it differs from the generation in name and title only."""
    own = read(parse_text(starting_text(framework(name)), what="framework")).to_framework()
    assert own.like == name
    assert replace(own, name=name, title=framework(name).title, like="") == framework(name)


def test_every_field_of_a_framework_can_be_stated() -> None:
    """A field is a fact of the description, or says which framework it is; stating a fact changes that alone."""
    assert {fact.field for fact in FACTS} | ABOUT == {field.name for field in fields(Framework)}
    base = read({"name": "ours", "like": "nemo-25.04"}).to_framework()
    for fact in FACTS:
        now = fact.stated(base)
        others = (
            ([each] for each in fact.choices)
            if fact.is_list
            else fact.choices or ((not now) if fact.kind is bool else now + 1,)
        )
        other = next(each for each in others if each != now)
        stated = read({"name": "ours", "like": "nemo-25.04", fact.name: other}).to_framework()
        assert stated == replace(base, **{fact.field: getattr(stated, fact.field)})
        assert stated != base


def test_every_field_says_what_it_means() -> None:
    """Beside the field, in a sentence: pages, files and the API's description take it from there."""
    hints = get_type_hints(Framework, include_extras=True)
    silent = [
        name
        for name, hint in hints.items()
        if not any(
            isinstance(note, Fact) and note.meaning.endswith(".") for note in getattr(hint, "__metadata__", ())
        )
    ]
    assert silent == [], "write it as Annotated[..., Fact('...')] in cluster_models/training/frameworks.py"


def test_settings_keep_their_names() -> None:
    """Stored workloads and tables of runs name them so."""
    assert set(FrameworkSettings.model_fields) >= {
        "sequence_parallel",
        "gradient_precision",
        "attention_kernels",
        "fused_loss",
        "overlap_gradients",
        "overlap_parameters",
        "overlap_tensor",
        "cuda_graphs",
        "expert_dispatch",
        "expert_overlap",
    }


def test_what_is_left_out_is_as_in_the_generation_it_is_like() -> None:
    """Title and month have defaults too; parameters are those of the generation."""
    own = read({"name": "ours", "like": "torchtitan-2025"}).to_framework()
    like = framework("torchtitan-2025")
    assert (own.title, own.released, own.source) == ("ours", like.released, "")
    assert replace(own, name=like.name, title=like.title, source=like.source, like="") == like
    assert own.generation == like.generation == like.name


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": "nemo-25.04"}, "framework.name: is the name of a shipped generation (got 'nemo-25.04'); give"),
        ({"name": "a b"}, "name: is not a name of the kind that belongs there"),
        ({"like": "nemo-25.05"}, "framework.like: is not a shipped framework generation (got 'nemo-25.05'); did"),
        ({"like": "ours"}, "framework.like: is not a shipped framework generation"),
        ({"gradient_precision": "fp8"}, "gradient_precision: must be one of fp32, bf16 (got 'fp8')"),
        ({"gradient_bytes": 2.0}, "gradient_bytes: unknown field"),
        ({"overlap_tensor": 1}, "overlap_tensor: must be true or false"),
        ({"logit_bytes": -1.0}, "logit_bytes: must be at least 0.0 (got -1.0)"),
        ({"logit_bytes": 800}, "logit_bytes: must be at most 64.0 (got 800)"),
        ({"cuda_graph": "full"}, "cuda_graph: unknown field (got 'full'); did you mean 'cuda_graphs'?"),
        ({"released": "March 2026"}, "released: is not a month; write it like 2026-03 (got 'March 2026')"),
        ({"released": "2026-13"}, "released: is not a month"),
        ({"measured_as": "nemo-25.02"}, "measured_as: unknown field"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], sentence: str) -> None:
    """One sentence with field, value and what to do."""
    (found,) = refused(DESCRIBED | changes)
    assert found.startswith(sentence)


def test_a_name_is_described_once() -> None:
    """Two descriptions of one name would leave open which is meant."""
    with pytest.raises(InvalidInput, match=r"frameworks\[1\].name: is described twice \(got 'ours'\)"):
        described_frameworks([read(DESCRIBED), read(DESCRIBED)])


def test_a_workload_carries_its_framework() -> None:
    """In full, with the run's settings in place: no other document is needed to plan it again."""
    body = {"sequence_length": 1024, "global_batch_sequences": 8, "framework": DESCRIBED}
    body["framework_settings"] = {"gradient_precision": "fp32", "cuda_graphs": "full"}
    workload = read_document(WorkloadDocument, body, what="workload").to_value()
    assert workload.framework == replace(described(), gradient_bytes=4.0, cuda_graphs=CudaGraphs.FULL)
    written = WorkloadDocument.from_value(workload)
    assert isinstance(written.framework, FrameworkDescription)
    assert WorkloadDocument.model_validate_json(written.model_dump_json()).to_value() == workload
    shipped = WorkloadDocument.from_value(small_workload())
    assert shipped.framework == small_workload().framework.name


def test_a_workload_may_name_what_is_described_elsewhere() -> None:
    """The name alone is known to whoever brings the description; to others it is unknown."""
    document = WorkloadDocument(sequence_length=1, global_batch_sequences=1, framework="ours")
    assert document.to_value({"ours": described()}).framework == described()
    with pytest.raises(InvalidInput, match=r"framework: is not a shipped generation \(got 'ours'\); describe it"):
        document.to_value()


def test_problems_of_a_workload_name_the_place_in_the_description() -> None:
    """The path is that of the user's file."""
    body = {"sequence_length": 1, "global_batch_sequences": 1, "framework": DESCRIBED | {"dropouts": True}}
    with pytest.raises(InvalidInput, match=r"framework.dropouts: unknown field .*did you mean 'dropout'"):
        read_document(WorkloadDocument, body, what="workload")
    with pytest.raises(InvalidInput, match="framework: must be a mapping of fields, not a number"):
        read_document(WorkloadDocument, body | {"framework": 7}, what="workload")


def test_a_calibration_carries_descriptions() -> None:
    """Its parameters may be of a described framework; the content's hash covers the description."""
    plain = calibration_document()
    table = {"ours": {"kernel_share": {"value": 0.8, "low": 0.7, "high": 0.9, "steps": 5}}}
    data = plain.model_dump(mode="json") | {"frameworks": table}
    with pytest.raises(InvalidInput, match=r"frameworks.ours: is not a shipped generation .*under descriptions"):
        type(plain).model_validate(data).to_fitted()
    own, other = (
        type(plain).model_validate(data | {"descriptions": [DESCRIBED | {"dropout": dropout}]}).to_fitted()
        for dropout in (True, False)
    )
    assert own.described == {"ours": described()}
    assert own.source != other.source
    with pytest.raises(InvalidInput, match=r"descriptions\[0\].like: is not a shipped"):
        type(plain).model_validate(data | {"descriptions": [DESCRIBED | {"like": "none"}]}).to_fitted()


def test_workloads_stored_before_there_were_descriptions_are_read() -> None:
    """Their framework says nothing of being like another: it is a shipped one."""
    stored = jsonable(small_workload())
    del stored["framework"]["like"]
    assert load(TrainingWorkload, stored) == small_workload()


def test_calibrations_without_descriptions_keep_their_label() -> None:
    """Plans made before there were any name the calibration by this hash."""
    assert calibration_document().to_fitted().source == "slow c433b19cfe474fc9"
