"""The form of a new plan: its texts, and where its problems are shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from starlette.datastructures import FormData

from app.documents.framework import settings_of
from app.documents.reading import FieldProblem, problems_of, read_document
from app.documents.workload import WorkloadDocument
from app.web.planning.form import at_fields, blank, filled, open_parts, options_data, typed, workload_data
from app.web.planning.plan_request import plan_request
from cluster_models.errors import InvalidInput
from cluster_models.training.framework_choices import AttentionKernels, CudaGraphs, ExpertDispatch, Float8Scaling
from cluster_models.training.frameworks import frameworks
from cluster_models.training.mixed_lengths import MixedLengths, Packing
from cluster_models.training.optimizer_states import MasterFormat, MomentFormat, OptimizerStates
from cluster_models.training.workload import LinkBandwidth, TrainingWorkload


def _typed(**fields: object) -> dict[str, object]:
    return {**blank(time_limit_s=60), "sequence_length": "2048", "global_batch_sequences": "8", **fields}


def test_the_form_as_it_comes_spells_the_default_workload() -> None:
    """Nothing but the two sizes typed gives the defaults of the domain, so the form changes no plan silently."""
    document = read_document(WorkloadDocument, workload_data(_typed()), what="workload")
    assert document.to_value() == TrainingWorkload(sequence_length=2048, global_batch=8)


@pytest.mark.parametrize("chosen", [False, True])
def test_the_form_says_whose_turn_it_is(chosen: bool) -> None:
    """A plan in the background lets all others go first."""
    typed_in = _typed(cluster="c", model="llama-3-8b", background="true" if chosen else "")
    assert plan_request(typed_in).background is chosen


def test_a_workload_survives_the_form() -> None:
    """A workload document put into the form reads back as the same workload."""
    workload = TrainingWorkload(
        sequence_length=4096,
        global_batch=64,
        lengths=MixedLengths.of({300: 9.0, 2000: 1.0}, Packing.PADDED),
        optimizer_states=OptimizerStates(MomentFormat.BF16, MomentFormat.FP16, MasterFormat.REMAINDER),
        pinned={"tensor": 8},
        forbidden={"context": (2, 4)},
        max_gpus=96,
        link_bandwidth=LinkBandwidth.PESSIMISTIC,
        avoid_nodes=("n1", "n2"),
        memory_headroom=0.1,
        survive={"node": 1, "leaf": 2},
        memory_checkpoint=True,
        framework=replace(
            frameworks()["megatron-core-0.12"],
            sequence_parallel=False,
            gradient_bytes=2.0,
            attention_kernels=AttentionKernels.FLASH_2,
            fused_loss=True,
            overlap_gradients=False,
            overlap_parameters=False,
            overlap_tensor=True,
            cuda_graphs=CudaGraphs.FULL,
            expert_dispatch=ExpertDispatch.HYBRIDEP,
            expert_overlap=True,
            untrained_router=True,
            float8_scaling=Float8Scaling.ROW,
            sharding_ranks=8,
        ),
    )
    settings = settings_of(workload.framework).model_dump()
    assert [name for name, value in settings.items() if value is None] == ["sharded_exchange", "stream_tokens"], (
        "of Transformers"
    )
    written = WorkloadDocument.from_value(workload).model_dump(mode="json")
    read = workload_data(filled(blank(time_limit_s=60), written))
    assert read_document(WorkloadDocument, read, what="workload").to_value() == workload


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("sequence_length", "long", "whole number"),
        ("sequence_length", "1.5", "whole number"),
        ("global_batch_sequences", "0", "at least 1"),
        ("global_batch_sequences", "", "missing"),
        ("memory_headroom_fraction", "1.2", "less than 1"),
        ("recompute", (), "give at least one"),
        ("pinned.tensor", "-8", "at least 1"),
        ("forbidden.context", "2, x", "whole number"),
        ("max_gpus", "9" * 60, "whole number"),
        ("framework_settings.cuda_graphs", "some", "none"),
    ],
)
def test_problems_stand_at_the_field_they_concern(field: str, text: object, words: str) -> None:
    """A refusal of the documents comes back at the field that was typed wrong."""
    with pytest.raises(InvalidInput) as refused:
        read_document(WorkloadDocument, workload_data(_typed(**{field: text})), what="workload")
    shown = at_fields(problems_of(refused.value))
    assert [problem.anchor for problem in shown] == [field]
    assert words in shown[0].text


def test_problems_inside_a_pasted_cluster_name_their_place() -> None:
    """The box of the cluster is long: the path within it belongs to the message."""
    (shown,) = at_fields([FieldProblem("cluster.nodes[3].gpu_kind", "H99", "unknown GPU kind")])
    assert shown.anchor == "cluster_text"
    assert "nodes[3].gpu_kind" in shown.text


def test_a_problem_of_no_field_is_kept() -> None:
    """It is shown for the form as a whole."""
    (shown,) = at_fields([FieldProblem("galaxy", 1, "is too far")])
    assert shown.anchor == ""
    assert "too far" in shown.text


def test_pinned_degrees_keep_their_part_of_the_form_open() -> None:
    """Nobody has to look for a field that is filled or wrong."""
    assert not open_parts(blank(time_limit_s=60), ())
    assert open_parts(_typed(**{"pinned.tensor": "8"}), ()) == {"degrees"}
    assert open_parts(_typed(), at_fields([FieldProblem("workload.forbidden.context", [2], "is odd")])) == {
        "degrees"
    }


def test_empty_search_options_are_left_to_the_service() -> None:
    """A cleared field sends nothing rather than an empty text."""
    assert options_data(_typed(time_limit_s="", effort="2")) == {"effort": 2}


def test_a_form_about_serving_is_answered_in_one_sentence() -> None:
    """Fields that the form has not are ignored, except where they show that something else was meant."""
    sent = FormData({"sequence_length": "8", "prompt_tokens": "1000", "ttft_ms": "500", "unheard_of": "1"})
    _, (shown,) = typed(sent, blank(time_limit_s=60))
    assert "describes serving, and is read as a workload of training (prompt_tokens, ttft_ms)" in shown.text
    assert typed(FormData({"sequence_length": "8"}), blank(time_limit_s=60))[1] == ()
