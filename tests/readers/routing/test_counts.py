"""Counts of SGLang, TensorRT-LLM, EPLB and tables, made up by us."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from app.routing.reading import read_all, read_routing
from cluster_models.errors import InvalidInput
from tests.readers.routing.made import counts, found_in, npy, npz, read_of, safetensors, sent, trace


def test_dense_layers_are_left_out_and_numbers_kept() -> None:
    """Rows of zeros, null and empty rows are dense; the others keep their place."""
    rows = counts(4, 8)
    found = found_in({"logical_count": [[0] * 8, None, *rows.tolist(), []]})
    (workload,) = found.workloads
    assert workload.layers == (2, 3, 4, 5)
    assert (workload.loads == rows).all()
    assert found.notices == ()


def test_steps_are_summed() -> None:
    """The newer dumps hold a table for each step."""
    steps = np.stack([counts(3, 8, seed) for seed in range(5)])
    for tree in ({"logical_count": steps.tolist()}, {"logical_count": steps}, [step.tolist() for step in steps]):
        found = found_in(tree)
        assert (found.workloads[0].loads == steps.sum(axis=0)).all()
        assert [notice.code for notice in found.notices] == ["steps-summed"]


def test_steps_of_other_shapes_are_named() -> None:
    """A step that was cut off is refused by its number."""
    with pytest.raises(InvalidInput, match=r"logical_count\[1\]: must be counts of the same layers"):
        found_in({"logical_count": [counts(3, 8).tolist(), counts(2, 8).tolist()]})


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        (float("nan"), "logical_count[1][3]"),
        (-1, "logical_count[1][3]"),
        ("many", "logical_count[1][3]"),
        (float("inf"), "logical_count[1][3]"),
        ([], "logical_count[1][3]"),
    ],
)
def test_a_layer_with_a_bad_count_is_left_out(bad: object, place: str) -> None:
    """The notice names the count; the other layers stay."""
    rows = [list(row) for row in counts(3, 8).tolist()]
    rows[1][3] = bad
    found = found_in({"logical_count": rows})
    assert found.workloads[0].layers == (0, 2)
    assert [(notice.code, notice.place.path) for notice in found.notices] == [("layer-left-out", place)]


def test_ragged_rows_are_left_out() -> None:
    """The length that most rows have is that of a layer."""
    rows = counts(3, 8).tolist()
    rows[0] = rows[0][:7]
    found = found_in({"logical_count": rows})
    assert found.workloads[0].layers == (1, 2)
    assert "7 counts" in found.notices[0].sentence


def test_a_file_without_a_usable_layer_is_an_error() -> None:
    """It names file, place and remedy."""
    with pytest.raises(InvalidInput, match=r"made\.json: logical_count\[0\]\[0\]: is not a count: -1"):
        found_in({"logical_count": [[-1, 2], [-1, 3]]})
    with pytest.raises(InvalidInput, match="no count above 0"):
        found_in({"logical_count": [[0, 0], [0, 0]]})


def test_another_model_is_refused() -> None:
    """Counts of 8 experts are not those of a model of 16."""
    with pytest.raises(InvalidInput, match="has 8 experts in a layer, the model has 16"):
        found_in({"logical_count": counts(2, 8).tolist()}, experts=16)
    with pytest.raises(InvalidInput, match="one expert"):
        found_in({"logical_count": [[3], [4]]})


def test_shares_are_taken_with_a_notice() -> None:
    """Rows that sum to 1 are shares; single tokens counted as 1 are not."""
    shares = counts(3, 8) / counts(3, 8).sum(axis=1, keepdims=True)
    assert [notice.code for notice in found_in(shares.tolist()).notices] == ["shares"]
    assert found_in(np.eye(3).tolist()).notices == ()


def test_scientific_notation_is_a_count() -> None:
    """JSON writes large counts of floats with an exponent."""
    found = read_of("big.json", '{"logical_count": [[1.5e8, 2E8], [3e+8, 0.0]]}')
    assert found.workloads[0].loads.tolist() == [[1.5e8, 2e8], [3e8, 0]]


def test_rows_by_layer_number() -> None:
    """Mappings from layers, and from experts, as dictionaries are saved."""
    found = found_in({"layer_5": {"0": 4, "3": 1}, "layer_3": {"1": 2}})
    assert found.workloads[0].layers == (3, 5)
    assert found.workloads[0].loads.tolist() == [[0, 2, 0, 0], [4, 0, 0, 1]]


def test_arrays_of_eplb() -> None:
    """``weight`` as .npy, .npz, list of lists; the same counts each."""
    rows = counts(4, 16)
    for name, content in (
        ("weight.npy", npy(rows)),
        ("weight.npy", npy(np.asfortranarray(rows))),
        ("weight.npy.gz", gzip.compress(npy(rows))),
        ("weight.npz", npz(weight=rows)),
        ("weight.json", rows.tolist()),
        ("weight.json", {"weight": rows.tolist()}),
        ("weight.safetensors", safetensors({"weight": rows})),
    ):
        (workload,) = read_of(name, content).workloads
        assert (workload.loads == rows).all()
        assert workload.name == "weight"


def test_several_arrays_are_several_workloads() -> None:
    """Named by their keys; what belongs to one is not a workload."""
    found = read_of("run.npz", npz(prefill=counts(3, 8), decode=counts(3, 8, 1)))
    assert {workload.name for workload in found.workloads} == {"run:prefill", "run:decode"}
    pairs = np.ones((2, 8, 8))
    found = read_of("own.npz", npz(loads=counts(3, 8), transitions=pairs, layers=np.array([3, 4, 7])))
    (workload,) = found.workloads
    assert workload.layers == (3, 4, 7)
    assert set(workload.transitions) == {0, 1}


def test_own_documents_of_several_workloads() -> None:
    """A list of named workloads; one that cannot be used gets a notice."""
    tree = {
        "workloads": [
            {"name": "prefill", "loads": counts(3, 8).tolist(), "layers": [3, 4, 5], "tokens": 70},
            {"name": "decode", "loads": counts(3, 8).tolist(), "layers": [3, 4]},
        ]
    }
    found = found_in(tree)
    (workload,) = found.workloads
    assert (workload.name, workload.layers, workload.tokens) == ("made:prefill", (3, 4, 5), 70)
    assert [notice.code for notice in found.notices] == ["workload-left-out"]


def test_tensorrt_llm_ranks_and_iterations_are_summed() -> None:
    """Two ranks, two iterations, two layers; the folder names the workload, tokens are selections by top-k."""
    tables = [{f"{step}_{layer}": counts(1, 8, step + layer)[0] for step in (10, 11) for layer in (3, 4)}] * 2
    files = [sent(f"stats/rank{rank}.safetensors", safetensors(table)) for rank, table in enumerate(tables)]
    files.append(sent("stats/meta_info.json", {"num_experts": 8, "num_experts_per_token": 2}))
    found = read_all(files)
    (workload,) = found.workloads
    assert workload.name == "stats"
    assert workload.layers == (3, 4)
    expected = [2 * (counts(1, 8, 10 + layer)[0] + counts(1, 8, 11 + layer)[0]) for layer in (3, 4)]
    assert workload.loads.tolist() == [row.tolist() for row in expected]
    assert workload.tokens == workload.loads[0].sum() / 2


def test_tables_of_columns() -> None:
    """Named columns in any order, several workloads, repeated rows summed, bad lines named."""
    text = (
        "workload;layer_id;expert_id;count\nprefill;3;0;10\nprefill;3;1;5\nprefill;3;1;1e2\n"
        "decode;4;2;7\ndecode;x;2;7\ndecode;4;2;-7\n"
    )
    found = read_of("table.csv", text)
    by_name = {workload.name: workload for workload in found.workloads}
    assert by_name["table:prefill"].loads.tolist() == [[10, 105]]
    assert by_name["table:decode"].loads.tolist() == [[0, 0, 7]]
    assert [notice.place.path for notice in found.notices] == ["line 6", "line 7"]


def test_tables_of_transitions() -> None:
    """With ``next_expert`` counts are transitions; loads are what leaves and what reaches."""
    text = "layer,expert,next_expert,count\n0,0,1,4\n0,1,1,2\n1,1,0,6\n"
    (workload,) = read_of("pairs.csv", text).workloads
    assert workload.layers == (0, 1, 2)
    assert workload.loads.tolist() == [[4, 2], [0, 6], [6, 0]]
    assert workload.transitions[0].tolist() == [[0, 4], [0, 2]]


@pytest.mark.parametrize(
    "text",
    [
        "layer,expert_0,expert_1\n3,5,6\n5,7,8\n",
        "layer\texpert_0\texpert_1\r\n3\t5\t6\r\n5\t7\t8\r\n",
        "# counts\nlayer 0 1\n3 5 6\n5 7 8\n",
    ],
)
def test_matrices_with_a_header(text: str) -> None:
    """A column of layers, a column for each expert."""
    (workload,) = read_of("matrix.csv", text).workloads
    assert workload.layers == (3, 5)
    assert workload.loads.tolist() == [[5, 6], [7, 8]]


def test_matrices_without_a_header() -> None:
    """As numpy.savetxt writes them."""
    (workload,) = read_of("matrix.csv", "1.0e+01,2\n3,4\n").workloads
    assert workload.loads.tolist() == [[10, 2], [3, 4]]


def test_a_trace_is_told_from_counts_of_steps() -> None:
    """Bare arrays of three dimensions: ids are distinct and small, counts of a step sum alike in each layer."""
    ids = trace(20, 4, 16, 3)
    assert found_in(ids.tolist()).workloads[0].tokens == 20
    wide = trace(20, 3, 512, 22).astype(np.int16)
    assert read_of("routed.npy", npy(wide)).workloads[0].tokens == 20
    assert read_of("routed.npz", npz(routed_experts=wide)).workloads[0].tokens == 20
    random = np.random.default_rng(0)
    steps = np.stack([[np.bincount(random.integers(0, 8, 40), minlength=8) for _ in range(4)] for _ in range(6)])
    assert found_in(steps.tolist()).workloads[0].loads.sum() == 6 * 4 * 40


def test_names_in_an_upload_differ() -> None:
    """Two files of one name are numbered; a file that cannot be used gets a notice."""
    rows = counts(2, 8).tolist()
    found = read_all([sent("a.json", rows), sent("a.json", rows), sent("b.json", {"other": 1})])
    assert [workload.name for workload in found.workloads] == ["a", "a (2)"]
    assert [(notice.code, notice.place.file) for notice in found.notices] == [("file-left-out", "b.json")]


def test_maps_alone_are_no_workloads() -> None:
    """Who asks for workloads is told that a map holds none."""
    with pytest.raises(InvalidInput, match="where experts lie"):
        read_routing([sent("map.json", {"physical_to_logical_map": [[0, 1, 2, 0]]})])


def test_maps_beside_counts() -> None:
    """EPLB's arrays in one file: what went in and what came out; a map that is none gets a notice."""
    rows, placed = counts(2, 4), np.array([[0, 1, 2, 3, 0, 1], [3, 2, 1, 0, 2, 3]])
    found = read_of("eplb.npz", npz(weight=rows, phy2log=placed, logcnt=np.ones((2, 4))))
    assert len(found.workloads) == 1
    assert found.maps[0].slots.tolist() == placed.tolist()
    found = found_in({"logical_count": rows.tolist(), "physical_to_logical_map": [[0, -1]]})
    assert [notice.code for notice in found.notices] == ["map-left-out"]


def test_a_file_holds_so_many_workloads() -> None:
    """A mapping of many small tables is something else, in JSON and in columns."""
    with pytest.raises(InvalidInput, match="holds 300 workloads, more than 256"):
        found_in({f"n{index}": [[1, 2], [3, 4]] for index in range(300)})
    rows = "".join(f"n{index},0,{expert},1\n" for index in range(300) for expert in range(2))
    with pytest.raises(InvalidInput, match="holds 300 workloads, more than 256"):
        read_of("many.csv", "workload,layer,expert,count\n" + rows)


def test_a_row_of_another_model_among_iterations() -> None:
    """The length that most rows have is that of a layer, wherever the odd one stands."""
    found = found_in({"1_3": [1, 2], "2_3": [1, 2, 3, 4], "3_3": [1, 2, 3, 5]})
    assert found.workloads[0].loads.tolist() == [[2, 4, 6, 9]]
    assert [notice.place.path for notice in found.notices] == ["[1_3]"]
