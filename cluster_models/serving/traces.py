"""Arrivals of requests as they were recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from cluster_models.errors import InvalidWorkload
from cluster_models.serving.requests import MOST_CLASSES

MOST_ARRIVALS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order of their arrival; errors count them as rows, from 1.

    Where the trace says so, ``cached_tokens`` of each prompt are known from earlier ones, and ``classes`` name the
    class of each request; else both are empty.
    """

    arrivals_s: tuple[float, ...]
    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    cached_tokens: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.arrivals_s) <= MOST_ARRIVALS:
            problem = f"has {len(self.arrivals_s)} requests, it must have 1 to {MOST_ARRIVALS}"
            raise InvalidWorkload("workload.trace", None, problem, "give a part of it, such as its busiest hour")
        for row, arrival in enumerate(self.arrivals_s, start=1):
            if not (math.isfinite(arrival) and arrival >= 0):
                problem = f"row {row}: an arrival must be a finite number of seconds, not negative"
                raise InvalidWorkload(
                    "workload.trace", arrival, problem, "count seconds from the start of the trace"
                )
        for row, (one, two) in enumerate(pairwise(self.arrivals_s), start=2):
            if two < one:
                problem = f"row {row}: comes before the arrival at {one:g} s in front of it"
                raise InvalidWorkload("workload.trace", two, problem, "sort the trace by arrival")
        for name in ("input_tokens", "output_tokens"):
            for row, tokens in enumerate(getattr(self, name), start=1):
                if tokens < 1:
                    remedy = "leave out requests that failed"
                    raise InvalidWorkload("workload.trace", tokens, f"row {row}: {name} must be at least 1", remedy)
        self._check_beside()

    def _check_beside(self) -> None:
        """Raise ``InvalidWorkload`` for cached tokens or classes that make no sense."""
        for row, (cached, prompt) in enumerate(zip(self.cached_tokens, self.input_tokens, strict=False), start=1):
            if not 0 <= cached < prompt:
                problem = f"row {row}: cached_tokens must be at least 0 and below the {prompt} of the prompt"
                raise InvalidWorkload("workload.trace", cached, problem, "one token at least is computed")
        if len(self.class_names) > MOST_CLASSES:
            problem = f"names {len(self.class_names)} classes, at most {MOST_CLASSES} are told apart"
            raise InvalidWorkload("workload.trace", None, problem, "join some of them")

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of its classes, each once, in order of appearance."""
        return tuple(dict.fromkeys(self.classes))

    @property
    def new_tokens(self) -> float | None:
        """Mean tokens of a prompt that are not cached already, ``None`` where the trace does not say."""
        if not self.cached_tokens:
            return None
        return (sum(self.input_tokens) - sum(self.cached_tokens)) / self.requests

    def part(self, rows: Sequence[int]) -> Trace:
        """Its requests at ``rows``, from 0."""
        return Trace(*(tuple(column[row] for row in rows) if column else () for column in self._columns))

    @property
    def _columns(self) -> tuple[tuple[Any, ...], ...]:
        return self.arrivals_s, self.input_tokens, self.output_tokens, self.cached_tokens, self.classes

    @property
    def requests(self) -> int:
        """How many there are."""
        return len(self.arrivals_s)

    @property
    def requests_per_s(self) -> float:
        """Mean rate from the first arrival to the last; raises ``InvalidWorkload`` where all come at once."""
        span = self.arrivals_s[-1] - self.arrivals_s[0]
        if span <= 0:
            every = f"its {self.requests} requests all arrive" if self.requests > 1 else "its only request arrives"
            problem = f"{every} at {self.arrivals_s[0]:g} s, which is not a rate"
            raise InvalidWorkload("workload.trace", None, problem, "give two arrivals at least, at different times")
        return (self.requests - 1) / span

    @property
    def held_tokens(self) -> float:
        """Mean tokens that a sequence holds while it decodes: longer answers decode for longer."""
        pairs = list(zip(self.input_tokens, self.output_tokens, strict=True))
        return sum(output * (prompt + output / 2.0) for prompt, output in pairs) / sum(self.output_tokens)
