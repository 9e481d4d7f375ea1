"""Iteration-level batching simulated request by request: an oracle for the closed form."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Simulated:
    """Means over the requests of the second half of a simulation."""

    first_token_s: float
    token_s: float
    requests_per_s: float


def simulate(
    *,
    concurrency: int,
    outputs: int,
    prefill_s: Callable[[int], float],
    decode_s: Callable[[float], float],
    requests: int,
    ranks: int = 1,
) -> Simulated:
    """A worker that prefills whole prompts, one on each rank, before each decode step (vLLM's first schedule).

    Clients send their next request when the last is answered; output lengths spread evenly over half to one and a
    half of ``outputs``, so that clients do not march in step.
    """
    rng = random.Random(1)  # noqa: S311 - a simulation
    clock, sent = 0.0, 0
    waiting: deque[tuple[float, int]] = deque()
    running: list[list[float]] = []  # arrival, first token, tokens left, tokens in all
    done: list[tuple[float, float, float]] = []

    def send() -> None:
        nonlocal sent
        sent += 1
        waiting.append((clock, rng.randint(outputs // 2, outputs + outputs // 2)))

    for _ in range(concurrency):
        send()
    start = 0.0
    while len(done) < requests:
        if waiting:
            prompts = [waiting.popleft() for _ in range(min(len(waiting), ranks))]
            clock += prefill_s(len(prompts))
            running += [[arrival, clock, tokens - 1, tokens] for arrival, tokens in prompts]
            continue
        clock += decode_s(len(running))
        for each in running:
            each[2] -= 1
        finished = [each for each in running if each[2] <= 0]
        running = [each for each in running if each[2] > 0]
        for arrival, first, _, tokens in finished:
            if len(done) == requests // 2:
                start = clock
            done.append((first - arrival, (clock - first) / (tokens - 1), clock))
            send()
    steady = done[requests // 2 :]
    return Simulated(
        sum(each[0] for each in steady) / len(steady),
        sum(each[1] for each in steady) / len(steady),
        (len(steady) - 1) / (steady[-1][2] - start),
    )
