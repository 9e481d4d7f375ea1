"""Layers of each kind: seconds of both passes by part, and of what their backward passes may run again."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import ATTENDING, Mixer, Mlp
from cluster_models.training.adapters import MLP_MODULES, AdaptedLinear
from cluster_models.training.workload import RecomputeModule, TrainingWorkload
from solver.candidates import CandidateBatch, FloatArray
from solver.costs.adapters import LAUNCHES, adapter_collectives_s, adapter_s, linears_of
from solver.costs.calibration import Calibration
from solver.costs.compute import Processor, elementwise_s, matmul_s, processor, quantise_s
from solver.costs.expert_traffic import expert_traffic
from solver.costs.launching import host_bound, score_launches, sparse_host_bound, sparse_launches
from solver.costs.layer_costs import attention_core, dense_mlp, mixer_block, up_projection_s
from solver.costs.local_sizes import LocalSizes, local_sizes
from solver.costs.model_ends import end_precision
from solver.costs.parameters import transfers_cross
from solver.costs.recomputation import RecomputePolicies, RepeatableLayer, RepeatedPass, alternate_products
from solver.costs.routed_loads import RoutedLoads
from solver.costs.seconds import Seconds
from solver.costs.sparse_layers import activation_s, shared_expert, sparse_mlp
from solver.costs.split_backward import calibration_under
from solver.costs.traffic import LayerTraffic, context_traffic, no_traffic, tensor_traffic


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """Seconds (n,) of a layer by kind (``Architecture.layer_kinds``) without recomputation.

    ``seconds`` are compute, ``again`` the parts of each that may be recomputed.
    """

    seconds: tuple[Seconds, ...]
    tensor: tuple[Seconds, ...]
    """Collectives of tensor ranks."""
    tensor_block: Seconds
    """Collectives around one block that they split: a mixer, an MLP or the shared expert."""
    context: tuple[LayerTraffic, ...]
    expert: tuple[LayerTraffic, ...]
    again: tuple[RepeatableLayer, ...]


class SizedLayers(NamedTuple):
    """Sizes of candidates, and layers of these."""

    sizes: LocalSizes
    layers: Layers


def layers_of(  # noqa: PLR0913 - each a fact of its own
    batch: CandidateBatch,
    *,
    architecture: Architecture,
    workload: TrainingWorkload,
    gpu: GpuKind,
    domain: int,
    calibration: Calibration,
    modules: AbstractSet[RecomputeModule],
    routed: RoutedLoads | None = None,
    tensor_slowdown: FloatArray | None = None,
) -> SizedLayers:
    """Sizes and layers of candidates; ``modules`` are those that any of them may run again.

    Groups of up to ``domain`` GPUs stay together; ``tensor_slowdown`` (n,): how much longer tensor parallel
    collectives take than inside a domain.  Dispatch runs beside the compute of another micro-batch, where the
    framework overlaps it, without a pipeline or with an interleaved one, unless a candidate's recomputation
    dispatches again (Megatron-Core).
    """
    calibration, split = calibration_under(calibration, batch), batch.runs.splits_backward
    chip = processor(gpu, workload.precision, calibration, splits_backward=split, frozen=workload.frozen_weights)
    imbalance = None if routed is None else routed.mean(calibration)
    sizes = local_sizes(batch, workload, calibration, imbalance=imbalance)
    policies = RecomputePolicies.of(batch, calibration.framework)
    beside = ~policies.dispatch_again & ((batch.pipeline == 1) | (batch.virtual_pipeline > 1))
    beside = beside & calibration.framework.expert_overlap & (sizes.expert > 1)
    experts, kinds = architecture.experts, architecture.layer_kinds
    mixers = {kind.mixer: architecture.of_mixer(kind.mixer) for kind in kinds}
    cores = {mixer: attention_core(chip, own, sizes, mixer) for mixer, own in mixers.items()}
    around = {mixer: mixer_block(chip, own, sizes, mixer) + cores[mixer] for mixer, own in mixers.items()}
    rings = {
        mixer: context_traffic(gpu, architecture, sizes, mixer, core=core, domain=domain)
        for mixer, core in cores.items()
    }
    block = tensor_traffic(gpu, calibration, architecture, sizes)
    if tensor_slowdown is not None:
        block = block * tensor_slowdown
    half = processor(gpu, end_precision(workload.precision), calibration)

    def adapted(part: Seconds, collectives: Seconds, linears: Sequence[AdaptedLinear]) -> tuple[Seconds, Seconds]:
        if not linears:
            return part, collectives
        slowdown = 1.0 if tensor_slowdown is None else tensor_slowdown
        more = adapter_collectives_s(gpu, calibration, linears, sizes) * slowdown
        return part + adapter_s(half, linears, sizes), collectives + more

    seconds, tensor, dispatch, again = [], [], [], []
    for kind, linears in zip(kinds, linears_of(architecture, workload.adapters, workload.framework), strict=True):
        mixes = float(kind.mixer is not Mixer.NONE)
        launches = LAUNCHES * len(linears) + score_launches(chip, mixers[kind.mixer], sizes, kind.mixer)
        beside_mlp = [linear for linear in linears if linear.module in MLP_MODULES]
        beside_mixer = [linear for linear in linears if linear.module not in MLP_MODULES]
        mixer, collectives = adapted(around[kind.mixer], block * mixes, beside_mixer)
        mlp, mlp_block = None, block
        if kind.mlp is Mlp.DENSE:
            mlp, mlp_block = adapted(dense_mlp(chip, architecture, sizes), block, beside_mlp)
        elif kind.sparse and experts is not None and experts.shared_hidden:
            mlp, mlp_block = adapted(shared_expert(chip, architecture, experts, sizes), block, beside_mlp)
        collectives = collectives if mlp is None else collectives + mlp_block
        whole = mixer if mlp is None else mixer + mlp
        repeats = _Forward(
            chip, mixers[kind.mixer], sizes, kind.mixer, cores[kind.mixer], rings[kind.mixer], mlp_block, modules
        )
        if not kind.sparse or experts is None:
            layer = host_bound(
                whole,
                collectives,
                calibration,
                tensor=sizes.tensor,
                crossing=transfers_cross(batch, domain),
                share=(mixes + (mlp is not None)) / 2.0 + launches,
            )
            dispatch.append(no_traffic(sizes))
            again.append(repeats.dense(layer, mlp, collectives))
        else:
            routed_mlp = sparse_mlp(chip, architecture, experts, sizes)
            layer, shelter = sparse_host_bound(
                whole + routed_mlp,
                collectives,
                calibration,
                overlapped=beside,
                experts=experts.count / sizes.expert,
                launches=sparse_launches(architecture, kind.mixer) + launches,
            )
            dispatch.append(
                expert_traffic(gpu, calibration, architecture, sizes, shelter=shelter, domain=domain, routed=routed)
            )
            again.append(repeats.sparse(layer, routed_mlp, mlp, dispatch[-1], collectives))
        seconds.append(layer)
        tensor.append(collectives)
    layers = Layers(
        seconds=tuple(seconds),
        tensor=tuple(tensor),
        tensor_block=block,
        context=tuple(rings[kind.mixer] for kind in kinds),
        expert=tuple(dispatch),
        again=tuple(again),
    )
    return SizedLayers(sizes, layers)


@dataclass(frozen=True, slots=True, eq=False)
class _Forward:
    """Forward passes of layers and of the ``modules`` asked for, as backward passes run them again.

    ``block``: collectives of tensor ranks around an MLP or shared expert.
    """

    chip: Processor
    architecture: Architecture
    sizes: LocalSizes
    mixer: Mixer
    core: Seconds
    context: LayerTraffic
    block: Seconds
    modules: AbstractSet[RecomputeModule]

    def dense(self, layer: Seconds, mlp: Seconds | None, tensor: Seconds) -> RepeatableLayer:
        """A layer without experts; its whole MLP takes its norm along, of the residual addition nothing."""
        found = self._attention(norms=0)
        compute = layer.forward
        if mlp is not None:
            if RecomputeModule.MLP in self.modules:
                residual = elementwise_s(self.chip, 6.0 * self._stream, kernels=0)
                found[RecomputeModule.MLP] = RepeatedPass(mlp.forward - residual, self.block.forward)
            if self.chip.calibration.framework.stops_recompute:  # nothing in backward needs the last product
                width = self.architecture.mlp_hidden / self.sizes.tensor
                compute = compute - matmul_s(self.chip, self.sizes.tokens, float(self.architecture.hidden), width)
        return self._layer(RepeatedPass(compute, tensor.forward, self._ring), found)

    def sparse(
        self, layer: Seconds, routed: Seconds, shared: Seconds | None, traffic: LayerTraffic, tensor: Seconds
    ) -> RepeatableLayer:
        """A sparse layer; its whole MLP sends tokens to their experts and back once more."""
        found = self._attention(norms=1)
        exchanged = traffic.inside.forward
        if (experts := self.architecture.experts) is not None:
            if RecomputeModule.MOE in self.modules:
                outside = elementwise_s(self.chip, 10.0 * self._stream, kernels=0)
                compute, sent = routed.forward - outside, np.zeros_like(outside)
                if shared is not None:
                    compute, sent = compute + shared.forward, self.block.forward
                found[RecomputeModule.MOE] = RepeatedPass(compute, sent, expert=exchanged)
            if RecomputeModule.MOE_ACTIVATION in self.modules:
                again = activation_s(self.chip, self.architecture, experts, self.sizes)
                found[RecomputeModule.MOE_ACTIVATION] = RepeatedPass(again)
            if shared is not None:
                found[RecomputeModule.SHARED_EXPERTS] = RepeatedPass(shared.forward, self.block.forward)
        return self._layer(RepeatedPass(layer.forward, tensor.forward, self._ring, exchanged), found)

    @property
    def _stream(self) -> FloatArray:
        return self.architecture.hidden * self.sizes.stream_tokens

    @property
    def _ring(self) -> FloatArray:
        return self.context.inside.forward

    def _attention(self, *, norms: int) -> dict[RecomputeModule, RepeatedPass]:
        """Modules of attention; each of ``norms`` outside of it and its own is read, written and cast once more."""
        found = {}
        latent = self.mixer in ATTENDING and self.architecture.latent_attention is not None
        norms += latent
        if self.mixer in ATTENDING:
            found[RecomputeModule.CORE_ATTENTION] = RepeatedPass(self.core.forward, context=self._ring)
        if norms and RecomputeModule.LAYER_NORM in self.modules:
            again = elementwise_s(self.chip, 4.0 * self._stream) + quantise_s(self.chip, self._stream)
            found[RecomputeModule.LAYER_NORM] = RepeatedPass(norms * again)
        if latent and RecomputeModule.MLA_UP_PROJECTION in self.modules:
            again = up_projection_s(self.chip, self.architecture, self.sizes)
            found[RecomputeModule.MLA_UP_PROJECTION] = RepeatedPass(again)
        return found

    def _layer(self, whole: RepeatedPass, found: dict[RecomputeModule, RepeatedPass]) -> RepeatableLayer:
        framework, narrow = self.chip.calibration.framework, self.sizes.saved_input_bytes < self.sizes.element_bytes
        alternate = alternate_products(framework, whole.compute, self.core.forward, narrow=narrow)
        asked = {module: again for module, again in found.items() if module in self.modules}
        return RepeatableLayer(whole, asked, alternate)
