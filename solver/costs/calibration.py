"""The few numbers of the cost model that are fitted or estimated rather than taken from a data sheet."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Final

from cluster_models.calibration.fitted import FittedParameters, FittedValue
from cluster_models.cluster.gpus import GpuKind
from cluster_models.errors import InvalidCluster
from cluster_models.training.frameworks import Framework


class Owner(StrEnum):
    """Owner of a parameter, which has one value for each GPU kind, or for each framework generation."""

    GPU = "gpus"
    FRAMEWORK = "frameworks"


@dataclass(frozen=True, slots=True)
class Parameter:
    """How one parameter may be fitted: its owner and the range that is physically possible."""

    owner: Owner
    low: float
    high: float


def _of_gpu(low: float, high: float) -> Any:
    return field(metadata={"parameter": Parameter(Owner.GPU, low, high)})


def _of_framework(low: float, high: float) -> Any:
    return field(metadata={"parameter": Parameter(Owner.FRAMEWORK, low, high)})


@dataclass(frozen=True, slots=True)
class Calibration:
    """Behaviour of one GPU kind under one framework generation; use of each in ``docs/cost_model.md``.

    Parameters of the GPU kind.  ``sustained_share``: of the achievable matrix rate, what a long run under its power
    limit keeps in 16 bits; ``fp8_share``, ``mxfp8_share``, ``nvfp4_share``, ``fp32_share`` the same for other
    formats.  ``k_half``: contraction at which a matrix product runs at half its limit; ``misaligned_share``: of the
    rate, what is left where rows do not start on 16-byte boundaries.
    ``attention_forward_share, attention_backward_share``: of the 16-bit peak, reached by fused attention with long
    sequences and wide heads; ``head_half`` and ``sequence_half`` the head size and sequence at which half is left.
    ``ampere_attention``: of these shares, what attention kernels written for Ampere keep, which leave asynchronous
    matrix instructions of newer GPUs unused (arXiv 2407.08608, section 1: 1.5 to 2 times slower on H100).
    ``memory_share``: of the data sheet's memory bandwidth.  ``domain_share``: of the speed that the collective
    curves give to links of its family, what rings of tensor and data ranks reach (less than 1 where cards have no
    peer access and send through the host's memory).  ``grouped_share``: of the matrix rate, what grouped products
    of experts reach.

    Parameters of the framework.  ``kernel_share``: of the GPU's own matrix rate, what the framework's kernels keep.
    ``unfused_passes``: without fused kernels, bytes through memory over those of fused ones.  ``kernel_s``: launch
    and tail of one kernel.  ``layer_host_s``: what the host takes to launch one layer's kernels in one pass,
    without CUDA graphs; ``tensor_host_s``: what its tensor parallel collectives add.  ``transfer_stall_s``: time
    that the thread which moves pipeline transfers between nodes takes from the host in a layer and pass, for each
    tensor rank, since a group waits for whichever rank is late.  ``tensor_overlap``: share hidden of those tensor
    parallel collectives that can run beside a matrix product of the backward pass; ``collective_skew_s``: how far
    apart the ranks of a tensor group start one, for each doubling of the group.  ``sparse_layer_s``: host time
    that routing adds to a sparse layer and pass, ``expert_host_s``: the same for each expert on a GPU.
    ``expert_bias_bytes``: memory traffic per routed token, pass and element of an expert's outer and inner width
    that biases and the clamped activations of such models cost where no kernel fuses them.  ``expert_imbalance``:
    load of the busiest expert rank over the mean.  ``sparse_host_s``: what the host takes in a pass to launch a
    sparse layer of which it must know how many tokens each expert got, without CUDA graphs.  ``dispatch_overlap``:
    share of a sparse layer's compute beside which its dispatch and combination can run, where the framework
    overlaps them; ``overlap_host_s``: what the host then takes for a sparse layer and pass.  ``data_overlap``:
    share of the last backward (first forward) that gradient reduction (parameter gathering) can use, where the
    framework overlaps them.  ``ring_decline``: how much longer such a collective takes with each doubling of the
    domains that its ring joins.
    ``tail_collectives``: reductions and gathers at the ends of a step whose latency nothing hides, each as many
    transfers as its ring has further ranks.  ``shard_host_s``: host time of a gather of sharded parameters for
    each tensor and data rank, where shards are copied one by one.  ``gather_contention``: of the time that
    ZeRO-3's gathers and scatters take alone, what they add to the compute beside them: their kernels occupy
    multiprocessors and memory bandwidth, and copies into and out of flat buffers join them.  ``straggling_share``:
    what compute loses with each doubling of the nodes.  ``slowdown``: factor on compute, and on collectives inside
    a node, for reasons that no other parameter names; only own runs are fitted with it.  ``step_overhead_s``: work
    once per step, however much
    there is to do.

    Memory.  ``runtime_bytes``: CUDA context, libraries and workspaces; ``group_bytes``: communication
    buffers of one process group; ``fragmentation_share``: allocator loss as a share of what comes and goes.
    """

    framework: Framework
    sustained_share: float = _of_gpu(0.1, 1.0)
    fp8_share: float = _of_gpu(0.1, 1.0)
    mxfp8_share: float = _of_gpu(0.1, 1.0)
    nvfp4_share: float = _of_gpu(0.1, 1.0)
    fp32_share: float = _of_gpu(0.1, 1.0)
    k_half: float = _of_gpu(0.0, 1000.0)
    attention_forward_share: float = _of_gpu(0.05, 1.0)
    attention_backward_share: float = _of_gpu(0.05, 1.0)
    ampere_attention: float = _of_gpu(0.2, 1.0)
    head_half: float = _of_gpu(0.0, 256.0)
    sequence_half: float = _of_gpu(0.0, 4096.0)
    misaligned_share: float = _of_gpu(0.01, 1.0)
    memory_share: float = _of_gpu(0.2, 1.0)
    domain_share: float = _of_gpu(0.1, 1.0)
    grouped_share: float = _of_gpu(0.05, 1.0)
    kernel_share: float = _of_framework(0.2, 1.2)
    unfused_passes: float = _of_framework(1.0, 4.0)
    kernel_s: float = _of_framework(0.0, 1e-4)
    layer_host_s: float = _of_framework(0.0, 5e-3)
    tensor_host_s: float = _of_framework(0.0, 5e-3)
    transfer_stall_s: float = _of_framework(0.0, 5e-3)
    tensor_overlap: float = _of_framework(0.0, 1.0)
    collective_skew_s: float = _of_framework(0.0, 1e-3)
    sparse_layer_s: float = _of_framework(0.0, 5e-3)
    expert_host_s: float = _of_framework(0.0, 2e-4)
    expert_bias_bytes: float = _of_framework(0.0, 200.0)
    expert_imbalance: float = _of_framework(1.0, 4.0)
    sparse_host_s: float = _of_framework(0.0, 2e-2)
    dispatch_overlap: float = _of_framework(0.0, 1.0)
    overlap_host_s: float = _of_framework(0.0, 2e-2)
    data_overlap: float = _of_framework(0.0, 1.0)
    ring_decline: float = _of_framework(0.0, 1.0)
    tail_collectives: float = _of_framework(0.0, 20.0)
    shard_host_s: float = _of_framework(0.0, 1e-4)
    gather_contention: float = _of_framework(0.0, 1.5)
    straggling_share: float = _of_framework(0.0, 0.03)
    slowdown: float = _of_framework(0.25, 4.0)
    step_overhead_s: float = _of_framework(0.0, 1.0)
    runtime_bytes: float = _of_gpu(0.0, 16e9)
    group_bytes: float = _of_framework(0.0, 2e9)
    fragmentation_share: float = _of_framework(0.0, 0.5)
    source: str = ""

    def __post_init__(self) -> None:
        for name in PARAMETERS:
            value = getattr(self, name)
            if not value >= 0:
                raise InvalidCluster(f"calibration.{name}", value, "must not be negative")


PARAMETERS: Final[Mapping[str, Parameter]] = {
    column.name: column.metadata["parameter"] for column in fields(Calibration) if "parameter" in column.metadata
}
"""Every parameter that can be fitted, by name."""


@cache
def shipped_parameters() -> FittedParameters:
    """Parameters fitted on published measurements; written by ``python -m benchmarks.fit``."""
    tables = _read("fitted.toml")
    owners = {
        owner: {
            name: {parameter: FittedValue(**value) for parameter, value in values.items()}
            for name, values in tables.get(owner, {}).items()
        }
        for owner in Owner
    }
    return FittedParameters(owners[Owner.GPU], owners[Owner.FRAMEWORK], tables["source"])


def calibration_of(gpu: GpuKind, framework: Framework, own: FittedParameters | None = None) -> Calibration:
    """The parameters of ``gpu`` under ``framework``.

    Later ones win: defaults, the vendor's, the GPU kind's, the framework's estimates, then what was fitted on
    published steps, then ``own``, fitted by the user.  Parameters fitted for a family do not reach a kind whose
    estimates are more special, unless these say that it has the same ``chip``: then they replace what they name.
    """
    return _shipped(gpu, framework) if own is None else _calibration(gpu, framework, (shipped_parameters(), own))


@lru_cache(maxsize=256)
def _shipped(gpu: GpuKind, framework: Framework) -> Calibration:
    return _calibration(gpu, framework, (shipped_parameters(),))


def estimated_calibration(gpu: GpuKind, framework: Framework) -> Calibration:
    """The estimates alone, as they were before anything was fitted."""
    return _calibration(gpu, framework, ())


def default_values(gpu: GpuKind) -> dict[str, float]:
    """Every parameter as taken for a GPU kind or framework generation of which nothing is known."""
    tables = _tables()
    values = {**tables["defaults"], **tables["vendors"].get(gpu.vendor, {})}
    return {name: float(values[name]) for name in PARAMETERS}


def _calibration(gpu: GpuKind, framework: Framework, fitted: tuple[FittedParameters | None, ...]) -> Calibration:
    tables = _tables()
    special = _special_estimates(gpu)
    chip = special.get("chip", "")
    values: dict[str, Any] = {
        **tables["defaults"],
        **tables["vendors"].get(gpu.vendor, {}),
        **tables["kinds"].get(chip, {}),
        **special,
        **_for_framework(tables["frameworks"], framework),
    }
    for each in fitted:
        if each is not None:
            of_chip = {name: value.value for name, value in each.gpus.get(chip, {}).items() if name not in special}
            values |= of_chip | _fitted_for(each, gpu, framework)
    fused = framework.fused_attention and gpu.fuses_attention
    framework = replace(framework, fused_attention=fused)
    return Calibration(framework=framework, source=values["source"], **{name: values[name] for name in PARAMETERS})


def _special_estimates(gpu: GpuKind) -> Mapping[str, Any]:
    """The estimates of the family of kinds that ``gpu`` belongs to; empty where there are none."""
    kinds: dict[str, dict[str, Any]] = _tables()["kinds"]
    return kinds.get(longest_prefix(kinds, gpu.name) or "", {})


def longest_prefix(names: Mapping[str, Any], kind_name: str) -> str | None:
    """The key of ``names`` that covers a GPU kind, so that ``H100`` stands for every H100 without its own.

    A key ends where a word of the name ends: ``H20`` does not cover an H200.
    """
    name = kind_name.upper()
    covering = (
        key for key in names if name.startswith(key.upper()) and not name[len(key) : len(key) + 1].isalnum()
    )
    return max(covering, key=len, default=None)


def has_kind(fitted: FittedParameters, gpu: GpuKind) -> bool:
    """Whether ``fitted`` says anything of ``gpu``."""
    return longest_prefix(fitted.gpus, gpu.name) is not None


def has_framework(fitted: FittedParameters, framework: Framework) -> bool:
    """Whether ``fitted`` says anything of ``framework``, or of the one that was measured in its place.

    Parameters of the generation that a described framework is like say nothing of its own runs.
    """
    return not {framework.name, framework.calibrated_as}.isdisjoint(fitted.frameworks)


def kind_family(gpu: GpuKind) -> str:
    """The GPU kind without form factor and memory size: ``A100`` for every A100.

    A kind with estimates of its own is a family of its own: a power limit changes what the same chip reaches.
    """
    estimated = longest_prefix(_tables()["kinds"], gpu.name) or ""
    return max(gpu.name.split("-")[0], estimated, key=len)


def _fitted_for(fitted: FittedParameters, gpu: GpuKind, framework: Framework) -> dict[str, float]:
    kind = longest_prefix(fitted.gpus, gpu.name) or ""
    estimated = longest_prefix(_tables()["kinds"], gpu.name) or ""
    of_kind = fitted.gpus[kind] if len(kind) >= max(len(estimated), 1) else {}
    found = {**of_kind, **_for_framework(fitted.frameworks, framework)}
    return {name: each.value for name, each in found.items()}


def _for_framework(tables: Mapping[str, Mapping[str, Any]], framework: Framework) -> dict[str, Any]:
    """The entry of ``framework``, upon those of the generations that were measured in its place."""
    return {key: value for name in framework.fitted_under for key, value in tables.get(name, {}).items()}


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return _read("calibration.toml")


def _read(name: str) -> dict[str, Any]:
    text = resources.files("solver.costs").joinpath("data", name).read_text(encoding="utf-8")
    return tomllib.loads(text)
