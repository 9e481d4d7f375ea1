"""The placement benchmark: its step by an evaluator of its own, its answers by brute force, its refusals."""

from __future__ import annotations

import json
import math
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.compiled_annealer import step_time
from benchmarks.placement import document, main, solve, summary
from benchmarks.placement_clusters import (
    CLUSTERS,
    DEGRADED_TO,
    enlarged_links,
    made_up_links,
    made_up_training,
    steep_links,
)
from benchmarks.placement_grid import (
    InvalidQuestion,
    Training,
    grid_problem,
    known_links,
    rank_orders,
    read_bandwidth,
)
from benchmarks.placement_real import measured_twice
from benchmarks.placement_rivals import annealed, planned, rank_order, restarted, step_of
from solver.compiled import step_seconds

FLAGS = [
    *("--dp", "2", "--pp", "2", "--forward-s", "0.1", "--backward-s", "0.2"),
    *("--activation-bytes", "4e8", "--gradient-bytes", "2e9", "--micro-batches", "3"),
]
FIVE = """node,a,b,c,d,e
a,,5,4,3,9
b,5,,6,2,9
c,4,6,,1,9
d,3,2,1,,9
e,9,9,9,9,
"""


def last_backwards(training: Training, hops: list[tuple[float, float]]) -> list[float]:
    """End of each stage's last backward, from the definition of 1F1B: each event waits for what it needs.

    ``hops``: transfer forward and back between a stage and the next.
    """
    stages, micro = training.pp, training.micro_batches
    queues = []
    for stage in range(stages):
        ahead = min(micro, stages - 1 - stage)
        work = [("F", m) for m in range(ahead)]
        for m in range(micro - ahead):
            work += [("F", ahead + m), ("B", m)]
        queues.append(work + [("B", m) for m in range(micro - ahead, micro)])
    ends: dict[tuple[str, int, int], float] = {}
    clock = [0.0] * stages
    while any(queues):
        for stage, queue in enumerate(queues):
            while queue:
                kind, m = queue[0]
                if kind == "F":
                    needs, delay = (("F", stage - 1, m), hops[stage - 1][0]) if stage else (None, 0.0)
                elif stage == stages - 1:
                    needs, delay = ("F", stage, m), 0.0
                else:
                    needs, delay = ("B", stage + 1, m), hops[stage][1]
                if needs is not None and needs not in ends:
                    break
                ready = ends[needs] + delay if needs is not None else 0.0
                clock[stage] = max(clock[stage], ready) + (
                    training.forward_s if kind == "F" else training.backward_s
                )
                ends[kind, stage, m] = clock[stage]
                queue.pop(0)
    return clock


def naive_step_s(grid: list[list[int]], links: np.ndarray, training: Training) -> float:
    """The step of a grid of nodes by its definition, with nothing of the solver."""
    ends = []
    for row in grid:
        hops = [
            (training.activation_bytes / links[a, b], training.activation_bytes / links[b, a])
            for a, b in pairwise(row)
        ]
        ends.append(last_backwards(training, hops))
    step = 0.0
    for stage in range(training.pp):
        ring = 0.0
        if training.dp > 1:
            nodes = [row[stage] for row in grid]
            slowest = min(links[a, b] for a, b in zip(nodes, nodes[1:] + nodes[:1], strict=True))
            ring = 2 * (training.dp - 1) / training.dp * training.gradient_bytes / slowest
        step = max(step, max(end[stage] for end in ends) + ring)
    return step


