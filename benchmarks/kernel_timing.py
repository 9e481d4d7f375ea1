"""Times kernels with PyTorch, which this module finds at run time: it is no dependency of the project.

Letters: m, n, k extents of a matrix product (m x k) @ (k x n).
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final

from benchmarks.kernel_cases import (
    Attention,
    Direction,
    Grouped,
    Kernel,
    Launch,
    LongRun,
    Operation,
    Product,
    Streaming,
)
from cluster_models.errors import InvalidConfiguration
from cluster_models.gpus import Precision

WARM_UP_CALLS: Final = 3
SAMPLES: Final = 7
SAMPLE_S: Final = 2e-3
"""Shortest sample: many times the resolution of CUDA events (0.5 us, CUDA runtime documentation)."""
MOST_CALLS: Final = 200
CACHE_BYTES: Final = 256 * 2**20
"""Operands rotate among copies of so many bytes in all, several times the 60 MB cache of a Hopper GPU."""
MOST_COPIES: Final = 16

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call over several samples of ``calls`` calls each, and which implementation ran."""

    median_s: float
    fastest_s: float
    slowest_s: float
    calls: int
    implementation: str


def torch_module() -> Any:
    """PyTorch; raises ``InvalidConfiguration`` where it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError as absent:
        raise InvalidConfiguration(
            "--measure", "torch", "PyTorch cannot be imported", "install a PyTorch that knows this machine's GPU"
        ) from absent


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Times calls on one device: by CUDA events on a GPU, by the clock on the CPU."""

    torch: Any
    device: str

    def timing(self, kernel: Kernel) -> Timing:
        """Seconds of ``kernel``; PyTorch's own error where this device or version cannot run it."""
        if isinstance(kernel, Attention) and self.device == "cuda":
            return self._fastest_attention(kernel)
        calls, implementation = self._calls(kernel)
        if isinstance(kernel, LongRun):
            return self._long_run(calls, kernel.held_s)
        return self._sampled(calls, implementation, divisor=kernel.queued if isinstance(kernel, Launch) else 1)

    def _fastest_attention(self, kernel: Attention) -> Timing:
        """The faster of PyTorch's two fused attentions: frameworks choose likewise."""
        attention = self.torch.nn.attention
        timings: list[Timing] = []
        reasons: list[str] = []
        for backend in (attention.SDPBackend.CUDNN_ATTENTION, attention.SDPBackend.FLASH_ATTENTION):
            try:
                with attention.sdpa_kernel([backend]):
                    timings.append(self._sampled(self._calls(kernel)[0], backend.name.lower()))
            except RuntimeError as refused:
                reasons.append(str(refused).splitlines()[0])
        if not timings:
            raise RuntimeError("; ".join(reasons))
        return min(timings, key=lambda timing: timing.median_s)

    def _sampled(self, calls: list[Call], implementation: str, divisor: int = 1) -> Timing:
        self._elapsed_s(calls, WARM_UP_CALLS)
        once = self._elapsed_s(calls, len(calls)) / len(calls)
        count = max(min(int(SAMPLE_S / max(once, 1e-9)), MOST_CALLS), len(calls), 1)
        samples = [self._elapsed_s(calls, count) / count / divisor for _ in range(SAMPLES)]
        return Timing(median(samples), min(samples), max(samples), count, implementation)

    def _long_run(self, calls: list[Call], held_s: float) -> Timing:
        """The later half of the samples: clocks have settled."""
        self._elapsed_s(calls, WARM_UP_CALLS)
        count = max(int(0.1 * held_s / max(self._elapsed_s(calls, len(calls)) / len(calls), 1e-9)), 1)
        started, samples = time.perf_counter(), [self._elapsed_s(calls, count) / count]
        while time.perf_counter() - started < held_s:
            samples.append(self._elapsed_s(calls, count) / count)
        late = samples[len(samples) // 2 :]
        return Timing(median(late), min(late), max(late), count, "matmul")

    def _elapsed_s(self, calls: list[Call], count: int) -> float:
        """Seconds of ``count`` calls in turn."""
        if self.device != "cuda":
            started = time.perf_counter()
            for index in range(count):
                calls[index % len(calls)]()
            return time.perf_counter() - started
        cuda = self.torch.cuda
        before, after = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        cuda.synchronize()
        before.record()
        for index in range(count):
            calls[index % len(calls)]()
        after.record()
        cuda.synchronize()
        return float(before.elapsed_time(after)) * 1e-3

    def _calls(self, kernel: Kernel) -> tuple[list[Call], str]:
        """Calls on separate operands, enough of them that none finds its own in the cache."""
        prepare, implementation = self._preparation(kernel)
        copies = 1
        if self.device == "cuda" and not isinstance(kernel, Launch):
            copies = min(max(round(CACHE_BYTES / operand_bytes(kernel)), 1), MOST_COPIES)
        return [prepare() for _ in range(copies)], implementation

    def _preparation(self, kernel: Kernel) -> tuple[Callable[[], Call], str]:
        """What makes one call with operands of its own, and the name of the implementation."""
        prepared: tuple[Callable[[], Call], str]
        match kernel:
            case Product() if kernel.precision is Precision.FP8:
                prepared = partial(self._scaled, kernel), "scaled_mm"
            case Product() | LongRun():
                prepared = partial(self._product, kernel), "matmul"
            case Grouped():
                prepared = self._experts(kernel)
            case Attention():
                prepared = partial(self._attention, kernel), "scaled_dot_product_attention"
            case Streaming():
                prepared = partial(self._streaming, kernel), str(kernel.operation)
            case Launch():
                prepared = partial(self._launches, kernel), "add"
        return prepared

    def _experts(self, kernel: Grouped) -> tuple[Callable[[], Call], str]:
        public = getattr(self.torch.nn.functional, "grouped_mm", None)
        function = public or getattr(self.torch, "_grouped_mm", None)  # its name before it became public
        if function is None:
            return partial(self._expert_loop, kernel), "loop"
        return partial(self._grouped, kernel, function), "grouped_mm"

    def _random(self, *extents: int) -> Any:
        return self.torch.randn(extents, device=self.device, dtype=self.torch.bfloat16)

    def _operands(self, direction: Direction, extents: tuple[int, int, int], *groups: int) -> tuple[Any, Any]:
        """Both factors laid out as a linear layer with k x n weights, stored transposed, leaves them."""
        m, n, k = extents
        left = (
            self._random(*groups, k, m).mT
            if direction is Direction.WEIGHT_GRADIENT
            else self._random(*groups, m, k)
        )
        right = self._random(*groups, n, k).mT if direction is Direction.FORWARD else self._random(*groups, k, n)
        return left, right

    def _product(self, kernel: Product | LongRun) -> Call:
        direction = kernel.direction if isinstance(kernel, Product) else Direction.FORWARD
        return partial(self.torch.matmul, *self._operands(direction, (kernel.m, kernel.n, kernel.k)))

    def _scaled(self, kernel: Product) -> Call:
        """Scale per tensor; 8-bit products want the right factor stored by columns, whatever the direction."""
        torch, eight = self.torch, self.torch.float8_e4m3fn
        left, right = self._random(kernel.m, kernel.k).to(eight), self._random(kernel.n, kernel.k).to(eight).t()
        one = torch.ones((), device=self.device)
        product = torch._scaled_mm  # noqa: SLF001  # under this name in every release that has 8-bit products
        return partial(product, left, right, one, one, out_dtype=torch.bfloat16)

    def _grouped(self, kernel: Grouped, function: Any) -> Call:
        """Tokens of all experts stand in one matrix; a weight gradient cuts the contraction instead of rows."""
        g, m, n, k = kernel.groups, kernel.m, kernel.n, kernel.k
        each = k if kernel.direction is Direction.WEIGHT_GRADIENT else m
        ends = self.torch.arange(1, g + 1, device=self.device, dtype=self.torch.int32) * each
        if kernel.direction is Direction.WEIGHT_GRADIENT:
            return partial(function, self._random(g * k, m).t(), self._random(g * k, n), offs=ends)
        weights = self._random(g, n, k).mT if kernel.direction is Direction.FORWARD else self._random(g, k, n)
        return partial(function, self._random(g * m, k), weights, offs=ends)

    def _expert_loop(self, kernel: Grouped) -> Call:
        left, right = self._operands(kernel.direction, (kernel.m, kernel.n, kernel.k), kernel.groups)
        pairs = list(zip(left, right, strict=True))

        def run() -> None:
            for one, other in pairs:
                self.torch.matmul(one, other)

        return run

    def _attention(self, kernel: Attention) -> Call:
        query = self._random(1, kernel.heads, kernel.sequence, kernel.head_size)
        key, value = (self._random(1, kernel.kv_heads, kernel.sequence, kernel.head_size) for _ in range(2))
        call = partial(
            self.torch.nn.functional.scaled_dot_product_attention,
            is_causal=True,
            enable_gqa=kernel.kv_heads != kernel.heads,
        )
        if kernel.direction is Direction.FORWARD:
            return partial(call, query, key, value)
        inputs = tuple(tensor.requires_grad_() for tensor in (query, key, value))
        output = call(*inputs)
        return partial(self.torch.autograd.grad, output, inputs, self.torch.randn_like(output), retain_graph=True)

    def _streaming(self, kernel: Streaming) -> Call:
        torch = self.torch
        if kernel.operation is Operation.ADAM:
            weights = torch.nn.Parameter(torch.zeros(kernel.rows, device=self.device))
            weights.grad = torch.ones_like(weights)
            return partial(torch.optim.Adam([weights], fused=True).step)
        if kernel.operation is Operation.GATED_ACTIVATION:
            return partial(torch.nn.functional.glu, self._random(kernel.rows, 2 * kernel.width))
        source = self._random(kernel.rows, kernel.width)
        if kernel.operation is Operation.COPY:
            return partial(torch.empty_like(source).copy_, source)
        return partial(torch.nn.functional.rms_norm, source, (kernel.width,), self._random(kernel.width))

    def _launches(self, kernel: Launch) -> Call:
        one = self.torch.zeros(1, device=self.device)

        def run() -> None:
            for _ in range(kernel.queued):
                one.add_(1.0)

        return run


def operand_bytes(kernel: Kernel) -> float:
    """Bytes that one call reads and writes, so that copies of its operands can outgrow the cache."""
    if isinstance(kernel, Product | LongRun | Grouped):
        groups = kernel.groups if isinstance(kernel, Grouped) else 1
        return 2.0 * groups * (kernel.m * kernel.k + kernel.k * kernel.n + kernel.m * kernel.n)
    if isinstance(kernel, Attention):
        return 4.0 * kernel.head_size * kernel.sequence * (kernel.heads + kernel.kv_heads)
    return kernel.moved_bytes if isinstance(kernel, Streaming) else 4.0
