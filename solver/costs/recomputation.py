"""Forward passes that run again in backward: what candidates repeat, and the seconds of what they may repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Self

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.training.framework_choices import SelectiveRecompute
from cluster_models.training.frameworks import Framework
from cluster_models.training.recompute import INSIDE_MOE, default_modules
from cluster_models.training.workload import Recompute, RecomputeModule
from solver.candidates import (
    MODULE_BITS,
    RECOMPUTE_CODES,
    BoolArray,
    CandidateBatch,
    FloatArray,
    IntArray,
    module_code,
    modules_of,
)
from solver.costs.layer_counts import layers_before

_ALTERNATE_SHARE: Final = 0.6
"""Share of a layer without attention core and last product that runs again where every second product is kept: of
the products of queries, keys, values, output, gate and up the second, fourth and sixth (half of their work in a
Llama layer), and all memory-bound kernels."""


@dataclass(frozen=True, slots=True, eq=False)
class RecomputePolicies:
    """Recomputation of ``n`` candidates, all (n,); or (m, 1): each of ``m`` policies for any candidates.

    ``modules``: bits of what selective recomputation runs again, 0 also where no module is named; ``layers``: those
    of each chunk that full recomputation is limited to, 0: all.
    """

    full: BoolArray
    selective: BoolArray
    modules: IntArray
    layers: IntArray

    @classmethod
    def of(cls, batch: CandidateBatch, framework: Framework) -> Self:
        """The policies of a batch."""
        return cls.coded(batch.recompute, batch.modules, batch.recompute_layers, framework)

    @classmethod
    def coded(cls, recompute: IntArray, modules: IntArray, layers: IntArray, framework: Framework) -> Self:
        """Policies by the codes of ``CandidateBatch``; without named modules the framework chooses."""
        selective = recompute == RECOMPUTE_CODES.index(Recompute.SELECTIVE)
        named = np.where(modules > 0, modules, module_code(default_modules(framework)))
        full = recompute == RECOMPUTE_CODES.index(Recompute.FULL)
        return cls(full, selective, np.where(selective, named, 0), layers)

    def repeats(self, module: RecomputeModule) -> BoolArray:
        """Whether every layer that has the module runs it again, by itself."""
        return np.asarray((self.modules & MODULE_BITS[module]) > 0)

    def frees(self, module: RecomputeModule) -> BoolArray:
        """Whether the module runs again in every layer that has it, by itself or within another one."""
        bits = MODULE_BITS[module] | (MODULE_BITS[RecomputeModule.MOE] if module in INSIDE_MOE else 0)
        return np.asarray((self.modules & bits) > 0)

    @property
    def used(self) -> frozenset[RecomputeModule]:
        """The modules that any candidate runs again."""
        return modules_of(int(np.bitwise_or.reduce(self.modules, initial=0)))

    @property
    def attention_again(self) -> BoolArray:
        """Whether attention cores run again in some backward pass."""
        return self.full | self.repeats(RecomputeModule.CORE_ATTENTION)

    @property
    def dispatch_again(self) -> BoolArray:
        """Whether tokens travel to their experts again in some backward pass, which no other pass runs beside."""
        return self.full | self.repeats(RecomputeModule.MOE)

    def whole_layers(self, architecture: Architecture, layers: IntArray, order: IntArray) -> IntArray:
        """(n, C, K) layers of each kind that run again whole: all of ``layers``, (C, K) or (n, C, K), or the first.

        Where they are limited, chunks hold all layers of the model, prediction layers at the end, in ``order`` (C,)
        of their columns.
        """
        held = np.broadcast_to(layers, (len(self.full), *layers.shape[-2:]))
        whole = np.where(self.full[:, None, None], held, 0)
        if not (self.layers > 0).any():
            return whole
        before, depth = layers_before(architecture), architecture.layers
        total = held.sum(axis=-1)
        start = np.empty_like(total)
        start[:, order] = total[:, order].cumsum(axis=1) - total[:, order]
        end = start + np.minimum(total, self.layers[:, None])
        first = before[np.minimum(end, depth)] - before[np.minimum(start, depth)]
        first[..., architecture.kind_numbers[-1]] += np.maximum(end - np.maximum(start, depth), 0)
        return np.where((self.full & (self.layers > 0))[:, None, None], first, whole)


@dataclass(frozen=True, slots=True, eq=False)
class RepeatedPass:
    """Seconds (n,), by part, of a forward pass that runs again in backward."""

    compute: FloatArray | float = 0.0
    tensor: FloatArray | float = 0.0
    context: FloatArray | float = 0.0
    expert: FloatArray | float = 0.0

    @property
    def total(self) -> FloatArray | float:
        """Sum of all parts."""
        return self.compute + self.tensor + self.context + self.expert


@dataclass(frozen=True, slots=True, eq=False)
class RepeatableLayer:
    """Passes of one layer kind that may run again: ``whole``, single ``modules``, or ``alternate`` products.

    ``alternate`` has what torchtitan's ``selective`` runs again; ``None``: selective recomputation names modules.
    """

    whole: RepeatedPass
    modules: Mapping[RecomputeModule, RepeatedPass]
    alternate: RepeatedPass | None = None

    def selective(self, policies: RecomputePolicies) -> RepeatedPass:
        """Modules that every such layer runs again under selective recomputation; none without it."""
        if self.alternate is not None:
            return RepeatedPass(np.where(policies.selective, self.alternate.compute, 0.0))
        found = dict.fromkeys(_PARTS, np.float64(0.0) * policies.modules)
        for module, again in self.modules.items():
            if (repeated := policies.repeats(module)).any():
                for part in _PARTS:
                    found[part] = found[part] + np.where(repeated, getattr(again, part), 0.0)
        return RepeatedPass(**found)


_PARTS: Final = tuple(part.name for part in fields(RepeatedPass))


@dataclass(frozen=True, slots=True, eq=False)
class RepeatedChunks:
    """Passes that each chunk runs again: seconds (n, C) by part.

    And by kind of layer how often (n, C, K) attention is run again, and tokens travel to experts.
    """

    compute: FloatArray
    tensor: FloatArray
    context: FloatArray
    expert: FloatArray
    attention: FloatArray
    dispatch: FloatArray


def repeated_chunks(
    kinds: Sequence[RepeatableLayer],
    policies: RecomputePolicies,
    layers: IntArray,
    architecture: Architecture,
    order: IntArray,
) -> RepeatedChunks:
    """Passes that chunks of ``layers``, (C, K) or (n, C, K), run again by their policies; ``order`` as above."""
    whole = policies.whole_layers(architecture, layers, order).astype(np.float64)
    found = dict.fromkeys(_PARTS, np.zeros(whole.shape[:2]))
    if policies.full.any() or policies.selective.any():
        for number, layer in enumerate(kinds):
            selective = layer.selective(policies)
            for part in _PARTS:
                every, full = (np.asarray(getattr(each, part)) for each in (selective, layer.whole))
                found[part] = found[part] + every.reshape(-1, 1) * layers[..., number]
                found[part] = found[part] + full.reshape(-1, 1) * whole[..., number]
    attending = np.array([kind.attends for kind in architecture.layer_kinds])
    core, moe = (policies.repeats(module) for module in (RecomputeModule.CORE_ATTENTION, RecomputeModule.MOE))
    return RepeatedChunks(
        **found,
        attention=whole + np.where(core[:, None, None], layers * attending, 0),
        dispatch=whole + np.where(moe[:, None, None], layers, 0),
    )


def alternate_products(
    framework: Framework, whole: FloatArray | float, core: FloatArray | float, *, narrow: bool
) -> RepeatedPass | None:
    """Selective recomputation of torchtitan: all but attention core and every second product.

    ``whole`` and ``core`` (n,): forward seconds of a layer and of its core.  Scaled products of formats under 16
    bits (``narrow``) are not on its list of what is kept and all run again.
    """
    if framework.selective_recompute is not SelectiveRecompute.ALTERNATE_PRODUCTS:
        return None
    return RepeatedPass((1.0 if narrow else _ALTERNATE_SHARE) * (whole - core))
