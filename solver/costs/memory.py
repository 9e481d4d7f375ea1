"""Peak memory of every pipeline rank, by part."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from cluster_models.model.architecture import Architecture
from cluster_models.training.framework_choices import CudaGraphs
from cluster_models.training.workload import Sharding, TrainingWorkload
from solver.candidates import CandidateBatch, FloatArray, IntArray, select_rows
from solver.costs.activations import LayerActivations, LayerTensors, kept_activations, layer_tensors
from solver.costs.adapters import trained_parameters
from solver.costs.calibration import Calibration, calibration_of
from solver.costs.communication_buffers import communicator_bytes, passing_bytes, user_buffer_bytes
from solver.costs.compute import processor
from solver.costs.held_layers import Moment, distinct_holders, held_layers
from solver.costs.host_offload import HOST_SHARE, HostStates, offload_share
from solver.costs.in_flight import held_at_peaks
from solver.costs.launching import lagging
from solver.costs.local_sizes import LocalSizes, is_sharded, local_sizes
from solver.costs.model_ends import deferred_head_bytes, deferred_products, logit_bytes
from solver.costs.model_states import frozen_weights, largest_matrix, model_states, step_bytes
from solver.costs.parameters import by_rank, local_parameters
from solver.costs.recomputation import RecomputePolicies
from solver.costs.routed_loads import RoutedLoads
from solver.costs.split_backward import calibration_under, waiting_bytes

_PIECES: Final = 0.1
"""Share of memory lost in pieces: it rejects 7 of nanotron's 1,027 runs, and 84 % of those that failed."""
_FORWARD_LOGITS: Final = 10.0
"""Bytes of a logit at most where no gradient follows: 16 bits, an FP32 copy, and its log-softmax."""
_SURFACES: Final = 2.0
"""Inputs and outputs of a graph that stay at their place for each layer and micro-batch in flight (Transformer
Engine's ``make_graphed_callables``); estimated: Megatron-Bridge's page on graphs says a few GB, with a pipeline
10."""


@dataclass(frozen=True, slots=True)
class StageMemoryParts:
    """Peak bytes on each GPU of every pipeline rank, all (n, P); fields as in ``rank_costs.StageMemory``.

    ``host_bytes`` lie in the node's memory, ``disk_bytes`` on its disks, and are not part of the total.
    """

    weights_bytes: FloatArray
    gradients_bytes: FloatArray
    optimizer_bytes: FloatArray
    activations_bytes: FloatArray
    logits_bytes: FloatArray
    communication_bytes: FloatArray
    runtime_bytes: FloatArray
    fragmentation_bytes: FloatArray
    limit_bytes: FloatArray
    host_bytes: FloatArray
    disk_bytes: FloatArray

    @property
    def total_bytes(self) -> FloatArray:
        """(n, P) sum of all parts."""
        states = self.weights_bytes + self.gradients_bytes + self.optimizer_bytes
        passing = self.activations_bytes + self.logits_bytes + self.communication_bytes
        return states + passing + self.runtime_bytes + self.fragmentation_bytes


def stage_memory(  # noqa: PLR0913 - each a fact of its own
    batch: CandidateBatch,
    layers: IntArray,
    *,
    architecture: Architecture,
    workload: TrainingWorkload,
    gpu: GpuKind,
    micro_batches: IntArray,
    calibration: Calibration | None = None,
    offloaded_layers: int = 0,
    routed: RoutedLoads | None = None,
) -> StageMemoryParts:
    """Memory of candidates that share their pipeline and virtual pipeline sizes and their schedule.

    ``layers``, (C, K) or by candidate (n, C, K), counts layers of each kind in every chunk, ``micro_batches`` (n,)
    those of a step.  Activations of ``offloaded_layers`` of each rank wait in the host's memory.  With ``routed``
    counts, tokens of the busiest expert rank in the worst layer stay.
    The peak is either in a backward pass or, where the optimizer's step takes more than activations had taken, in
    that step, which then counts as optimizer.
    """
    account = MemoryAccount.of(
        batch,
        layers,
        architecture=architecture,
        workload=workload,
        gpu=gpu,
        micro_batches=micro_batches,
        calibration=calibration,
        offloaded_layers=offloaded_layers,
        routed=routed,
    )
    return account.parts(RecomputePolicies.of(batch, account.calibration.framework))


