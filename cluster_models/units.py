"""Units that exist only in readers and printers; everything between them is SI."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3
GBYTE: Final = 1e9
"""Decimal gigabyte, the unit of bandwidth figures (GB/s) and of GPU data sheets."""
TBYTE: Final = 1e12
GBIT: Final = 1e9 / 8
"""Bytes in a decimal gigabit, the unit of network data sheets (Gb/s)."""
TFLOP: Final = 1e12
HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
MICROSECOND: Final = 1e-6
MILLISECOND: Final = 1e-3
