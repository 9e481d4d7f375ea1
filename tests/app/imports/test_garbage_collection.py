"""The garbage collector during an import: seldom inside, as before once the last thread has left."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from app.imports.garbage_collection import never_collected, seldom_collected


@pytest.fixture
def before() -> Iterator[tuple[int, int, int]]:
    """Thresholds of our own; those of the process come back afterwards."""
    kept = gc.get_threshold()
    gc.set_threshold(701, 11, 12)
    yield 701, 11, 12
    gc.set_threshold(*kept)


def test_threads_that_overlap_leave_the_collector_as_it_was(before: tuple[int, int, int]) -> None:
    """All are inside at once; the thresholds come back only when the last has left."""
    together = Barrier(4)

    def work(_: int) -> int:
        with seldom_collected():
            together.wait(10)
            inside = gc.get_threshold()[0]
            together.wait(10)
            return inside

    with ThreadPoolExecutor(4) as pool:
        assert all(inside > 1_000_000 for inside in pool.map(work, range(4)))
    assert gc.get_threshold() == before


def test_an_error_inside_leaves_the_collector_as_it_was(before: tuple[int, int, int]) -> None:
    inside: list[int] = []

    @seldom_collected()
    def fail() -> None:
        with seldom_collected():
            inside.append(gc.get_threshold()[0])
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert inside[0] > before[0]
    assert gc.get_threshold() == before


def test_a_collector_that_never_runs_is_not_started() -> None:
    kept = gc.get_threshold()
    try:
        gc.set_threshold(0)
        with seldom_collected():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*kept)


@pytest.mark.parametrize("was_on", [True, False])
def test_a_command_leaves_the_collector_on_or_off_as_it_was(was_on: bool) -> None:
    """Also where it ends with an error."""
    (gc.enable if was_on else gc.disable)()

    @never_collected()
    def fail() -> None:
        assert not gc.isenabled()
        raise ValueError("inside")

    try:
        with pytest.raises(ValueError, match="inside"):
            fail()
        assert gc.isenabled() is was_on
    finally:
        gc.enable()