@st.composite
def cases(draw: st.DrawFn) -> tuple[Training, np.ndarray, list[int]]:
    """A training of any shape, links of seven nodes, and an order of them."""
    dp, pp = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    dp = min(dp, 7 // pp)
    size = st.floats(0.0, 2e9)
    training = Training(
        dp, pp, draw(st.floats(0.01, 1)), draw(st.floats(0, 1)), draw(size), draw(size), draw(st.integers(1, 12))
    )
    links = np.random.default_rng(draw(st.integers(0, 1000))).uniform(1e9, 9e9, (7, 7))
    return training, links, draw(st.permutations(range(7)))[: dp * pp]


@given(cases())
@settings(max_examples=40)
def test_the_step_is_what_its_definition_says(case: tuple[Training, np.ndarray, list[int]]) -> None:
    """By the solver's kernel and by the rivals' alike."""
    training, links, order = case
    expected = naive_step_s(np.reshape(order, (training.dp, training.pp)).tolist(), links, training)
    assignment = np.array(order)
    assert step_seconds(assignment, grid_problem(links, training).arrays)[0] == pytest.approx(expected, rel=1e-12)
    assert step_time(assignment, step_of(links, training)) == pytest.approx(expected, rel=1e-12)


def written(folder: Path, text: str) -> Path:
    """A CSV file."""
    path = folder / "links.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (2, 2), (2, 1)])
def test_small_grids_are_proven_and_equal_brute_force(
    tmp_path: Path, shape: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """The JSON answer: node names in the grid's shape, the optimum, and a bound that meets it."""
    path = written(tmp_path, FIVE)
    training = Training(*shape, 0.1, 0.2, 4e8, 2e9, 3)
    flags = ["--dp", str(shape[0]), "--pp", str(shape[1]), *FLAGS[4:]]
    assert main(["--bandwidth", str(path), *flags, "--seconds", "600", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    links = read_bandwidth(path).bytes_per_s
    orders = permutations(range(5), training.slots)
    best = min(naive_step_s(np.reshape(order, shape).tolist(), links, training) for order in orders)
    grid = [["abcde".index(name) for name in row] for row in answer["grid"]]
    assert np.shape(grid) == shape
    assert len({node for row in grid for node in row}) == training.slots
    assert naive_step_s(grid, links, training) == pytest.approx(answer["step_s"], rel=1e-12)
    assert answer["step_s"] == pytest.approx(best, rel=1e-12)
    assert answer["bound_s"] == pytest.approx(best, rel=1e-12)
    assert answer["gap"] == 0
    assert {"grid", "step_s", "bound_s", "gap", "seconds"} <= set(answer)


def test_a_plan_is_never_slower_than_rank_order_however_short_the_time(tmp_path: Path) -> None:
    """With no time at all, the better of both orders is the answer, and a bound below it."""
    links = made_up_links(16, 3) / 1e9
    names = [f"n{i}" for i in range(16)]
    rows = [",".join(["node", *names])]
    rows += [",".join([name, *(str(value) for value in row)]) for name, row in zip(names, links, strict=True)]
    path = written(tmp_path, "\n".join(rows))
    training = made_up_training(16)
    answer = solve(path, training, seconds=1e-3, seed=0)
    matrix = read_bandwidth(path).bytes_per_s
    orders = [order.reshape(4, 4).tolist() for order in rank_orders(training)]
    assert answer.outcome.step_s <= min(naive_step_s(grid, matrix, training) for grid in orders) * (1 + 1e-12)
    assert 0 < answer.outcome.bound_s <= answer.outcome.step_s


def test_an_unknown_link_counts_as_its_reverse_or_as_the_slowest(tmp_path: Path) -> None:
    """Measured one way only, it is as fast; never measured, as the slowest of all, and the answer names it."""
    text = "n,a,b,c\na,,5,\nb,4,,\nc,2,,\n"
    links = known_links(read_bandwidth(written(tmp_path, text)), 3)
    assert links.bytes_per_s[0, 2] == 2e9
    assert links.bytes_per_s[1, 2] == links.bytes_per_s[2, 1] == 2e9
    assert np.argwhere(links.guessed).tolist() == [[1, 2], [2, 1]]
    answer = solve(tmp_path / "links.csv", Training(3, 1, 0.1, 0.2, 4e8, 2e9, 3), seconds=60, seed=0)
    assert [set(pair) for pair in document(answer)["guessed_links"]] == [{"b", "c"}]
    assert "taken for the slowest measured link" in summary(answer)


def test_nodes_without_any_measurement_serve_only_when_they_must(tmp_path: Path) -> None:
    """Four nodes of which one is unmeasured: left out of a grid of three, used in one of four."""
    path = written(tmp_path, "n,a,b,c,d\na,,5,,5\nb,4,,,4\nc,,,,\nd,3,3,,\n")
    three = known_links(read_bandwidth(path), 3)
    assert three.names == ("a", "b", "d")
    assert three.left_out == ("c",)
    assert known_links(read_bandwidth(path), 4).left_out == ()


def test_columns_may_come_in_another_order(tmp_path: Path) -> None:
    """Rows are senders, whatever the order of the receivers."""
    one = read_bandwidth(written(tmp_path, "n,a,b\na,,7\nb,3,\n"))
    other = read_bandwidth(written(tmp_path, "n,b,a\na,7,\nb,,3\n"))
    assert np.array_equal(one.bytes_per_s, other.bytes_per_s, equal_nan=True)
    assert one.bytes_per_s[0, 1] == 7e9


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("n,a,b\na,,0\nb,1,\n", "a to b is '0'"),
        ("n,a,b\na,,-3\nb,1,\n", "a to b is '-3'"),
        ("n,a,b\na,,nan\nb,1,\n", "a to b is 'nan'"),
        ("n,a,b\na,,inf\nb,1,\n", "a to b is 'inf'"),
        ("n,a,b\na,,fast\nb,1,\n", "a to b is 'fast'"),
        ("n,a,b\na,,1e300\nb,1,\n", "a to b is '1e300'"),
        ("n,a,b\na,,1e-310\nb,1,\n", "a to b is '1e-310'"),
        ("n;a;b\na;;1\nb;1;\n", "commas between the cells"),
        ("n,a,b,c\na,,1,1\nb,1,,1\n", "not square"),
        ("n,a,a\na,,1\na,1,\n", "'a' stands twice"),
        ("n,a,b\na,,1\nc,1,\n", "has a row or a column, but not both"),
        ("n,a,b\na,,1\nb\n", "row 'b' has 0 values"),
        ("n,a,\na,,1\n,1,\n", "has no node name"),
        ("", "holds no matrix"),
        ("n,a,b,c,d\na,,,,\nb,,,,\nc,,,,\nd,,,,\n", "no measured link"),
        ("n,a,b\na,,1\nb,1,\n", "asks for 4 nodes, but the matrix has 2"),
    ],
)
def test_a_bad_matrix_is_refused_in_one_line(
    tmp_path: Path, text: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and a line on standard error that names the value."""
    assert main(["--bandwidth", str(written(tmp_path, text)), *FLAGS, "--json"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert named in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--dp", "0"),
        ("--pp", "-1"),
        ("--dp", "two"),
        ("--forward-s", "-1"),
        ("--backward-s", "nan"),
        ("--activation-bytes", "inf"),
        ("--forward-s", "1e300"),
        ("--gradient-bytes", "-5"),
        ("--micro-batches", "0"),
        ("--micro-batches", "10000000"),
        ("--seconds", "0"),
        ("--seed", "-1"),
        ("--bandwidth", "no-such-file.csv"),
    ],
)
def test_a_bad_flag_is_refused_in_one_line(
    tmp_path: Path, flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and a line that names the flag."""
    arguments = ["--bandwidth", str(written(tmp_path, FIVE)), *FLAGS, "--seconds", "60", flag, value]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert flag in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--sizes", "9"),
        ("--share", "0"),
        ("--share", "nan"),
        ("--seeds", "-1"),
        ("--page", "no-such-page.md"),
        ("--bogus", "1"),
    ],
)
def test_a_bad_flag_of_the_comparison_is_refused_before_it_runs(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one line, not a table that cannot be put into its page in the end."""
    assert main(["compare", flag, value]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert flag in said.err
    assert said.err.count("\n") == 1


def test_a_missing_flag_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Without the matrix nothing can be placed."""
    assert main(FLAGS) == 2
    assert "--bandwidth" in capsys.readouterr().err


def test_work_without_time_is_refused() -> None:
    """A step of 0 s has no gap."""
    with pytest.raises(InvalidQuestion, match="both 0"):
        Training(1, 1, 0.0, 0.0, 1.0, 1.0, 1)


def test_made_up_clusters_are_as_uneven_as_measured_ones() -> None:
    """One node in eight is degraded; the same seed makes the same links."""
    links = made_up_links(64, 5)
    assert np.array_equal(links, made_up_links(64, 5))
    best_of = np.nanmedian(np.where(np.eye(64, dtype=bool), np.nan, links), axis=1)
    slow = best_of < DEGRADED_TO[1] * 1.05 * np.median(best_of)
    assert slow.sum() == 8


def test_two_degraded_nodes_of_a_steep_cluster_slow_their_link_twice() -> None:
    """With both shares taken out, links between degraded nodes are like those between others."""
    links = steep_links(64, 5)
    off = ~np.eye(64, dtype=bool)
    middle = np.median(links[off].reshape(64, 63), axis=1)
    slow = np.argsort(middle)[:8]
    share = middle / np.median(middle)
    assert share[slow].max() < DEGRADED_TO[1] * 1.05 < np.delete(share, slow).min()
    restored = links / np.multiply.outer(share, share)
    between = restored[np.ix_(slow, slow)][off[:8, :8]]
    assert np.median(between) == pytest.approx(np.median(restored[off]), rel=0.1)
    assert CLUSTERS["steep"].training(64).slots == 64


def test_every_rival_reports_what_its_placement_takes() -> None:
    """Steps agree with the definition, improve over time, and none beats the proven optimum."""
    links, training = made_up_links(8, 2), made_up_training(8)
    plan = planned(links, training, seconds=60)
    assert plan.bound_s == pytest.approx(plan.step_s)
    for course in (
        rank_order(links, training),
        annealed(links, training, seconds=0.3),
        restarted(links, training, seconds=0.3),
        plan,
    ):
        grid = course.assignment[: training.slots].reshape(training.dp, training.pp).tolist()
        assert naive_step_s(grid, links, training) == pytest.approx(course.step_s, rel=1e-12)
        assert course.step_s >= plan.step_s * (1 - 1e-12)
        steps = [step for _, step in course.points]
        assert steps == sorted(steps, reverse=True)
        assert course.at(math.inf) == course.step_s


def test_links_measured_twice_have_the_same_nodes() -> None:
    """And room for the grids that are placed on them; nothing is asked where the measurements are not there."""
    for twice in measured_twice():
        assert twice.first.names == twice.second.names
        assert all(dp * pp <= len(twice.first.names) for dp, pp in twice.shapes)


def test_the_comparison_prints_every_method(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each number of nodes asked for, with the proven step, and the curves as files."""
    arguments = ["compare", "--quick", "--sizes", "8", "--no-real", "--figures", str(tmp_path)]
    assert main(arguments) == 0
    row = [cell.strip() for cell in capsys.readouterr().out.splitlines()[-1].split("|")]
    assert row[1:4] == ["8", "1", "2 x 4"]
    rank_order_s, restarts_s, annealer_s, planner_s, bound_s = map(float, row[4:9])
    assert planner_s <= min(rank_order_s, restarts_s, annealer_s)
    assert 0 < bound_s <= planner_s
    for name in ("placement_courses.svg", "placement_gaps.svg"):
        assert "</svg>" in (tmp_path / name).read_text()


def test_an_enlarged_cluster_has_links_like_the_measured_ones() -> None:
    """No link is faster than a measured one, some are far slower, and the same seed makes the same links."""
    measured = np.random.default_rng(0).uniform(10.0, 20.0, (10, 10))
    measured[0, 1] = np.nan
    links = enlarged_links(measured, 40, 3)
    off = ~np.eye(40, dtype=bool)
    assert np.isfinite(links[off]).all()
    assert (links[off] > 0).all()
    assert links[off].max() <= np.nanmax(measured)
    assert links[off].min() < 0.8 * np.nanmin(measured)
    assert np.array_equal(links, enlarged_links(measured, 40, 3))
