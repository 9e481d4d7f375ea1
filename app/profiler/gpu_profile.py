"""Measures a GPU for Meshwright: matrix products, memory, attention, launches and, between GPUs, collectives.

Needs Python 3.8 or newer and PyTorch, nothing else; writes one JSON file.  About two minutes, 15 s with --quick::

    python gpu_profile.py --output profile.json
    torchrun --nproc-per-node 8 gpu_profile.py --output profile.json

Times are seconds: medians, with the 10th and 90th percentile beside them.  Operands take turns so that they come
from memory rather than from a cache, and a long matrix product runs first so that power limits show.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, NamedTuple, Tuple  # noqa: UP035 - Python 3.8

FORMAT, VERSION, MIB = "meshwright-gpu-profile", 1, 2**20
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn", "fp32": "float32"}
WIDTHS = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}
Step = Tuple[str, int, Callable[[], None]]  # noqa: UP006 - Python 3.8
"""Name of the measurement, the bytes it needs, and the action."""
CLOCK_FIELDS = "driver_version,power.limit,clocks.max.sm,clocks.sm,clocks.mem,temperature.gpu"


class Matmul(NamedTuple):
    """``batch`` products (m x k) @ (k x n)."""

    m: int
    n: int
    k: int
    batch: int = 1

    def nbytes(self, width: int) -> int:
        """Bytes of operands and result."""
        return self.batch * (width * (self.m * self.k + self.k * self.n) + 4 * self.m * self.n)


Timing = Dict[str, float]  # noqa: UP006 - Python 3.8
"""Seconds of one call: ``median_s``, ``low_s``, ``high_s``, and the number of samples."""


def matmul_shapes(largest: int) -> list[Matmul]:
    """Shapes that tell the cost of each extent apart, then those of real layers; ``largest`` is the wide extent.

    Each of m, n and k goes down alone while the others stay wide; then extents that fill no tile, the products of
    7B and 70B transformers under 1 to 8 tensor ranks, and grouped products as experts make them.
    """
    found = [Matmul(largest, largest, largest)]
    halves = [max(largest // 2**i, 8) for i in range(1, 8)]
    for short in (*halves, largest // 2 + 8, largest // 4 + 24, largest // 8 + 40):
        found += [Matmul(short, largest, largest), Matmul(largest, short, largest), Matmul(largest, largest, short)]
    found += [Matmul(short, short, short) for short in halves[:5]]
    found += [Matmul(largest, largest // 2 + 1, largest), Matmul(largest, largest, largest // 2 + 1)]
    for tokens in (largest // 2, largest):
        for hidden, mlp in ((4096, 11008), (8192, 28672)):
            for tensor in (1, 2, 4, 8):
                width, narrow = hidden * largest // 8192, mlp * largest // 8192 // tensor // 16 * 16
                found += [Matmul(tokens, narrow, width), Matmul(tokens, width, narrow)]
    shares = [
        (tokens, experts) for experts in (4, 8, 32) for tokens in (largest // 64, largest // 16, largest // 8)
    ]
    found += [Matmul(tokens, largest // 4, largest // 4, experts) for tokens, experts in shares]
    return [shape for index, shape in enumerate(found) if min(shape) > 0 and shape not in found[:index]]


def attention_shapes(largest: int) -> list[tuple[int, int, int, int]]:
    """Batch, heads, head size, sequence: sequences up to ``largest`` at one head size, then sizes at one."""
    heads = 32 if largest >= 4096 else 4
    by_length = [(2**i, heads, 128, largest // 2**i) for i in range(7)]
    return by_length[:1] + [(4, heads, size, largest // 4) for size in (32, 64, 96, 256)] + by_length[1:]


def group_sizes(world: int, per_node: int) -> list[int]:
    """Rank counts to time: powers of two inside a node, the whole node, and all ranks."""
    return sorted(
        {*(2**i for i in range(1, 20) if 2**i <= min(world, per_node)), min(world, per_node), world} - {1}
    )


def summary(times: list[float]) -> Timing:
    """Median and spread of some seconds."""
    ordered, last = sorted(times), len(times) - 1
    middle = (ordered[last // 2] + ordered[(last + 1) // 2]) / 2
    low, high = ordered[round(0.1 * last)], ordered[round(0.9 * last)]
    return {"median_s": middle, "low_s": low, "high_s": high, "samples": len(ordered)}


class Profiler:
    """Measurements on one device; ``found`` is the profile as it grows."""

    def __init__(self, torch: Any, device: str, *, quick: bool) -> None:
        self.torch, self.device, self.quick = torch, device, quick
        self.on_gpu = device.startswith("cuda")
        self.sample_s, self.samples = (0.004, 5) if quick else (0.008, 9)
        self.turn_bytes = (256 if self.on_gpu else 32) * MIB  # several times any cache
        parts = ("matmuls", "streams", "attentions", "launches", "collectives", "skipped")
        self.found: dict[str, list[dict[str, Any]]] = {part: [] for part in parts}

    def skip(self, what: str, reason: str) -> None:
        """Note what is not measured."""
        self.found["skipped"].append({"what": what, "reason": reason})

    def free_bytes(self) -> float:
        """Memory that one measurement may use: 40 % of what is free."""
        return float(0.4 * (self.torch.cuda.mem_get_info()[0] if self.on_gpu else 4096 * MIB))

    def elapsed_s(self, call: Callable[[int], object], calls: int) -> float:
        """Seconds of so many calls in a row, each told its number."""
        if self.on_gpu:
            first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.torch.cuda.synchronize()
            first.record()
        started = time.perf_counter()
        for index in range(calls):
            call(index)
        if not self.on_gpu:
            return time.perf_counter() - started
        last.record()
        self.torch.cuda.synchronize()
        return float(first.elapsed_time(last)) / 1e3

    def timed(self, call: Callable[[int], object], elapsed: Callable[..., float] | None = None) -> Timing:
        """The time of one call, after a warm-up; short calls are timed many at once."""
        elapsed = elapsed or self.elapsed_s
        once = min(elapsed(call, 2), elapsed(call, 3) / 3)  # the first is the warm-up
        calls = max(1, min(500, math.ceil(self.sample_s / max(once, 1e-9))))
        samples = max(3, min(self.samples, int(1.0 / max(once, 1e-9))))
        return summary([elapsed(call, calls) / calls for _ in range(samples)])

    def part(self, name: str, until: float, steps: Iterator[Step]) -> None:
        """Run steps (name, bytes, action) until the time is up; what cannot be measured is listed with a reason."""
        for what, nbytes, action in steps:
            if time.monotonic() > until or nbytes > self.free_bytes():
                self.skip(f"{name} {what}", "no time left" if time.monotonic() > until else "too large")
                continue
            try:
                action()
            except Exception as error:  # noqa: BLE001 - one kernel that is missing must not end the profile
                self.skip(f"{name} {what}", f"{type(error).__name__}: {error}".splitlines()[0][:200])
        if self.on_gpu:
            self.torch.cuda.empty_cache()

    def product(self, precision: str, shape: Matmul) -> Callable[[int], object]:
        """A call that multiplies one of several pairs of random operands."""
        torch, kind, fp8 = self.torch, getattr(self.torch, DTYPES[precision]), precision == "fp8"
        group = (shape.batch,) if shape.batch > 1 else ()
        sizes = ((*group, shape.m, shape.k), (*group, *((shape.n, shape.k) if fp8 else (shape.k, shape.n))))
        turns = max(1, min(8, self.turn_bytes // shape.nbytes(WIDTHS[precision])))
        pairs = [[torch.randn(size, device=self.device).to(kind) for size in sizes] for _ in range(turns)]
        if not fp8:
            return lambda index: torch.matmul(*pairs[index % turns])
        one = torch.ones((), device=self.device)
        pairs = [[left, right.t()] for left, right in pairs]  # the kernel wants the right one column by column
        return lambda index: torch._scaled_mm(  # noqa: SLF001 - PyTorch has no other door to FP8 products
            *pairs[index % turns], scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )

    def matmul(self, precision: str, shape: Matmul, sustained_s: float = 0.0) -> None:
        """Time one product; with ``sustained_s`` for so long, and only the second half counts."""
        call = self.product(precision, shape)
        if sustained_s:
            until, times = time.monotonic() + sustained_s, [self.elapsed_s(call, 1)]
            while time.monotonic() < until:
                times.append(self.elapsed_s(call, 8) / 8)
            timing = summary(times[len(times) // 2 :])
        else:
            timing = self.timed(call)
        row = {"precision": precision, **shape._asdict(), "sustained": sustained_s > 0}
        self.found["matmuls"].append({**row, **timing})

    def stream(self, operation: str, nbytes: int) -> None:
        """Time a copy (one read, one write) or a triad (two reads, one write) of ``nbytes`` in all."""
        count, turns = nbytes // 4 // (2 if operation == "copy" else 3), max(1, min(8, self.turn_bytes // nbytes))
        sets = [[self.torch.ones(count, device=self.device) for _ in range(3)] for _ in range(turns)]

        def call(index: int) -> None:
            out, left, right = sets[index % turns]
            out.copy_(left) if operation == "copy" else self.torch.add(left, right, alpha=3.0, out=out)

        timing = self.timed(call)
        self.found["streams"].append({"operation": operation, "bytes": nbytes, **timing})

    def attention(self, kernel: str, precision: str, shape: tuple[int, int, int, int]) -> None:
        """Time a fused kernel forward, then backward: FlashAttention's, or the vendor's (cuDNN)."""
        torch, (batch, heads, size, sequence) = self.torch, shape
        queries, keys, values, incoming = (
            torch.randn((batch, heads, sequence, size), device=self.device).to(getattr(torch, DTYPES[precision]))
            for _ in range(4)
        )
        attend = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)
        names = {"flash_2": "FLASH_ATTENTION", "vendor": "CUDNN_ATTENTION"}
        row = {"kernels": kernel, "precision": precision, "batch": batch, "heads": heads, "head_size": size}
        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, names[kernel])):
            forward = self.timed(lambda _: attend(queries, keys, values))
            inputs = [each.requires_grad_() for each in (queries, keys, values)]
            result = attend(*inputs)
            backward = self.timed(lambda _: torch.autograd.grad(result, inputs, incoming, retain_graph=True))
        for direction, timing in (("forward", forward), ("backward", backward)):
            self.found["attentions"].append({"direction": direction, **row, "sequence": sequence, **timing})

    def launch(self) -> None:
        """Time kernels that have nothing to do: what is left is the launch."""
        tiny = self.torch.ones(16, device=self.device)
        self.found["launches"].append(self.timed(lambda _: tiny.add_(1)))

    def kernels(self, seconds: float) -> None:
        """Measure everything that one device does alone."""
        largest, longest = (8192, 16384) if self.on_gpu else (512, 1024)
        hot_s, until = 0.04 * seconds if self.on_gpu else 0.5, time.monotonic()
        for name, share, steps in (  # of the time, what each part may use; what one leaves goes to the next
            ("memory", 0.08, self.memory_steps()),
            ("launch", 0.04, iter([("tiny kernels", 0, self.launch)])),
            ("matmul", 0.60, self.matmul_steps(largest, sustained_s=hot_s)),
            ("attention", 0.28, self.attention_steps(longest)),
        ):
            until += share * seconds
            self.part(name, until, steps)

    def memory_steps(self) -> Iterator[Step]:
        """Copies and triads of growing size."""
        for exponent in ((22, 24, 26, 28, 30, 31) if self.on_gpu else (22, 24, 26))[:: 2 if self.quick else 1]:
            for operation in ("copy", "triad"):
                nbytes = 2**exponent
                yield f"{operation} {nbytes}", 3 * nbytes, partial(self.stream, operation, nbytes)

    def matmul_steps(self, largest: int, *, sustained_s: float) -> Iterator[Step]:
        """The sustained square of every precision, then every shape."""
        usable = DTYPES if self.on_gpu else ("bf16", "fp32")  # the others crawl on a CPU
        precisions = [name for name in usable if hasattr(self.torch, DTYPES[name])]
        square = Matmul(largest, largest, largest)
        for each in precisions:
            yield f"{each} sustained", square.nbytes(8), partial(self.matmul, each, square, sustained_s)
        for shape in matmul_shapes(largest)[:: 2 if self.quick else 1]:
            for each in precisions:
                if each == "fp8" and (shape.batch > 1 or any(extent % 16 for extent in shape[:3])):
                    continue  # its kernel does not take these
                yield f"{each} {tuple(shape)}", 2 * shape.nbytes(4), partial(self.matmul, each, shape)

    def attention_steps(self, longest: int) -> Iterator[Step]:
        """Every attention shape in the 16-bit format that training would use."""
        half = "fp16" if self.on_gpu and self.torch.cuda.get_device_capability()[0] < 8 else "bf16"
        for shape in attention_shapes(longest):
            for kernel in ("flash_2", "vendor") if self.on_gpu else ("flash_2",):
                action = partial(self.attention, kernel, half, shape)
                yield f"{kernel} {half} {shape}", 40 * math.prod(shape), action


class Ranks(Profiler):
    """Also measures what several ranks do together; every rank calls the same, and rank 0's profile counts."""

    def __init__(self, torch: Any, device: str, *, quick: bool) -> None:
        super().__init__(torch, device, quick=quick)
        self.dist, self.rank = torch.distributed, int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.per_node = int(os.environ.get("LOCAL_WORLD_SIZE", self.world))

    def collectives(self, seconds: float) -> None:
        """Every group size, collective and message size, small groups first, until the time is up."""
        until, on_gpu, quick = time.monotonic() + seconds, self.on_gpu, self.quick
        largest = (64 * MIB if quick else 1024 * MIB) if on_gpu else 4 * MIB
        sizes = [2**i for i in range(10, 31, 4 if quick else 2) if 2**i <= largest]
        for ranks in group_sizes(self.world, self.per_node):
            group = self.dist.new_group(list(range(ranks)))
            if self.rank < ranks:
                for name in ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"):
                    if name != "sendrecv" or ranks == 2:
                        self.curve(name, ranks, group, [size for size in sizes if size >= 4 * ranks], until)
            self.dist.barrier()

    def curve(self, name: str, ranks: int, group: Any, sizes: list[int], until: float) -> None:
        """One collective among ``ranks`` ranks over the sizes; every rank takes every decision alike."""
        for nbytes in sizes:
            reason = "no time left" if self.slowest(time.monotonic() - until, group) > 0 else ""
            reason = reason or ("too large" if self.slowest(3 * nbytes - self.free_bytes(), group) > 0 else "")
            try:
                timing = {} if reason else self.timed(self.call(name, ranks, group, nbytes), self.together(group))
            except (RuntimeError, ValueError, NotImplementedError, AttributeError) as error:
                timing, reason = {}, f"{type(error).__name__}: {error}".splitlines()[0][:200]
            if not timing:
                self.skip(f"{name} of {ranks} ranks from {nbytes} bytes", reason)
                return
            what = {"collective": name, "ranks": ranks, "nodes": -(-ranks // self.per_node)}
            self.found["collectives"].append({**what, "message_bytes": nbytes, **timing})

    def call(self, name: str, ranks: int, group: Any, nbytes: int) -> Callable[[int], object]:
        """A call of the collective; ``nbytes`` is the size column of nccl-tests, shards ``1 / ranks`` of it."""
        torch, dist, count = self.torch, self.dist, nbytes // 4 // ranks
        part = torch.ones(count, device=self.device)
        whole = torch.ones(count * ranks, device=self.device)
        other = torch.ones_like(whole)
        if name == "sendrecv":
            both = [dist.P2POp(*each, 1 - self.rank, group) for each in ((dist.isend, whole), (dist.irecv, other))]
            return lambda _: [request.wait() for request in dist.batch_isend_irecv(both)]
        if name == "all_reduce":
            return lambda _: dist.all_reduce(whole, group=group)
        older, tensors = {
            "all_gather": ("all_gather_into_tensor", (whole, part)),
            "reduce_scatter": ("reduce_scatter_tensor", (part, whole)),
            "alltoall": ("all_to_all_single", (other, whole)),
        }[name]
        action = getattr(dist, f"{name}_single", None) or getattr(dist, older)  # renamed in PyTorch 2.13
        return lambda _: action(*tensors, group=group)

    def together(self, group: Any) -> Callable[..., float]:
        """``elapsed_s`` of the slowest rank, all starting together."""

        def elapsed(call: Callable[[int], object], calls: int) -> float:
            self.dist.barrier(group=group)
            return self.slowest(self.elapsed_s(call, calls), group)

        return elapsed

    def slowest(self, value: float, group: Any) -> float:
        """The largest ``value`` of the group."""
        agreed = self.torch.tensor([value], dtype=self.torch.float64, device=self.device)
        self.dist.all_reduce(agreed, op=self.dist.ReduceOp.MAX, group=group)
        return float(agreed.item())


def clocks(device_index: int) -> dict[str, str]:
    """Driver, power limit and clocks by nvidia-smi; empty where there is none."""
    command = ["nvidia-smi", f"--id={device_index}", f"--query-gpu={CLOCK_FIELDS}", "--format=csv,noheader"]
    if shutil.which(command[0]) is None:
        return {}
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=30)  # noqa: S603
    return dict(zip(CLOCK_FIELDS.split(","), map(str.strip, done.stdout.split(","))))  # noqa: B905 - Python 3.8


def machine(torch: Any, device: str, world: int) -> dict[str, Any]:
    """Device, software and host."""
    facts: dict[str, Any] = {"type": device[:4].rstrip(":"), "name": platform.machine(), "count": world}
    software = {"python": platform.python_version(), "torch": str(torch.__version__)}
    if device.startswith("cuda"):
        known = torch.cuda.get_device_properties(device)
        facts.update(name=known.name, memory_bytes=known.total_memory, multiprocessors=known.multi_processor_count)
        facts.update(capability=f"{known.major}.{known.minor}", clocks=clocks(torch.cuda.current_device()))
        software["cuda"] = str(torch.version.cuda or torch.version.hip)
        if torch.distributed.is_available() and torch.distributed.is_nccl_available():
            software["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return {"device": facts, "software": software, "host": socket.gethostname()}


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """The whole profile, on rank 0; the other ranks only take part in collectives."""
    torch: Any = importlib.import_module("torch")
    kind = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    device = "cuda:" + os.environ.get("LOCAL_RANK", "0") if kind == "cuda" else "cpu"
    ranks = Ranks(torch, device, quick=arguments.quick)
    if ranks.on_gpu:
        torch.cuda.set_device(device)
    started = time.time()
    seconds, share = 13.0 if arguments.quick else 110.0, 0.7 if ranks.world > 1 else 1.0
    if ranks.rank == 0:
        ranks.kernels(share * seconds)
    if ranks.world > 1:  # the others wait here until rank 0 has done what needs no company
        torch.distributed.init_process_group("nccl" if kind == "cuda" else "gloo", timeout=timedelta(minutes=30))
        ranks.collectives((1 - share) * seconds)
        torch.distributed.destroy_process_group()
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started))
    head = {"format": FORMAT, "version": VERSION, "taken_at": moment, "took_s": round(time.time() - started, 1)}
    return {**head, "quick": arguments.quick, **machine(torch, ranks.device, ranks.world), **ranks.found}


def main() -> int:
    """Measure and write; returns the exit code."""
    parser = argparse.ArgumentParser(description="Measures a GPU for Meshwright and writes one JSON file.")
    parser.add_argument("--output", default="profile.json", metavar="FILE", help="where to write (profile.json)")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda where there is one")
    parser.add_argument("--quick", action="store_true", help="15 seconds instead of two minutes")
    arguments = parser.parse_args()
    try:
        found = run(arguments)
    except ImportError as error:
        sys.stderr.write(f"gpu_profile: PyTorch cannot be loaded ({error}); run this where training runs\n")
        return 2
    if os.environ.get("RANK", "0") == "0":
        Path(arguments.output).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        counts = [f"{len(rows)} {name}" for name, rows in found.items() if isinstance(rows, list)]
        sys.stderr.write(f"{arguments.output}: {', '.join(counts)}, in {found['took_s']} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
