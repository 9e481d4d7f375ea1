"""A figure changed in a file is found before the file leaves: the promise that a read-back is for."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.exports.contract import ExportFile, check_files
from app.exports.launch_value import launch_of
from app.exports.megatron_layers import pipeline_layout
from app.exports.readback.megatron import rows_of_layout
from app.exports.readback.torchtitan import split_layers
from cluster_models.errors import InvalidConfiguration
from cluster_models.training.plan import Degrees, Plan
from tests.app.exports.mutations import Mutation, changed_figures, swapped_hosts
from tests.app.exports.plans import BREADTH_FIRST, PLANS, TRAINING, V_OF_STAGES, export
from tests.app.exports.test_formats import REFUSED
from tests.plans import small_configuration

FREE = re.compile(
    r"""^\#\ (?!For\ a\ model|node\ ) | exit\ \d | _PORT= | BASH_SOURCE | kill-on-bad-exit=2
    | cpus-per-task | less_layers | split\("\."\)\[1\] | --master[-_]port\ \d*1\ """,
    re.VERBOSE,
)
"""Lines whose figures may differ: comments, ports, exit codes, cores; what cuts the same stages in another way."""


def survivors(name: str, plan: Plan) -> list[Mutation]:
    """The changes of one format's files that its read-back does not see, and should."""
    files, launch = export(name).files(plan), launch_of(plan)
    missed = []
    for mutation in (*changed_figures(files), *swapped_hosts(files, launch.hosts)):
        if FREE.search(mutation.line) or (name == "report" and "data-says" not in mutation.line):
            continue
        try:
            check_files(export(name), mutation.files, launch)
        except InvalidConfiguration:
            continue
        missed.append(mutation)
    return missed


@pytest.mark.parametrize(
    "shape",
    [
        "uneven",
        "uneven virtual",
        "any stages",
        "whole model",
        "experts",
        "cut experts",
        "beside others",
        "shards",
        "one GPU",
    ],
)
@pytest.mark.parametrize("name", sorted({*TRAINING} - {"report"}))
def test_no_changed_figure_leaves(name: str, shape: str) -> None:
    """Every number and every host of every file, changed one at a time, is refused."""
    if (name, shape) not in REFUSED:
        assert [mutation[1:] for mutation in survivors(name, PLANS[shape])] == []


@pytest.mark.parametrize("plan", [V_OF_STAGES, BREADTH_FIRST])
def test_no_changed_figure_of_another_schedule_leaves(plan: Plan) -> None:
    """The same where stages lie on ranks in a V, or pass all micro-batches one after the other."""
    assert [mutation[1:] for mutation in survivors("torchtitan", plan)] == []


@pytest.mark.parametrize("shape", ["uneven virtual", "experts", "cut experts", "beside others"])
def test_no_changed_cell_of_the_page_leaves(shape: str) -> None:
    """The same for the marked cells of the printed page."""
    page, launch = export("report").files(PLANS[shape])[0], launch_of(PLANS[shape])
    cells = list(re.finditer(r'data-says="\w+">([^<]*)<', page.text))
    assert len(cells) > 15
    for cell in cells:
        text = page.text[: cell.start(1)] + cell[1] + "1" + page.text[cell.end(1) :]
        with pytest.raises(InvalidConfiguration):
            check_files(export("report"), (replace(page, text=text),), launch)


@pytest.mark.parametrize("name", sorted(TRAINING))
def test_files_that_are_cut_short_never_leave(name: str) -> None:
    """A read-back refuses half a file or an empty one in our own words, and never breaks."""
    shape = "replicas"
    files, launch = export(name).files(PLANS[shape]), launch_of(PLANS[shape])
    for index, file in enumerate(files):
        for length in (0, len(file.text) // 3, len(file.text) // 2):
            cut = (*files[:index], replace(file, text=file.text[:length]), *files[index + 1 :])
            with pytest.raises(InvalidConfiguration):
                check_files(export(name), cut, launch)
    with pytest.raises(InvalidConfiguration):
        check_files(export(name), (), launch)


@given(st.sampled_from(sorted(TRAINING)), st.text(max_size=300))
def test_any_text_is_refused_in_our_words(name: str, text: str) -> None:
    """Whatever stands in a file, the only error is ours."""
    files, launch = export(name).files(PLANS["replicas"]), launch_of(PLANS["replicas"])
    spoilt = (ExportFile(files[0].name, text), *files[1:])
    with pytest.raises(InvalidConfiguration):
        check_files(export(name), spoilt, launch)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2), st.data())
def test_layouts_are_read_as_they_are_meant(
    pipeline: int, virtual: int, predicted: int, data: st.DataObject
) -> None:
    """Our grammar reads every layout that we write back into its rows."""
    row = st.lists(st.integers(0, 12), min_size=pipeline, max_size=pipeline).map(tuple)
    layers = data.draw(st.lists(row, min_size=virtual, max_size=virtual).map(tuple))
    configuration = replace(
        small_configuration(), degrees=Degrees(pipeline=pipeline, virtual_pipeline=virtual), stage_layers=layers
    )
    assert rows_of_layout(pipeline_layout(configuration, predicted), pipeline) == layers


@pytest.mark.parametrize(
    ("layout", "rows"),
    [
        ("Et*7|t*8|t*8|t*7,L", ((7, 8, 8, 7),)),
        ("Ettt|(tt|)*2t,mL", ((3, 2, 2, 1),)),
        ("E|t|tt|L", ((0, 1, 2, 0),)),
    ],
)
def test_the_grammar_of_layouts(layout: str, rows: tuple[tuple[int, ...], ...]) -> None:
    """Letters, repetitions and groups as Megatron's documentation has them."""
    assert rows_of_layout(layout, 4) == rows


@pytest.mark.parametrize("layout", ["t*4|t*4|L", "Et|tL|t", "EtE|tL|t", "Et|t", "EtL|tL", "Et|xL", ""])
def test_layouts_that_megatron_refuses(layout: str) -> None:
    """The embedding comes first, the loss last, each once, nothing else."""
    with pytest.raises(InvalidConfiguration):
        rows_of_layout(layout, 1)


@given(st.integers(1, 200), st.integers(1, 16), st.integers(0, 6), st.integers(0, 6))
def test_torchtitan_cuts_every_layer_once(layers: int, stages: int, first: int, last: int) -> None:
    """Where it cuts at all, stages add up and differ by the rest and the two ends only."""
    counts = split_layers(layers, stages, first, last)
    if counts:
        assert sum(counts) == layers
        assert min(counts) >= 0
        middle = counts[1:-1]
        assert not middle or max(middle) - min(middle) <= 1


def test_torchtitan_splits_as_its_documentation_says() -> None:
    """Three layers on two stages with both ends counting as two: two and one."""
    assert split_layers(3, 2, 2, 2) == (2, 1)
    assert split_layers(32, 4, 1, 1) == (8, 9, 8, 7)
    assert split_layers(4, 4, 3, 0) == ()
