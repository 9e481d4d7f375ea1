"""Hostile and careless text ends in one clear error; good text means what it says."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.text import MAX_YAML_BYTES, decode, parse_json, parse_text
from cluster_models.errors import InvalidInput


def problem_with(text: str) -> InvalidInput:
    """The error that parsing ``text`` ends in."""
    with pytest.raises(InvalidInput) as caught:
        parse_text(text, what="cluster")
    return caught.value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("[" * 200_000, "nested more than 64 levels"),
        ("{" * 200_000, "nested more than 64 levels"),
        ("- " * 200_000, "nested more than 64 levels"),
        ("[" * 200_000 + "]" * 200_000, "nested more than 64 levels"),
        ("a: &x [1]\nb: *x", "uses a YAML alias"),
        ("a: &x {b: 1}\nc: {<<: *x}", "uses a YAML alias"),
        ("a: 1\nb: 2\na: 3", "'a' is given twice (line 3)"),
        ('{"a": 1, "a": 2}', "'a' is given twice"),
        ("a: [1,", "is not valid YAML"),
        ('{"a": [1,}', "is not valid JSON"),
        ("a: \x00", "control character in line 1"),
        ("a: 1\n---\nb: 2", "more than one YAML document"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        ("a: " + "9" * 5000, "thousands of digits"),
        ('{"a": ' + "9" * 5000 + "}", "thousands of digits"),
        ("a: 2025-13-45", "a date that does not exist"),
        ("? [a]\n: b", "unhashable key"),
    ],
)
def test_broken_text_is_refused_with_its_reason(text: str, problem: str) -> None:
    """Each kind of broken text names its own fault."""
    assert problem in problem_with(text).problem


@pytest.mark.parametrize("text", ["a: [1, .nan]", '{"a": [1, NaN]}', "a: [1, -.inf]", '{"a": [1, 1e999]}'])
def test_numbers_that_are_not_finite_are_named_by_their_path(text: str) -> None:
    """NaN and infinity are refused wherever they stand."""
    assert problem_with(text).field == "a[1]"


_LONG_NUMBERS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "-"]),
    st.integers(1, 4000).map(lambda digits: "9" * digits),
    st.sampled_from([".0", ".5e9", "e99", "e+308", "E308", "e-99"]),
)


@given(st.one_of(st.floats().map(json.dumps), _LONG_NUMBERS))
def test_no_infinite_number_of_a_json_body_slips_through(number: str) -> None:
    """However it is written: as a word, with a large exponent, with hundreds of digits."""
    body = f'{{"a": [[], {{"b": {number}}}]}}'.encode()
    if math.isfinite(float(number)):
        assert parse_json(body, what="document") == {"a": [[], {"b": float(number)}]}
        return
    with pytest.raises(InvalidInput) as caught:
        parse_json(body, what="document")
    assert caught.value.field == "a[1].b"


def test_large_yaml_is_sent_to_json() -> None:
    """YAML above its limit is refused before it is read; the same as JSON is taken."""
    values = [1] * (MAX_YAML_BYTES // 3 + 1)
    as_json = json.dumps({"a": values})
    assert "write a document of this size as JSON" in problem_with("a: " + json.dumps(values)).remedy
    assert parse_text(as_json, what="cluster") == {"a": values}


def test_ten_megabytes_of_garbage_are_refused() -> None:
    """Garbage of any size is one error."""
    assert "more than the 8 MiB" in problem_with("x" * 10_000_000).problem


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e6", 1e6), ("no", "no"), ("on", "on"), ("12:30", "12:30"), ("010", "010"), ("0x10", "0x10"), ("~", None)],
)
def test_yaml_scalars_follow_the_core_schema(text: str, value: object) -> None:
    """The traps of YAML 1.1 are not there."""
    assert parse_text(f"a: {text}", what="x") == {"a": value}


def test_bytes_that_are_not_text_are_refused() -> None:
    """A binary file is not a document, and a byte order mark no fault."""
    with pytest.raises(InvalidInput, match="not UTF-8"):
        decode(b"\x89PNG\xff", what="cluster")
    assert decode(b"\xef\xbb\xbfa: 1", what="cluster") == "a: 1"


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(min_codepoint=32, max_codepoint=126)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=4),
    max_leaves=20,
)


@given(PLAIN.filter(lambda value: value != ""))
def test_json_is_read_as_json_reads_it(value: object) -> None:
    """Whatever JSON can say comes back unchanged."""
    assert parse_text(json.dumps(value), what="x") == value


@given(st.text(max_size=200))
def test_any_text_is_a_value_or_an_invalid_input(text: str) -> None:
    """No text ends in any other exception."""
    try:
        value = parse_text(text, what="x")
    except InvalidInput:
        return
    assert not (isinstance(value, float) and math.isnan(value))
