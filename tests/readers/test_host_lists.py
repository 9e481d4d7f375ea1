"""Lists of hosts in brackets."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.frame.host_lists import MOST_NAMES, compress, expand

NAMES = st.lists(
    st.builds(
        lambda stem, number, width, tail: f"{stem}{str(number).zfill(width)}{tail}",
        st.sampled_from(["n", "rack1-n", "", "gpu-"]),
        st.integers(0, 120),
        st.integers(1, 4),
        st.sampled_from(["", "", "", "-ib"]),
    ),
    max_size=40,
)


@given(NAMES)
def test_a_compressed_list_expands_to_the_same_names(names: list[str]) -> None:
    """Order, repeats and leading zeros stay."""
    assert list(expand(compress(names))) == names


@given(st.text(alphabet="n[]0123456789,- ", max_size=60))
def test_any_text_is_a_list_or_a_value_error(text: str) -> None:
    """No list stands for more names than the limit."""
    with suppress(ValueError):
        assert len(expand(text)) <= MOST_NAMES


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[001-003,19],m3", ("n001", "n002", "n003", "n19", "m3")),
        ("n[8-11]", ("n8", "n9", "n10", "n11")),
        ("r[1-2]n[01-02]-ib", ("r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib")),
        (" a , b ", ("a", "b")),
        ("", ()),
    ],
)
def test_lists_of_slurm(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    ["n[1-3", "n1-3]", "n[[1]]", "n[]", "n[a-b]", "n[3-1]", "n[0-4096]", "a[1-99]b[1-99]", "n[0-99999999999]"],
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"bracket|range|names"):
        expand(text)


def test_runs_are_joined() -> None:
    """Consecutive numbers of the same width share a bracket, and so do other numbers of the same stem."""
    assert compress(["n001", "n002", "n003", "n019", "m3"]) == "n[001-003,019],m3"
    assert compress(["n9", "n10"]) == "n[9-10]"


@pytest.mark.parametrize("name", ["", "a,b", "a b", "n[1]"])
def test_a_name_that_a_list_cannot_hold_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot stand"):
        compress([name])
