"""Figures as tools print them: plain numbers, sizes, rates of links, moments.  Anything else gives ``None``."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final

_SIZE: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?(?:([KMGTP])i?)?(?:B|[Bb]ytes?)?", re.IGNORECASE | re.ASCII)
_EXPONENTS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}

_LANE_GBIT: Final = {
    "SDR": 2.5,
    "DDR": 5.0,
    "QDR": 10.0,
    "FDR10": 10.0,
    "FDR": 14.0,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
"""Gbit/s of one lane, as the InfiniBand Trade Association's roadmap names the generations."""
_SIGNALLED_GBIT: Final = {
    2.5: 2.5,
    5.0: 5.0,
    10.0: 10.0,
    10.3125: 10.0,
    14.0625: 14.0,
    25.78125: 25.0,
    53.125: 50.0,
    106.25: 100.0,
    212.5: 200.0,
}
"""Signalling rate of a lane, with its line coding, as ``iblinkinfo`` prints it: what the lane carries, Gbit/s."""
_LANES: Final = re.compile(
    r"\b(1|2|4|8|12) ?[Xx] {0,16}(?:(SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR)\b|([\d.]{1,12}) ?Gb(?:it)?(?:ps|/s))",
    re.ASCII,
)
_RATE: Final = re.compile(r"(?<![\w.])(\d{1,9}(?:\.\d{1,9})?) ?([KMGT])(?:b|bit|bits)(?:ps|/s(?:ec)?)\b", re.ASCII)
_BITS: Final = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d.*)?", re.ASCII)
_CTIME: Final = re.compile(
    r"(?:[A-Za-z]{3},? )?([A-Za-z]{3}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.\d+)? (?:(UTC|GMT) )?(\d{4})",
    re.ASCII,
)


def finite(text: str) -> float | None:
    """The finite number that the whole text is; no separators, no units, no ``nan``."""
    if not text.isascii() or "_" in text:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def whole(text: str, most_digits: int) -> int | None:
    """The number that a text of decimal digits is, at most ``most_digits`` of them; no sign."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= most_digits else None


def bytes_of(text: str) -> float | None:
    """Bytes of a size: "8", "8K", "8M", "64KB", "1GiB".

    K, M, G, T and P are powers of 1,024 with or without the "i": so print nccl-tests, OSU and perftest their
    message sizes, where "64KB" is 65,536 bytes.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or len(text) > 40:
        return None
    return float(found[1]) * 1024.0 ** _EXPONENTS[(found[2] or "").upper()]


def rate_of(text: str) -> float | None:
    """Bytes per second and direction of a port's rate: "4X HDR", "200 Gb/sec (4X HDR)", "100Gb/s".

    A number in bits per second goes before the words in brackets, except where it is that of one lane ("4X 106.25
    Gbps"): then it is the signalling rate with its line coding, and the rate is that of the generation.
    """
    lanes = _LANES.search(text)
    if lanes is not None and lanes[3] is not None:
        signalled = finite(lanes[3])
        lane_gbit = None if signalled is None else _SIGNALLED_GBIT.get(signalled, signalled)
        return None if lane_gbit is None else int(lanes[1]) * lane_gbit * 1e9 / 8
    rate = _RATE.search(text)
    if rate is not None:
        return float(rate[1]) * _BITS[rate[2]] / 8
    if lanes is not None:
        return int(lanes[1]) * _LANE_GBIT[lanes[2]] * 1e9 / 8
    return None


def moment_of(text: str) -> datetime | None:
    """The moment of ISO 8601 or of C's ``ctime`` ("Fri Jan 12 18:23:45 2024"); aware where the text says a zone."""
    text = text.strip()
    if len(text) > 64:
        return None
    try:
        if _ISO.fullmatch(text):
            return datetime.fromisoformat(text)
        found = _CTIME.fullmatch(text)
        if found is None or found[1].lower() not in _MONTHS:
            return None
        return datetime(
            int(found[7]),
            _MONTHS[found[1].lower()],
            int(found[2]),
            int(found[3]),
            int(found[4]),
            int(found[5]),
            tzinfo=UTC if found[6] else None,
        )
    except ValueError:
        return None
