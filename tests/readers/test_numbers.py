"""Figures as tools print them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.frame.numbers import bytes_of, finite, moment_of, rate_of


@given(st.text(max_size=50))
def test_any_text_is_a_figure_or_none(text: str) -> None:
    """No text makes a reader of figures fail, and no figure is infinite or negative where it counts something."""
    number = finite(text)
    assert number is None or math.isfinite(number)
    for read in (bytes_of, rate_of):
        value = read(text)
        assert value is None or (math.isfinite(value) and value >= 0)
    assert moment_of(text) is None or isinstance(moment_of(text), datetime)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_number_is_read_back(value: float) -> None:
    """A number printed by Python is read as that number again."""
    assert finite(repr(value)) == value


@pytest.mark.parametrize("text", ["", "nan", "inf", "1e999", "1_000", "1,234.5", "0x10", "٣", "N/A", "8 GB"])
def test_what_is_no_plain_number_is_none(text: str) -> None:
    assert finite(text) is None


@given(st.integers(0, 10**6), st.sampled_from(["", "K", "M", "G"]), st.sampled_from(["", "B", "iB"]))
def test_sizes_are_powers_of_1024(count: int, prefix: str, unit: str) -> None:
    """The prefix decides; whether an "i" or a "B" follows does not."""
    unit = "B" if unit == "iB" and not prefix else unit
    assert bytes_of(f"{count}{prefix}{unit}") == count * 1024 ** " KMG".index(prefix or " ")


@pytest.mark.parametrize("text", ["", "K", "-8", "8 X", "1.2.3", "8KK", "1e3"])
def test_what_is_no_size_is_none(text: str) -> None:
    assert bytes_of(text) is None


@pytest.mark.parametrize(
    ("text", "gbit_per_s"),
    [
        ("4X HDR", 200),
        ("4xNDR", 400),
        ("4x EDR", 100),
        ("1X SDR", 2.5),
        ("2x HDR", 100),
        ("4xFDR10", 40),
        ("200 Gb/sec (4X HDR)", 200),
        ("40 Gb/sec (4X FDR10)", 40),
        ("100Gb/s", 100),
        ("25Gbps", 25),
        ("1000Mb/s", 1),
        ("4X 106.25 Gbps", 400),
        ("4X      25.78125 Gbps", 100),
        ("1.6 Tb/s", 1600),
    ],
)
def test_rates_of_ports(text: str, gbit_per_s: float) -> None:
    assert rate_of(text) == pytest.approx(gbit_per_s * 1e9 / 8)


@pytest.mark.parametrize("text", ["", "400", "4X", "HDR", "3X HDR", "100 GB/s", "10 Gbx"])
def test_what_is_no_rate_of_a_port_is_none(text: str) -> None:
    """A bare number has no unit, and bytes per second are not a port's rate."""
    assert rate_of(text) is None


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-01-12T18:23:45Z", datetime(2024, 1, 12, 18, 23, 45, tzinfo=UTC)),
        ("2024-01-12 18:23:45+02:00", datetime(2024, 1, 12, 18, 23, 45, tzinfo=timezone(timedelta(hours=2)))),
        ("Fri Jan 12 18:23:45 2024", datetime(2024, 1, 12, 18, 23, 45)),  # noqa: DTZ001 - the text has no zone
        ("Fri Jan  2 18:23:45 UTC 2024", datetime(2024, 1, 2, 18, 23, 45, tzinfo=UTC)),
        ("Sat Feb 30 18:23:45 2024", None),
        ("20240112", None),
        ("2024-13-01", None),
    ],
)
def test_moments(text: str, moment: datetime | None) -> None:
    assert moment_of(text) == moment


@given(st.datetimes(timezones=st.just(UTC)))
def test_iso_moments_are_read_back(moment: datetime) -> None:
    """A zone in the text stays."""
    assert moment_of(moment.isoformat()) == moment
