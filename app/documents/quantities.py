"""Large numbers as people write them: 15T tokens, 300B tokens."""

from __future__ import annotations

import math
import re
from typing import Final

from cluster_models.errors import InvalidInput

_FACTORS: Final = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_NUMBER: Final = re.compile(r"(\d[\d_,]*+\.?\d*(?:e\+?\d{1,2})?)\s*([kmbt]?)", re.IGNORECASE)


def token_count(text: str, *, field: str) -> float:
    """Tokens that ``text`` spells, as 15T, 300B, 1.5e12 or 300,000,000; raises ``InvalidInput``."""
    match = _NUMBER.fullmatch(text.strip())
    value = float(re.sub("[_,]", "", match[1])) * _FACTORS[match[2].lower()] if match else 0.0
    if not (math.isfinite(value) and 0 < value <= 1e18):
        raise InvalidInput(field, text, "is not a number of tokens", "write it like 15T, 300B or 1.5e12")
    return value
