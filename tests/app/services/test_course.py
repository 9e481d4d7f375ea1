"""The course of a search, kept with its progress."""

from __future__ import annotations

from app.services.planning.course import MOST_POINTS, Course, course_of
from app.web.planning.search_course import search_course


def test_a_long_course_is_thinned_and_keeps_its_newest_point() -> None:
    """However many messages come, few points stay, in order, the last one among them."""
    course = Course()
    for second in range(1000):
        stored = course.after({"elapsed_s": second, "incumbent_s": 20 - second / 100, "bound_s": 9.0, "phase": "x"})
    points = course_of(stored)
    assert len(points) <= MOST_POINTS
    assert points[-1].elapsed_s == 999
    assert [point.elapsed_s for point in points] == sorted(point.elapsed_s for point in points)
    assert stored["phase"] == "x"


def test_two_points_make_a_picture_that_ends_with_the_gap() -> None:
    """Points without a plan are left out; one alone is not a course."""
    course = Course()
    course.after({"elapsed_s": 1.0, "incumbent_s": None, "bound_s": 8.0})
    one = course.after({"elapsed_s": 2.0, "incumbent_s": 10.0, "bound_s": 8.0})
    assert search_course(course_of(one)) is None
    drawing = search_course(course_of(course.after({"elapsed_s": 4.0, "incumbent_s": 10.0, "bound_s": 9.0})))
    assert drawing is not None
    assert drawing.description.endswith("10.00 % between them.")


def test_progress_of_older_versions_has_no_course() -> None:
    """Rows written before there was one load."""
    assert course_of({"elapsed_s": 1.0}) == course_of(None) == ()