@dataclass(frozen=True, slots=True, eq=False)
class MemoryAccount:
    """Memory of candidates before it is known what they recompute, which ``parts`` adds.

    ``order`` (C,): columns of chunks as the model runs through them; ``alike`` (n,): number of the candidates that
    hold as many micro-batches of as many layers as each one.  ``tensors`` are all activations of a layer,
    ``gathered`` those with the gathered sequences that lag behind where the framework has any; ``share`` (n, P) of
    these is held.  Activations are those of the fullest of ``moments``.  ``settled`` has everything but
    activations, of which ``fixed`` (n, P) without logits is beyond the limit.  ``step`` (n, P): bytes of the
    optimizer's step, ``left`` (n, P) those that it leaves to the allocator while nothing else wants them.
    All three are those of nothing offloaded; of ``states``, what all offloaded states take to the node, ``offload``
    is the share, (n, 1) or (m, n, 1) by policy, and ``host_limit_bytes`` the room of a GPU there.  ``waits`` (n, 1)
    is the share of the layers whose activations wait in the node; those of one of them are on their way.
    """

    layers: IntArray
    order: IntArray
    alike: IntArray
    architecture: Architecture
    calibration: Calibration
    sizes: LocalSizes
    tensors: LayerTensors
    gathered: LayerTensors | None
    share: FloatArray
    moments: tuple[Moment, ...]
    step: FloatArray
    left: FloatArray
    settled: StageMemoryParts
    fixed: FloatArray
    states: HostStates
    offload: FloatArray
    waits: FloatArray
    host_limit_bytes: float
    disk_limit_bytes: float

    @classmethod
    def of(  # noqa: PLR0913 - each a fact of its own
        cls,
        batch: CandidateBatch,
        layers: IntArray,
        *,
        architecture: Architecture,
        workload: TrainingWorkload,
        gpu: GpuKind,
        micro_batches: IntArray,
        calibration: Calibration | None = None,
        offloaded_layers: int = 0,
        routed: RoutedLoads | None = None,
        spread: IntArray | None = None,
    ) -> MemoryAccount:
        """The account of candidates; see ``stage_memory``.

        Those with equal ``spread`` (n,) hold equal ``layers``.
        """
        calibration = calibration_of(gpu, workload.framework) if calibration is None else calibration
        calibration = calibration_under(calibration, batch)
        framework = calibration.framework
        imbalance = None if routed is None else routed.worst(calibration)
        sizes = local_sizes(batch, workload, calibration, imbalance=imbalance, most=True)
        parameters = local_parameters(batch, layers, architecture)
        stages = int(batch.pipeline[0])
        first, alike = distinct_holders(micro_batches, layers, spread)
        held_by = layers[first] if layers.ndim > 2 else layers
        peaks = list(held_at_peaks(batch.take(first), micro_batches[first], framework))
        in_flight = peaks[0].activations
        on_rank = np.maximum(by_rank(np.atleast_2d(held_by.sum(axis=-1)), stages), 1.0)
        learns = workload.optimizer.runs_backward
        stays = learns * np.maximum(1.0 - offloaded_layers / on_rank, 0.0)[:, None]
        nothing = np.zeros((len(batch), stages))
        logits, last = nothing.copy(), batch.last_column(layers.shape[-2]) % stages
        ended = framework if learns else replace(framework, logit_bytes=min(framework.logit_bytes, _FORWARD_LOGITS))
        logits[:, last] = (1 + architecture.prediction_layers) * logit_bytes(architecture, sizes, ended)
        pipelined = stages > 1 and workload.adapters is None
        waiting = deferred_products(framework, architecture, micro_batches.astype(np.float64), pipelined=pipelined)
        logits[:, last] += deferred_head_bytes(architecture, sizes, waiting)
        trained = trained_parameters(batch, layers, architecture, workload, parameters)
        whole: FloatArray | float = 0.0
        if workload.optimizer.takes_matrices:  # gate and up-projection are one matrix
            whole = largest_matrix(architecture, batch) * (1.0 + architecture.gated_mlp)
        states = model_states(batch, trained, workload, calibration, micro_batches, least_owned=whole)
        frozen = frozen_weights(batch, parameters, architecture, workload, calibration)
        buffers = passing_bytes(batch, sizes, architecture) + communicator_bytes(batch, calibration)
        buffers = buffers + user_buffer_bytes(sizes, architecture, framework)
        bucket = np.where(batch.data * batch.context > 1, framework.bucket_bytes, 0.0)
        boundary = sizes.element_bytes * architecture.hidden * sizes.stream_tokens
        output = boundary[:, None] * (framework.keeps_stage_outputs and stages > 1)
        surfaces = _SURFACES * boundary[:, None] * (framework.cuda_graphs is CudaGraphs.PARTIAL)
        wait = _weight_bytes(batch, layers, architecture, sizes).reshape(-1, *in_flight.shape[1:])
        gathered, share = None, nothing
        if framework.keeps_gathered_inputs:
            gathered = layer_tensors(architecture, sizes, calibration, lagging=1.0)
            share = lagging(
                processor(gpu, workload.precision, calibration),
                architecture,
                sizes,
                in_flight=in_flight.max(axis=1)[alike],
                passes=(held_by.sum(axis=-1).reshape(-1, *in_flight.shape[1:]) * in_flight).sum(axis=1)[alike],
                micro_batches=micro_batches,
                domain=gpu.scale_up_domain_gpus,
            )
        settled = StageMemoryParts(
            weights_bytes=states.weights + frozen,
            gradients_bytes=states.gradients,
            optimizer_bytes=states.optimizer,
            activations_bytes=nothing,
            logits_bytes=logits,
            communication_bytes=buffers[:, None] + np.minimum(bucket[:, None], states.gradients),
            runtime_bytes=np.full((len(batch), stages), calibration.runtime_bytes),
            fragmentation_bytes=nothing,
            limit_bytes=np.full((len(batch), stages), gpu.memory_bytes * (1.0 - workload.memory_headroom)),
            host_bytes=nothing,
            disk_bytes=nothing,
        )
        return cls(
            layers=layers,
            order=batch.model_order(layers.shape[-2]),
            alike=alike,
            architecture=architecture,
            calibration=calibration,
            sizes=sizes,
            tensors=layer_tensors(architecture, sizes, calibration, lagging=0.0),
            gathered=gathered,
            share=share,
            moments=tuple(
                Moment(
                    in_flight=(held := peak.activations * stays),
                    held_layers=(own := held_layers(held_by, held)[alike]),
                    beside=output * held.sum(axis=1)[alike]
                    + (wait * peak.waiting[alike]).sum(axis=1)
                    + surfaces * own.sum(axis=-1),
                )
                for peak in peaks
            ),
            step=step_bytes(workload) * (states.owned if learns else _largest_tensor(architecture, batch)),
            left=framework.left_step_bytes * states.owned * is_sharded(batch, Sharding.OPTIMIZER)[:, None],
            settled=settled,
            fixed=settled.total_bytes - logits - settled.limit_bytes,
            states=states.offloaded,
            offload=offload_share(batch, workload),
            waits=batch.offloaded_layers[:, None] / architecture.layers,
            host_limit_bytes=HOST_SHARE * gpu.host_share.memory_bytes,
            disk_limit_bytes=gpu.host_share.disk_bytes,
        )

    def parts(self, policies: RecomputePolicies) -> StageMemoryParts:
        """The memory of the candidates by what they recompute."""
        activations, held = self._activations(policies, self.tensors)
        fragmentation = self.calibration.fragmentation_share * (activations + self.settled.logits_bytes)
        passing = activations + self.settled.logits_bytes + fragmentation
        here, states = 1.0 - self.offload, self.states
        needed = np.maximum(here * self.step - passing, 0.0)
        settled = replace(
            self.settled,
            weights_bytes=self.settled.weights_bytes - self.offload * states.weights,
            gradients_bytes=self.settled.gradients_bytes - self.offload * states.gradients,
            optimizer_bytes=self.settled.optimizer_bytes - self.offload * states.optimizer + needed,
            activations_bytes=activations,
            fragmentation_bytes=fragmentation,
            host_bytes=self.offload * states.host + self.waits * held,
            disk_bytes=self.offload * states.disk,
        )
        if self.calibration.framework.left_step_bytes:  # as far as there is room
            left = np.maximum(here * (self.step + self.left) - passing, 0.0) - needed
            room = np.maximum(settled.limit_bytes - settled.total_bytes, 0.0)
            settled = replace(settled, optimizer_bytes=settled.optimizer_bytes + np.minimum(left, room))
        if self.gathered is None:
            return settled
        waiting = self.share * (self._activations(policies, self.gathered)[0] - activations)
        return _with_waiting(settled, waiting, self.calibration)

    def excess_bytes(self, policies: RecomputePolicies, *, again: bool = True) -> FloatArray:
        """(n, P) what ``parts`` needs beyond the limit; (m, n, P) where ``policies`` (m, 1) are for all candidates.

        Where the node lacks more room for what is offloaded, what it lacks.  Without ``again`` as if what is
        computed again of a layer were not alive then: no recomputation needs less than that of all layers so.
        """
        activations, held = self._activations(policies, self.tensors, again=again)
        share = 1.0 + self.calibration.fragmentation_share
        if self.gathered is None or not again:
            passing = share * (activations + self.settled.logits_bytes)
            fixed = self.fixed - self.offload * self.states.total
            excess = fixed + np.maximum(passing, (1.0 - self.offload) * self.step)
            if not self.offload.any() and not self.waits.any():
                return np.asarray(excess)
            excess = np.maximum(excess, self.offload * self.states.disk - self.disk_limit_bytes)
            return np.maximum(excess, self.offload * self.states.host + self.waits * held - self.host_limit_bytes)
        parts = self.parts(policies)
        return parts.total_bytes - parts.limit_bytes

    def needed_offload(self, policies: RecomputePolicies) -> FloatArray:
        """(n, P), or (m, n, P), the least share of the states to offload so that a GPU holds the rest, or above 1.

        Both what is held in a backward pass and what is while the optimizer steps fall with the share.
        """
        activations = self._activations(policies, self.tensors)[0]
        passing = (1.0 + self.calibration.fragmentation_share) * (activations + self.settled.logits_bytes)
        freed = self.states.total
        shares = [_share(self.fixed + passing, freed), _share(self.fixed + self.step, freed + self.step)]
        return np.maximum(*shares)

    @property
    def most_offload(self) -> FloatArray:
        """(n, P) the largest share of its states for which a GPU has room in its node; 0 where it offloads none."""
        share = self.host_limit_bytes / np.maximum(self.states.host, 1.0)
        return np.where(self.states.host > 0, share, 0.0)

    def take(self, rows: IntArray | slice) -> MemoryAccount:
        """The account of some candidates."""
        names = [part.name for part in fields(self)]
        every = ("layers", "order", "architecture", "calibration")
        taken = {name: select_rows(getattr(self, name), rows) for name in names if name not in every}
        return replace(self, **taken, layers=self.layers[rows] if self.layers.ndim > 2 else self.layers)

    def _activations(
        self, policies: RecomputePolicies, tensors: LayerTensors, *, again: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """(n, P), or (m, n, P), bytes of activations at the peak, and those that layers keep, wherever they lie."""
        kept = kept_activations(self.architecture, self.sizes, self.calibration, tensors, policies)
        held = np.asarray(np.maximum.reduce([self._held(moment, kept, policies) for moment in self.moments]))
        here = held
        if self.waits.any():
            here = held * (1.0 - np.maximum(self.waits - 1.0 / self.architecture.layers, 0.0))
        working = kept.working if again else tensors.streamed()
        return np.asarray(here + working[..., None]), held

    def _held(self, moment: Moment, kept: LayerActivations, policies: RecomputePolicies) -> FloatArray:
        """(n, P), or (m, n, P), bytes that layers keep at a moment."""
        kinds = range(moment.held_layers.shape[-1])
        held = sum((moment.held_layers[..., kind] * kept.layers[..., kind, None] for kind in kinds), moment.beside)
        if (policies.layers > 0).any():
            beyond = moment.held_layers - self._held_whole(moment, policies)
            beyond = np.where((policies.layers > 0)[:, None, None], beyond, 0.0)
            held = held + (beyond * (kept.whole - kept.layers)[:, None, :]).sum(axis=-1)
        return np.asarray(held)

    def _held_whole(self, moment: Moment, policies: RecomputePolicies) -> FloatArray:
        """(n, P, K) layers held that run again whole; those alike with the same limit have the same."""
        codes = (2 * policies.layers + policies.full) * len(moment.in_flight) + self.alike
        _, first, row = np.unique(codes, return_index=True, return_inverse=True)
        layers = self.layers[first] if self.layers.ndim > 2 else self.layers
        again = select_rows(policies, first).whole_layers(self.architecture, layers, self.order)
        return held_layers(again, moment.in_flight[self.alike[first]])[row]


def _largest_tensor(architecture: Architecture, batch: CandidateBatch) -> FloatArray:
    """(n, 1) weights of the largest tensor on one GPU, of a layer or of embedding and head."""
    table = architecture.vocabulary * architecture.hidden / batch.tensor
    return np.asarray(np.maximum(largest_matrix(architecture, batch), table)[:, None])


def _share(excess_bytes: FloatArray, freed_bytes: FloatArray) -> FloatArray:
    """Share of ``freed_bytes`` that makes up for an excess; infinite where there is one and nothing to free."""
    share = np.divide(excess_bytes, freed_bytes, out=np.full_like(excess_bytes, np.inf), where=freed_bytes > 0)
    return np.where(excess_bytes > 0, share, 0.0)


def _weight_bytes(
    batch: CandidateBatch, layers: IntArray, architecture: Architecture, sizes: LocalSizes
) -> FloatArray:
    """(n, C) bytes that wait for the gradients of weights of a micro-batch, the head's included.

    Nothing where no schedule runs them apart.
    """
    if not batch.runs.splits_backward:
        return np.zeros((1, layers.shape[-2]))
    waiting = waiting_bytes(architecture, sizes, layers)
    heads = np.full(len(batch), 1.0 + architecture.prediction_layers)
    waiting[:, batch.last_column(layers.shape[-2])] += deferred_head_bytes(architecture, sizes, heads)
    return waiting


def _with_waiting(
    settled: StageMemoryParts, waiting_bytes: FloatArray, calibration: Calibration
) -> StageMemoryParts:
    """``settled`` and blocks (n, P) that wait for the GPU, as far as there is room for them.

    PyTorch's allocator waits for such blocks before it reports that memory is out (``release_cached_blocks``, which
    synchronizes their events); memory taken back again and again is in pieces, ``_PIECES`` of all that was wanted.
    """
    fragmentation = calibration.fragmentation_share * waiting_bytes
    wanted = settled.total_bytes + waiting_bytes + fragmentation
    short = wanted > settled.limit_bytes
    pieces = np.minimum(_PIECES * wanted, waiting_bytes + fragmentation)
    return replace(
        settled,
        activations_bytes=settled.activations_bytes + np.where(short, 0.0, waiting_bytes),
        fragmentation_bytes=settled.fragmentation_bytes + np.where(short, pieces, fragmentation),
    )
