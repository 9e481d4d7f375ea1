"""Routing statistics that others measured; the figures were read off the files by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pytest

from app.routing.reading import RoutingRead, files_at, loads_of, read_all
from cluster_models.errors import InvalidInput
from tests.readers.real_files import DATA

ROUTING: Final = DATA / "moe_routing"


def real(path: str) -> Path:
    """A file or folder of public data; the test is skipped where it is absent."""
    found = ROUTING / path
    if not found.exists():
        pytest.skip(f"{path} is not here")
    return found


def read_real(path: str) -> RoutingRead:
    """Contents of the file."""
    return read_all(files_at(real(path)))


@pytest.mark.parametrize(
    ("name", "row", "expert", "count"),
    [
        ("prefill_in1024", 0, 0, 391_534),
        ("prefill_in1024", 57, 255, 63_608),
        ("decode_in2000out100", 0, 3, 522_026),
    ],
)
def test_sglang_counts_keep_layer_numbers_behind_three_dense_layers(
    name: str, row: int, expert: int, count: float
) -> None:
    """61 rows of which 3 are zeros are layers 3 to 60."""
    found = read_real(f"deepseek_r1_sglang_lmsys/{name}.json")
    (workload,) = found.workloads
    assert workload.name == name
    assert workload.layers == tuple(range(3, 61))
    assert workload.experts == 256
    assert workload.loads[row, expert] == count
    assert found.notices == ()


def test_prefill_and_decode_of_deepseek_differ() -> None:
    """The loads of prefill and decode correlate by 0.66, two prefills by 0.98."""
    prefill, decode, other = loads_of(
        *(
            real(f"deepseek_r1_sglang_lmsys/{name}.json")
            for name in ("prefill_in1024", "decode_in1000out1000", "prefill_in2048")
        )
    )
    for one, correlation in ((decode, 0.66), (other, 0.98)):
        of_layers = [np.corrcoef(*rows)[0, 1] for rows in zip(prefill.loads, one.loads, strict=True)]
        assert np.mean(of_layers) == pytest.approx(correlation, abs=0.005)


def test_token_traces_give_loads_transitions_and_coactivation() -> None:
    """333 tokens of HumanEval, 32 layers, 2 of 8 experts."""
    (workload,) = read_real("mixtral_token_traces/humaneval.json").workloads
    assert workload.tokens == 333
    assert (workload.loads.sum(axis=1) == 666).all()
    assert workload.loads[31].tolist() == [122, 45, 88, 104, 109, 52, 88, 58]
    assert workload.transitions[0][6, 2] == 23
    assert {table.sum() for table in workload.transitions.values()} == {333 * 4}
    assert workload.coactivation[5][0, 3] == workload.coactivation[5][3, 0] == 2


def test_counts_by_domain_are_a_workload_each() -> None:
    """OLMoE's layers 0, 7 and 15 with what passes between them; one domain has loads alone."""
    found = read_real("olmoe_allenai/olmoe_1b_7b_0924_expert_counts.json")
    by_name = {workload.name.partition(":")[2]: workload for workload in found.workloads}
    assert set(by_name) == {"arxiv", "book", "c4", "github", "tulu", "wikipedia"}
    assert by_name["arxiv"].layers == (0, 7, 15)
    assert by_name["arxiv"].tokens == 208_896
    assert by_name["arxiv"].loads[1, :3].tolist() == [17_487, 4_294, 115_620]
    assert by_name["arxiv"].transitions[1][0, :3].tolist() == [1_222, 176, 120]
    assert by_name["tulu"].loads[2, 63] == 17_920
    assert not by_name["tulu"].transitions


def test_popularity_is_taken_as_loads() -> None:
    """Fiddler's counts hold generated tokens too, so the number of input tokens is not theirs."""
    (workload,) = read_real(
        "mixtral_fiddler/mixtral_8x7b_instruct__expert_popularity_machine_learning.json"
    ).workloads
    assert workload.loads[31].tolist() == [992, 982, 1_113, 1_491, 1_033, 1_258, 1_358, 1_239]
    assert workload.tokens is None


def test_solved_placements_are_no_counts() -> None:
    """A table of expert and node is refused with the line that says so."""
    path = next(real("exflow_solutions").glob("*intra4*.csv"))
    with pytest.raises(InvalidInput, match=r"line 1: says where experts lie"):
        read_all(files_at(path))


def test_a_folder_is_read_as_one_upload() -> None:
    """Everything that can be used, and a notice for each file that cannot."""
    found = read_real("mixtral_fiddler")
    assert len(found.workloads) >= 2
    assert len({workload.name for workload in found.workloads}) == len(found.workloads)
