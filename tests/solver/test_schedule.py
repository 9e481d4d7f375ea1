"""Schedules: the order of work on each rank, and a graph in which nothing waits for itself."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.training.frameworks import DEFAULT_FRAMEWORK
from solver.pipeline.schedule import Schedule, build_schedule
from tests.solver.naive_schedule import Event, legal_groups, work_of_rank

Sizes = tuple[int, int, int, int]
"""Pipeline ranks, virtual stages, micro-batches, and how many of these pass a virtual stage together."""


@st.composite
def interleaved_sizes(draw: st.DrawFn) -> Sizes:
    """Whole groups of as many micro-batches as ranks, or any other that Megatron-Core takes."""
    pipeline, virtual = draw(st.integers(2, 5)), draw(st.integers(2, 4))
    micro_batches = draw(st.integers(pipeline, 16))
    return (
        pipeline,
        virtual,
        micro_batches,
        draw(st.sampled_from(legal_groups(DEFAULT_FRAMEWORK, pipeline, micro_batches))),
    )


SIZES = st.one_of(
    st.tuples(st.integers(1, 6), st.just(1), st.integers(1, 12)).map(lambda s: (*s, s[0])),
    interleaved_sizes(),
)


def schedule_of(sizes: Sizes, *, blocking: bool = False) -> Schedule:
    """The schedule of these sizes."""
    return build_schedule(*sizes[:3], group=sizes[3], blocking=blocking)


def orders(schedule: Schedule) -> list[list[Event]]:
    """The events of each rank in the order of its own queue."""
    queues: list[list[Event]] = [[] for _ in range(schedule.pipeline)]
    for index, rank in enumerate(schedule.rank):
        kind = "FB"[int(schedule.events.kind[index])]
        queues[rank].append((kind, int(schedule.events.chunk[index]), int(schedule.micro_batch[index])))
    return queues


@given(SIZES, st.booleans())
def test_each_rank_works_in_megatrons_order(sizes: Sizes, first: bool) -> None:
    """The arrays hold the order that the naive statement of both schedules gives."""
    schedule = build_schedule(*sizes[:3], group=sizes[3], all_forwards_first=first)
    expected = [work_of_rank(*sizes[:3], rank, sizes[3], all_forwards_first=first) for rank in range(sizes[0])]
    assert orders(schedule) == expected


@given(SIZES)
def test_every_chunk_meets_every_micro_batch_once_each_way(sizes: Sizes) -> None:
    """Nothing is left out or done twice."""
    pipeline, virtual, micro_batches, _ = sizes
    seen = Counter(event for queue in orders(schedule_of(sizes)) for event in queue)
    chunks = pipeline * virtual
    assert seen == {(k, c, m): 1 for k in "FB" for c in range(chunks) for m in range(micro_batches)}


@given(SIZES)
def test_what_an_event_waits_for_stands_before_it(sizes: Sizes) -> None:
    """Both waits of an event have lower indices, and a rank's last event is the last of its own."""
    schedule = schedule_of(sizes)
    index = np.arange(len(schedule.rank))
    assert (schedule.events.previous < index).all()
    assert (schedule.events.feed < index).all()
    for rank, last in enumerate(schedule.last):
        assert last == np.flatnonzero(schedule.rank == rank)[-1]


def test_interleaved_order_of_a_small_case() -> None:
    """Two ranks, two virtual stages, four micro-batches: Megatron's order on rank 0 and rank 1."""
    first, second = (
        " ".join(f"{kind}{chunk // 2}.{micro}" for kind, chunk, micro in queue)
        for queue in orders(build_schedule(2, 2, 4))
    )
    warm_up = "F0.0 F0.1 F1.0 F1.1"
    assert first == f"{warm_up} F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3"
    assert second == "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3"


def test_larger_groups_of_a_small_case() -> None:
    """Two ranks, two virtual stages, five micro-batches in groups of three and two: Megatron's own example."""
    for rank, queue in enumerate(orders(build_schedule(2, 2, 5, group=3))):
        forwards = [(micro, chunk // 2) for kind, chunk, micro in queue if kind == "F"]
        assert [micro for micro, _ in forwards] == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
        assert [stage for _, stage in forwards] == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]
        warm_up = [kind for kind, _, _ in queue].index("B") - 1
        assert warm_up == 2 * (2 - rank - 1) + 3


def test_as_many_micro_batches_as_ranks_all_warm_up_where_the_release_says_so() -> None:
    """Megatron up to 0.9 runs all forwards of a single group first; later ones warm up with 2 on the last rank."""
    for queue in orders(build_schedule(2, 2, 2, all_forwards_first=True)):
        assert [kind for kind, _, _ in queue] == ["F"] * 4 + ["B"] * 4
    _, last = orders(build_schedule(2, 2, 2))
    assert [kind for kind, _, _ in last] == ["F", "F", "F", "B", "F", "B", "B", "B"]


@pytest.mark.parametrize(
    ("pipeline", "micro_batches", "group"), [(1, 2, 1), (4, 6, 4), (4, 6, 5), (4, 8, 3), (4, 11, 8), (4, 6, 7)]
)
def test_groups_smaller_than_the_pipeline_are_refused(pipeline: int, micro_batches: int, group: int) -> None:
    """The caller must not ask for a schedule that Megatron has not."""
    with pytest.raises(AssertionError):
        build_schedule(pipeline, 2, micro_batches, group=group)
