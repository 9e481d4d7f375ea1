"""Rates of serving engines on GPUs: physical quantities, each a prior and effects of what it depends on.

    quantity = prior x exp(sum of effects)                    (seconds and factors)
    quantity = logistic(logit(prior) + sum of effects)        (shares of a nominal rate, always within 0..1)

An effect belongs to a level of one property of a case (a GPU kind, an engine generation, ...) and is 0 where
nothing was measured, so that an unseen GPU or engine gets what is common to the others.  ``data/rates.toml`` holds
those that ``benchmarks.serving_fit`` found; docs/serving.md says what each quantity means.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from solver.serving.loads import FloatArray

COMMON: Final = "all"
"""The level that every case has."""
HARDWARE: Final = ("chip", "gpu")
"""Properties from the general to the particular, so that what is unseen has what its relatives share."""
SOFTWARE: Final = ("family", "engine")
PAIR: Final = (*HARDWARE, *SOFTWARE, "family@chip", "engine@gpu")
PRODUCT: Final = (*PAIR, "format", "format@chip", "family@format", "engine@format", "format@gpu", "model")
ATTENTION: Final = (*HARDWARE, *SOFTWARE, "attention", "family@attention", "attention@chip", "model")
OF_MODEL: Final = ("model", "model@family", "model@engine", "model@gpu", "model@engine@gpu")


@dataclass(frozen=True, slots=True)
class Quantity:
    """One rate: its prior from data sheets and publications, and the properties of a case that it may depend on.

    ``spread`` is the standard deviation that the prior grants the common effect (on the log or logit scale), and
    ``level_spread`` that of single levels.
    """

    prior: float
    properties: tuple[str, ...]
    source: str
    is_share: bool = False
    spread: float = 0.7
    level_spread: float = 0.25


QUANTITIES: Final[Mapping[str, Quantity]] = MappingProxyType(
    {
        "memory_share": Quantity(
            0.75,
            PRODUCT,
            "share of memory bandwidth that products of few rows reach; 0.7 to 0.9 (arXiv 2402.16363, section 3)",
            is_share=True,
        ),
        "expert_memory_share": Quantity(
            0.6,
            PRODUCT,
            "the same of grouped products, an expert a group",
            is_share=True,
        ),
        "compute_share": Quantity(
            0.6,
            PRODUCT,
            "share of the dense peak of the format (measured_bf16_tflops over bf16_tflops of data/gpu_kinds.toml)",
            is_share=True,
        ),
        "expert_compute_share": Quantity(
            0.4,
            PRODUCT,
            "the same of grouped products",
            is_share=True,
        ),
        "cache_share": Quantity(
            0.6,
            ATTENTION,
            "share of the memory bandwidth of decode attention (FlashDecoding)",
            is_share=True,
        ),
        "attention_share": Quantity(
            0.4,
            ATTENTION,
            "share of the 16-bit peak of prefill attention (FlashAttention-3, arXiv 2407.08608: 0.75 at best)",
            is_share=True,
        ),
        "link_share": Quantity(
            0.6,
            (*HARDWARE, *SOFTWARE),
            "share of nominal link bandwidth of collectives (docs/links.md)",
            is_share=True,
        ),
        "collective_s": Quantity(
            6e-6,
            PAIR,
            "latency of a collective among two GPUs; one-shot all-reduce kernels take 5 to 10 us",
        ),
        "layer_s": Quantity(
            20e-6,
            (*PAIR, "attention", "engine@attention", "model"),
            "kernels of a layer that no bandwidth explains: about 10 launches of 2 us in a CUDA graph",
        ),
        "sparse_layer_s": Quantity(
            20e-6,
            (*PAIR, "format", "engine@format", "model"),
            "routing, permutation and grouped launches of a layer with experts",
        ),
        "prefill_layer_s": Quantity(
            40e-6,
            (*PAIR, "attention"),
            "launches of a layer in a step with prompts, which no CUDA graph covers: about 15 launches of 5 us, "
            "some of them hidden behind their kernels",
        ),
        "step_s": Quantity(0.8e-3, PAIR, "scheduler, sampling and host work of a step", spread=1.0),
        "sequence_s": Quantity(4e-6, PAIR, "host work of a step for each of its sequences", spread=1.0),
        "request_s": Quantity(
            15e-3,
            (*PAIR, "split"),
            "tokenisation, queues and the first step of a request",
            level_spread=0.3,
        ),
        "wait_factor": Quantity(
            0.3,
            ("engine", "family", "client", "split"),
            "waiting of a prompt for others over that of random arrivals (mean value analysis)",
            spread=1.0,
            level_spread=0.5,
        ),
        "bunching": Quantity(
            0.15,
            ("engine", "family", "client", "split", "engine@client"),
            "prompts that arrive together, over the square root of those in flight: a prefill holds up answers, "
            "which then end together",
            spread=1.0,
            level_spread=0.5,
        ),
        "interference": Quantity(
            0.9,
            ("engine", "family"),
            "share of a prefill's time by which it delays decoding in its worker (Sarathi, arXiv 2403.02310)",
            spread=0.3,
            level_spread=0.15,
        ),
        "imbalance": Quantity(
            0.3, ("engine",), "excess load of the busiest expert rank at many tokens (docs/experts.md)", spread=0.7
        ),
        "decode_factor": Quantity(
            1.0,
            OF_MODEL,
            "decode steps of a model over those of its shape: fusions and tile sizes tuned for it, or not yet",
            level_spread=0.2,
        ),
        "prefill_factor": Quantity(
            1.0,
            OF_MODEL,
            "the same of prefill",
            level_spread=0.2,
        ),
        "hand_over_s": Quantity(
            50e-3,
            PAIR,
            "steps of routers and caches between prefill and decode workers",
            spread=1.0,
            level_spread=0.3,
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Rates:
    """The quantities of n cases, each shape (n,)."""

    memory_share: FloatArray
    expert_memory_share: FloatArray
    compute_share: FloatArray
    expert_compute_share: FloatArray
    cache_share: FloatArray
    attention_share: FloatArray
    link_share: FloatArray
    collective_s: FloatArray
    layer_s: FloatArray
    sparse_layer_s: FloatArray
    prefill_layer_s: FloatArray
    step_s: FloatArray
    sequence_s: FloatArray
    request_s: FloatArray
    wait_factor: FloatArray
    bunching: FloatArray
    interference: FloatArray
    imbalance: FloatArray
    decode_factor: FloatArray
    prefill_factor: FloatArray
    hand_over_s: FloatArray


Effects = Mapping[str, Mapping[str, float]]
"""Effect of each level, by quantity, as ``level_names`` writes it."""
Properties = Mapping[str, str]
"""Properties of a case: gpu, chip, engine, family, model, format, attention, split, client."""


def level_names(quantity: Quantity, properties: Properties) -> tuple[str, ...]:
    """The levels of ``quantity`` that a case has, the common one first; crossed properties join with @."""
    return (
        COMMON,
        *(
            f"{name}:{'@'.join(properties[part] for part in name.split('@'))}"
            for name in quantity.properties
            if all(properties.get(part) for part in name.split("@"))
        ),
    )


def value_of(quantity: Quantity, effect: FloatArray) -> FloatArray:
    """The quantity with its prior moved by ``effect``."""
    if quantity.is_share:
        free = np.log(quantity.prior / (1.0 - quantity.prior)) + effect
        return np.asarray(1.0 / (1.0 + np.exp(-free)))
    return np.asarray(quantity.prior * np.exp(effect))


@dataclass(frozen=True, slots=True)
class Fitted:
    """Effects of cases like the measured ones (``near``) and of others (``far``).

    Others are those of an unseen model, or of an engine generation on a kind of GPU that it was not measured on:
    fitted with tighter priors, which extrapolate better.  ``known`` are the measured levels of these properties.
    """

    near: Effects
    far: Effects
    known: frozenset[str]

    def effects_of(self, case: Properties) -> Effects:
        """The effects that ``case`` is priced with."""
        return self.near if known_levels(case) <= self.known else self.far


def known_levels(case: Properties) -> frozenset[str]:
    """The levels of ``case`` that make it like a measured one."""
    return frozenset((f"model:{case.get('model')}", f"engine@gpu:{case.get('engine')}@{case.get('gpu')}"))


def rates_of(
    cases: Sequence[Properties],
    effects: Effects | Fitted | None = None,
    shifts: Sequence[Mapping[str, float]] | None = None,
) -> Rates:
    """Rates of ``cases`` with ``effects`` (default: those shipped), moved by each case's own ``shifts``."""
    moved = [{}] * len(cases) if shifts is None else shifts
    given = shipped_rates() if effects is None else effects
    own = [given.effects_of(case) if isinstance(given, Fitted) else given for case in cases]
    found = {}
    for field in fields(Rates):
        quantity = QUANTITIES[field.name]
        sums = [
            sum(known.get(field.name, {}).get(level, 0.0) for level in level_names(quantity, case))
            + shift.get(field.name, 0.0)
            for known, case, shift in zip(own, cases, moved, strict=True)
        ]
        found[field.name] = value_of(quantity, np.array(sums))
    return Rates(**found)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Errors on measured rows whose whole ``group`` the fit did not see, of one ``figure``.

    Relative errors predicted / measured - 1, but ``log_spread``: four rows in five lie within this of their
    prediction, as |log(predicted / measured)|.  ``all_``: with rows that contradict one another, which the other
    figures leave out.
    """

    group: str
    figure: str
    rows: int
    median_error: float
    mean_error: float
    p90_error: float
    bias: float
    log_spread: float
    all_rows: int
    all_median_error: float
    all_mean_error: float


@cache
def shipped_rates() -> Fitted:
    """The effects of ``data/rates.toml``."""
    shipped = _shipped()
    return Fitted(shipped["near"], shipped["far"], frozenset(shipped["known"]))


@cache
def held_out_spreads() -> tuple[HeldOut, ...]:
    """Errors of predictions on groups of rows that a fit did not see, from ``data/rates.toml``."""
    return tuple(HeldOut(**entry) for entry in _shipped()["held_out"])


@cache
def _shipped() -> dict[str, Any]:
    return tomllib.loads(
        resources.files("solver.serving").joinpath("data", "rates.toml").read_text(encoding="utf-8")
    )
