"""Iteration-level batching of a trace of requests, simulated step by step on the step times of the closed form.

A worker runs one step after the other (Orca, OSDI 2022): each decodes a position of every running sequence and,
where prompts wait and there is room, prefills up to ``chunk_tokens`` of them, oldest first (Sarathi, arXiv
2403.02310).  Steps that only decode are taken together up to the next arrival or end.  Requests go to the workers
of a pool in turn; split pools hand over after ``transfer_s``.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.serving.traces import Trace
from solver.serving.cases import Arrays
from solver.serving.loads import FloatArray
from solver.serving.rates import Rates
from solver.serving.step_tables import StepTables, step_tables

MOST_STEPS: Final = 32
"""Decode steps taken together, over which the mean context hardly grows."""


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """Requests of a trace in its order, each (n,); ``token_s`` is 0 for answers of one token."""

    first_token_s: FloatArray
    token_s: FloatArray
    end_s: FloatArray


@dataclass(frozen=True, slots=True)
class _Worker:
    tables: StepTables
    chunk_tokens: float
    most: int
    tokens_a_step: float
    interference: float
    pipeline: float
    held_steps: float


def simulate_trace(arrays: Arrays, rates: Rates, trace: Trace) -> Answered:
    """The first case of ``arrays`` under a trace."""
    traffic = arrays.traffic
    inputs = np.array(trace.input_tokens, dtype=np.float64)
    outputs = np.array(trace.output_tokens, dtype=np.float64)
    cached = np.array(trace.cached_tokens, dtype=np.float64) if trace.cached_tokens else _cached(arrays, inputs)
    held = float((outputs * (inputs + outputs / 2.0)).sum() / outputs.sum())
    tables = step_tables(arrays, rates, context=held, longest=float(inputs.max()))
    worker = _Worker(
        tables,
        float(traffic.chunk_tokens[0]),
        max(int(traffic.most_sequences[0]), 1),
        float(traffic.yields[0]),
        float(rates.interference[0]),
        float(arrays.prefill.pipeline[0]),
        float(traffic.held_steps[0]),
    )
    arrivals = np.array(trace.arrivals_s)
    asked = arrivals + float(rates.request_s[0])
    if not traffic.split[0]:
        first, end = _pool(worker, int(traffic.decode_workers[0]), asked, (cached, inputs), outputs)
        return _answered(arrivals, first, end, outputs)
    prompts = cached, inputs
    prefilled, _ = _pool(worker, int(traffic.prefill_workers[0]), asked, prompts, np.ones_like(outputs))
    handed = prefilled + float(traffic.transfer_s[0] + rates.hand_over_s[0])
    order = np.argsort(handed, kind="stable")
    first, end = np.empty_like(handed), np.empty_like(handed)
    first[order], end[order] = _pool(
        worker, int(traffic.decode_workers[0]), handed[order], (inputs[order], inputs[order]), outputs[order]
    )
    return _answered(arrivals, first, end, outputs)


def _cached(arrays: Arrays, inputs: FloatArray) -> FloatArray:
    """Tokens of prompts that are cached: the same share of each as of the mean prompt, but for one at least."""
    share = 1.0 - float(arrays.traffic.new_tokens[0] / arrays.traffic.input_tokens[0])
    return np.minimum(np.round(share * inputs), inputs - 1.0)


def _answered(arrivals: FloatArray, first: FloatArray, end: FloatArray, outputs: FloatArray) -> Answered:
    return Answered(first - arrivals, (end - first) / np.maximum(outputs - 1.0, 1.0), end)


def _pool(
    worker: _Worker,
    workers: int,
    arrivals: FloatArray,
    prompts: tuple[FloatArray, FloatArray],
    outputs: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Times of first tokens and of ends in a pool of equal workers.

    ``prompts``: tokens cached already, and those of the whole; where all are cached they are ready at once.
    """
    first, end = np.empty_like(arrivals), np.empty_like(arrivals)
    for number in range(min(workers, len(arrivals))):
        own = slice(number, None, workers)
        first[own], end[own] = _run(worker, arrivals[own], prompts[0][own], prompts[1][own], outputs[own])
    return first, end


