"""The reader of measured runs: what it understands, and how it names what it does not."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.reading import problems_of
from app.documents.training_runs import COLUMNS, read_training_runs
from cluster_models.errors import InvalidInput
from cluster_models.training.framework_choices import CudaGraphs
from cluster_models.training.frameworks import framework
from cluster_models.training.workload import Recompute, Sharding
from cluster_models.units import GBIT, GIB
from solver.runs import predict_run
from tests.app.calibration_bodies import HEAD, LINES

LINE = LINES[3].format(step=12.5)


def one_wrong(text: str) -> str:
    """The sentence of the only problem of a text."""
    with pytest.raises(InvalidInput) as caught:
        read_training_runs(text)
    (problem,) = problems_of(caught.value)
    return str(problem)


def test_a_line_becomes_a_run() -> None:
    """Degrees, sharding, network, step and memory are those of the cells; the rest is the default."""
    head, line = HEAD.rstrip() + ",mem_gib_per_gpu,sweep_id\n", LINE.rstrip() + ",61.5,sweep\n"
    measured = read_training_runs(head + line)
    (run,) = measured.runs
    assert measured.groups == ("sweep",)
    assert str(run.configuration.degrees) == "tp2 pp2 dp4"
    assert run.configuration.sharding is Sharding.OPTIMIZER
    assert run.configuration.recompute is Recompute.FULL
    assert run.network_bytes_per_s == 400 * GBIT
    assert (run.step_s, run.peak_memory_bytes) == (12.5, 61.5 * GIB)
    assert run.architecture.name == "llama-3-8b"


def test_an_offloaded_share_is_read_and_priced() -> None:
    """In percent of the optimizer states; what is more than all of them is refused."""
    head, line = HEAD.rstrip() + ",offload_percent\n", LINE.rstrip()
    whole, none = (read_training_runs(f"{head}{line},{cell}\n").runs[0] for cell in ("100", ""))
    assert (whole.configuration.optimizer_offload, none.configuration.optimizer_offload) == (100, 0)
    assert predict_run(whole).optimizer_s > 2.0 * predict_run(none).optimizer_s
    assert "must be at most 100" in one_wrong(f"{head}{line},120\n")


def test_settings_of_the_framework_are_taken() -> None:
    """A switch, a number format and a choice; an empty cell leaves what the generation does."""
    head = HEAD.rstrip() + ",overlap_tensor,gradient_precision,cuda_graphs,expert_dispatch\n"
    (run,) = read_training_runs(head + LINE.rstrip() + ",1,bf16,full,\n").runs
    own = framework(run.workload.framework.name)
    assert run.workload.framework == replace(
        own, overlap_tensor=True, gradient_bytes=2.0, cuda_graphs=CudaGraphs.FULL
    )


def test_a_step_faster_than_the_data_sheet_is_refused() -> None:
    """Milliseconds taken for seconds would be petaflops; the message says how many."""
    sentence = one_wrong(HEAD + LINES[3].format(step=0.0125))
    assert "column iter_time_s: would be" in sentence
    assert "peak is 989" in sentence


def test_a_peak_beyond_the_gpu_is_refused() -> None:
    """MiB taken for GiB would be more than there is."""
    head, line = HEAD.rstrip() + ",mem_gib_per_gpu\n", LINE.rstrip()
    assert "column mem_gib_per_gpu: is more than the 79.6 GiB" in one_wrong(f"{head}{line},71234\n")


def test_a_schedule_too_long_to_simulate_is_refused_at_once() -> None:
    """Four stages of 131,072 micro-batches and eight chunks each would take seconds, many such lines minutes."""
    head = HEAD.rstrip() + ",vpp\n"
    line = LINES[4].format(step=1e6).replace(",1,64,", ",1,131072,").rstrip() + ",8\n"
    assert "passes of micro-batches" in one_wrong(head + line)


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_other_ends_of_lines_are_read(ending: str) -> None:
    """Tables saved on Windows and by old spreadsheets hold the same runs."""
    text = HEAD + LINE
    assert read_training_runs(text.replace("\n", ending)) == read_training_runs(text)


def test_a_model_may_be_given_by_its_sizes() -> None:
    """Sizes make an architecture; experts, too."""
    head = HEAD.replace("model,", "model_name,layers,hidden,heads,vocab,gated_mlp,experts,topk,moe_ffn_hidden,")
    (run,) = read_training_runs(head + LINE.replace("llama-3-8b", "ours,24,2048,16,50304,1,8,2,1024")).runs
    assert run.architecture.experts is not None
    assert (run.architecture.name, run.architecture.layers, run.architecture.experts.count) == ("ours", 24, 8)


def cut_experts(ep: int, etp: int, width: int = 1024) -> str:
    """A run of 16 GPUs in two stages whose 8 experts are shared out and cut."""
    head = HEAD.replace(
        "model,", "model_name,layers,hidden,heads,vocab,gated_mlp,experts,topk,moe_ffn_hidden,ep,etp,"
    )
    sizes = f"ours,24,2048,16,50304,1,8,2,{width},{ep},{etp}"
    return head + LINE.replace("llama-3-8b", sizes)


def test_experts_may_be_cut() -> None:
    """The column of the expert tensor size, and what it contradicts."""
    (run,) = read_training_runs(cut_experts(4, 2)).runs
    assert run.configuration.degrees.expert_block == 8
    assert "column etp: ep x etp = 16 does not divide the 8 ranks" in one_wrong(cut_experts(8, 2))
    assert "column etp: does not divide the width" in one_wrong(cut_experts(1, 4, width=1026))
    assert "column etp: is more than the 8 GPUs" in one_wrong(cut_experts(1, 16))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("llama-3-8b", "lama-3-8b", "line 2, column model: is not in the catalogue"),
        ("llama-3-8b", "", "line 2, column model: is missing"),
        ("H100", "H1000", "line 2, column gpu: unknown GPU kind"),
        ("megatron-core-0.12", "megatron-core-12", "did you mean 'megatron-core-0.12'?"),
        (",16,4096,", ",18,4096,", "line 2, column num_gpus: does not divide by tp x pp x cp = 4"),
        (",16,4096,", ",16,4096.5,", "line 2, column seq_len: must be a whole number"),
        (",16,4096,", ",16,nan,", "line 2, column seq_len: is not a number"),
        (",64,12.5", ",65,12.5", "line 2, column global_batch: does not divide by 4 data ranks x 1 sequences"),
        (",12.5,", ",-1,", "line 2, column iter_time_s: must be greater than 0"),
        (",12.5,", ",,", "line 2, column iter_time_s: is missing; seconds of one step, after warm-up"),
        (",1,full", ",,full", "line 2, column zero: is missing with 4 data ranks"),
        (",1,full", ",7,full", "line 2, column zero: must be one of 0, 1, 2, 3, fsdp, dist-opt"),
        (",full,400", ",full,", "line 2, column network_gbits_per_gpu: is missing: 16 GPUs reach beyond 8"),
        (",full,400", ",full,400,9", "line 2: has 15 cells, the head 14"),
        (",full,400", ',"full,400', "is not CSV"),
    ],
)
def test_what_is_wrong_is_named_by_line_and_column(old: str, new: str, expected: str) -> None:
    """One wrong cell makes one sentence with its place."""
    assert expected in one_wrong(HEAD + LINE.replace(old, new))


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("", "runs: is empty"),
        (HEAD.replace(",", ";"), "separate columns by commas"),
        (HEAD.replace("tp,", "tpp,"), "line 1, column 10: unknown column (got 'tpp'); did you mean 'tp'?"),
        (HEAD.replace("iter_time_s,", ""), "line 1: the column is missing (got 'iter_time_s')"),
        (HEAD.replace("id,", "tp,", 1), "the column is there twice"),
        (HEAD, "holds no run"),
    ],
)
def test_a_head_that_is_wrong_is_refused(head: str, expected: str) -> None:
    """Unknown, missing and repeated columns are errors: a typing error must not be ignored."""
    assert expected in one_wrong(head)


def test_every_wrong_line_is_reported() -> None:
    """Two wrong lines make two problems, each with its own number; empty lines count as lines."""
    text = HEAD + LINE + "\n" + LINE.replace("12.5", "soon") + LINE.replace("H100", "")
    with pytest.raises(InvalidInput) as caught:
        read_training_runs(text)
    assert [problem.field for problem in problems_of(caught.value)] == [
        "line 4, column iter_time_s",
        "line 5, column gpu",
    ]


def problems(text: str) -> list[str]:
    """The sentences that refuse a table."""
    with pytest.raises(InvalidInput) as caught:
        read_training_runs(text)
    return [str(problem) for problem in problems_of(caught.value)]


def test_the_same_mistake_in_many_lines_is_one_problem() -> None:
    """The lines are named in spans; another mistake is another problem."""
    wrong = LINE.replace("megatron-core-0.12", "inhouse")
    text = HEAD + 60 * wrong + LINE + wrong + LINE.replace("H100", "H1000")
    unknown, kind = problems(text)
    assert unknown.startswith(
        "lines 2-61, 63, column framework: is not a shipped generation (got 'inhouse'); describe it in a file"
    )
    assert "or use one of automodel-2025" in unknown
    assert kind.startswith("line 64, column gpu: unknown GPU kind (got 'H1000')")


def test_mistakes_that_differ_in_figures_are_one_problem() -> None:
    """Sixty steps in milliseconds make one sentence: that of the first line, with some of the values."""
    text = HEAD + "".join(LINES[3].format(step=f"0.01{step}") for step in range(10, 70))
    (sentence,) = problems(text)
    assert sentence.startswith("lines 2-61, column iter_time_s: would be ")
    assert ", in line 2 (got ['0.0110', '0.0111', '0.0112', " in sentence
    assert "'...'])" in sentence
    two = problems(HEAD + LINE.replace(",16,4096,", ",18,4096,") + LINE.replace(",16,4096,", ",19,4096,"))
    assert two == [
        "lines 2-3, column num_gpus: does not divide by tp x pp x cp = 4 (got ['18', '19'])",
    ]


def test_mistakes_with_other_remedies_stay_apart() -> None:
    """A correction of one line would mislead the other."""
    first, second = problems(HEAD + LINE.replace("H100", "H1000") + LINE.replace("H100", "MI30X"))
    assert first.startswith("line 2, column gpu")
    assert second.startswith("line 3, column gpu")


def test_lines_far_apart_are_counted() -> None:
    """Nobody reads the numbers of 30 lines."""
    text = HEAD + 30 * (LINE + LINE.replace("12.5", "soon"))
    (sentence,) = problems(text)
    assert sentence.startswith("lines 3, 5, 7, 9, 11, 13 and 24 more, column iter_time_s: is not a number")


def test_what_contradicts_itself_within_many_lines_is_one_problem() -> None:
    """Also what is found by the values of the domain, under their own path."""
    (found,) = problems(HEAD.rstrip() + ",vpp\n" + 3 * (LINE.rstrip() + ",40\n"))
    assert found.startswith("lines 2-4: degrees: makes 80 pipeline chunks of 32 layers")


CELL = st.one_of(
    st.sampled_from(
        ["", "0", "1", "8", "-1", "1e99", "nan", "full", "fsdp", "H100", "llama-3-8b", "0.5", '"', "\n"]
    ),
    st.text(max_size=6),
)


@given(st.lists(st.sampled_from(COLUMNS), max_size=20), st.lists(st.lists(CELL, max_size=20), max_size=3))
def test_garbage_is_refused_in_words(head: list[str], rows: list[list[str]]) -> None:
    """Whatever a table holds, the reader gives runs or says what is wrong."""
    text = "\n".join(",".join(cells) for cells in [head, *rows])
    with suppress(InvalidInput):
        assert read_training_runs(text).runs


@given(st.sampled_from(range(14)), CELL)
def test_one_garbled_cell_is_refused_in_words(column: int, cell: str) -> None:
    """A good line with one cell replaced gives a run or a sentence."""
    cells = LINE.strip().split(",")
    cells[column] = cell
    with suppress(InvalidInput):
        assert len(read_training_runs(HEAD + ",".join(cells)).runs) == 1