@dataclass(slots=True)
class _Batch:
    """The running sequences of a worker: the step at which each ends, and the tokens that all hold."""

    worker: _Worker
    running: list[tuple[float, int]]
    steps: float = 0.0
    context: float = 0.0
    held_since: float = 0.0

    def join(self, request: int, context: float, output: float) -> None:
        """Add a sequence that has its first token."""
        steps = max(np.ceil((output - 1.0) / self.worker.tokens_a_step), 1.0)
        heapq.heappush(self.running, (float(self.steps + steps), request))
        self.context += context

    def decode_s(self) -> float:
        """Seconds of the next step, 0 where nothing runs."""
        size = len(self.running)
        return self.worker.tables.decode(size, self.context / size) if size else 0.0

    def advance(self, steps: float) -> list[int]:
        """Decode so many steps; returns the requests that end."""
        if not self.running:
            return []
        self.steps += steps
        self.context += steps * len(self.running) * self.worker.tokens_a_step
        ended = []
        while self.running and self.running[0][0] <= self.steps + 1e-9:
            ended.append(heapq.heappop(self.running)[1])
        return ended


def _run(
    worker: _Worker, arrivals: FloatArray, cached: FloatArray, inputs: FloatArray, outputs: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Times of first tokens and of ends in one worker."""
    first, end = np.zeros_like(arrivals), np.zeros_like(arrivals)
    late = np.zeros_like(arrivals)  # on its way through the other stages, while the first takes the next prompts
    waiting: deque[list[float]] = deque()  # request, tokens that are cached, tokens of its prompt
    batch = _Batch(worker, [])
    clock, sent = 0.0, 0
    while sent < len(arrivals) or waiting or batch.running:
        if not waiting and not batch.running:
            clock = max(clock, float(arrivals[sent]))
        while sent < len(arrivals) and arrivals[sent] <= clock:
            _queue(batch, waiting, [float(sent), float(cached[sent]), float(inputs[sent])])
            sent += 1
        held = _held_steps(worker, waiting, batch)
        prompts, started = ([], []) if held else _admitted(worker, waiting, len(batch.running))
        if not prompts:  # prefilled elsewhere: they decode from this step on
            for request in started:
                first[request] = clock
                batch.join(request, inputs[request], outputs[request])
            started = []
        decode = batch.decode_s()
        steps = 1.0
        if prompts:
            share = worker.interference if batch.running else 1.0
            prefill = share * worker.tables.prefill(prompts)
            clock += decode + prefill / worker.pipeline
            late[started] = prefill * (1.0 - 1.0 / worker.pipeline)
        else:
            ahead = arrivals[sent] - clock if sent < len(arrivals) else None
            to_end = batch.running[0][0] - batch.steps
            steps = _quiet_steps(min(to_end, held or to_end), decode, ahead)
            clock += steps * decode
        for request in batch.advance(steps):
            end[request] = clock
            batch.context = max(batch.context - inputs[request] - outputs[request], 0.0)
        for request in started:
            first[request] = end[request] = clock
            if outputs[request] > 1.0:
                batch.join(request, inputs[request], outputs[request])
    return first + late, end + late


def _queue(batch: _Batch, waiting: deque[list[float]], request: list[float]) -> None:
    """Let ``request`` wait; the first that does begins the steps for which others are awaited."""
    if not waiting:
        batch.held_since = batch.steps
    waiting.append(request)


def _held_steps(worker: _Worker, waiting: deque[list[float]], batch: _Batch) -> float:
    """Steps for which prompts are held at most until each attention rank has one, in engines that are told so."""
    if not (worker.held_steps and batch.running and 0 < len(waiting) < worker.tables.ranks):
        return 0.0
    return max(batch.held_since + worker.held_steps - batch.steps, 0.0)


def _admitted(
    worker: _Worker, waiting: deque[list[float]], running: int
) -> tuple[list[tuple[float, float]], list[int]]:
    """How far the next step takes each prompt, and the requests whose prompts it completes."""
    budget, room = worker.chunk_tokens * worker.tables.ranks, worker.most - running
    prompts: list[tuple[float, float]] = []
    started: list[int] = []
    taken_up: list[list[float]] = []
    while waiting and room > 0 and budget > 0:
        request, done, whole = waiting.popleft()
        tokens = min(whole - done, budget, worker.chunk_tokens)
        budget -= tokens
        if tokens > 0:
            prompts.append((done, done + tokens))
        if done + tokens < whole:
            taken_up.append([request, done + tokens, whole])
        else:
            started.append(int(request))
            room -= 1
    waiting.extendleft(reversed(taken_up))
    return prompts, started


def _quiet_steps(to_end: float, decode_s: float, to_arrival_s: float | None) -> float:
    """Decode steps until a sequence ends or a request arrives."""
    steps = max(to_end, 1.0)
    if to_arrival_s is not None:
        steps = min(steps, max(np.ceil(to_arrival_s / decode_s), 1.0))
    return float(min(steps, MOST_STEPS))
