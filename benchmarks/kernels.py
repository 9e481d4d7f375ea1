"""Measures the kernels of a training step on this machine's GPU, or compares measurements with the cost model.

    python -m benchmarks.kernels --measure OUT.json [--small]
    python -m benchmarks.kernels [--compare FILE ...] [--json]

Measuring needs PyTorch, which the project itself does not.  Without ``--compare`` the shipped files are compared.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.accuracy import Score, score
from benchmarks.kernel_cases import (
    Attention,
    Direction,
    Grouped,
    Kernel,
    LongRun,
    Product,
    Streaming,
    as_row,
    from_row,
    planned_kernels,
    small_kernels,
)
from benchmarks.kernel_timing import Stopwatch, torch_module
from cluster_models.catalogue import gpu_kind
from cluster_models.errors import InvalidConfiguration, InvalidInput
from cluster_models.gpus import GpuKind, Precision
from solver.calibration import Calibration, calibration_of
from solver.compute import AttentionShape, Processor, attention_s, matmul_s, processor, streaming_s

SHIPPED: Final = Path(__file__).parent / "data"
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Measured:
    """A kernel and its measured seconds."""

    kernel: Kernel
    seconds: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Relative errors (predicted / measured - 1) of one file by group."""

    file: str
    gpu_kind: str
    source: str
    scores: list[Score]


def predicted_s(kernel: Kernel, gpu: GpuKind, calibration: Calibration) -> float:
    """What the cost model says that ``kernel`` takes on ``gpu``."""
    precision = kernel.precision if isinstance(kernel, Product) else Precision.BF16
    chip = processor(gpu, precision, calibration)
    if isinstance(kernel, Product | LongRun):
        return float(matmul_s(chip, kernel.m, kernel.n, kernel.k))
    if isinstance(kernel, Grouped):
        return _grouped_s(chip, kernel)
    if isinstance(kernel, Attention):
        forward, backward = attention_s(chip, _attention_shape(kernel))
        return float((forward if kernel.direction is Direction.FORWARD else backward)[0])
    if isinstance(kernel, Streaming):
        return float(streaming_s(chip, np.array(kernel.moved_bytes)))
    return calibration.kernel_s


def _grouped_s(chip: Processor, kernel: Grouped) -> float:
    """As ``solver.layer_costs`` prices experts: one launch, all groups at their share of the rate."""
    launch = chip.calibration.kernel_s
    single = float(matmul_s(chip, kernel.m, kernel.n, kernel.k)) - launch
    return kernel.groups * single / chip.calibration.grouped_share + launch


def _attention_shape(kernel: Attention) -> AttentionShape:
    square = float(kernel.sequence) ** 2
    return AttentionShape(
        heads=np.array([float(kernel.heads)]),
        key_width=float(kernel.head_size),
        value_width=float(kernel.head_size),
        pairs=np.array([square / 2.0]),
        full_pairs=np.array([square]),
        sequence=float(kernel.sequence),
    )


def groups_of(kernel: Kernel) -> Iterable[str]:
    """The groups that a kernel's error counts in."""
    if isinstance(kernel, Product):
        yield f"product {kernel.precision}"
        yield f"product {kernel.precision} {kernel.direction}"
        yield f"product {kernel.precision} tensor {kernel.tensor}"
        yield f"product {kernel.precision} k {'below' if kernel.k < 4096 else 'from'} 4096"
    elif isinstance(kernel, Grouped):
        yield f"grouped {kernel.direction}"
    elif isinstance(kernel, Attention):
        yield f"attention {kernel.direction}"
        yield f"attention {kernel.direction} head size {kernel.head_size}"
    elif isinstance(kernel, Streaming):
        yield f"streaming {kernel.operation}"
    else:
        yield as_row(kernel)["family"]


def read_measured(path: Path) -> tuple[dict[str, str], list[Measured]]:
    """Device name and source, and the measurements of a file; raises ``InvalidConfiguration``."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as unreadable:
        raise InvalidConfiguration("--compare", str(path), f"cannot be read: {unreadable}") from unreadable
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidConfiguration("--compare", str(path), f"is not a file of --measure, format {FORMAT}")
    try:
        machine = {name: str(document["machine"][name]) for name in ("device_name", "source")}
        measured = [Measured(from_row(row), float(row["median_s"])) for row in document["kernels"]]
    except (KeyError, TypeError, ValueError) as broken:
        problem = f"a part is missing or of the wrong kind: {broken}"
        raise InvalidConfiguration("--compare", str(path), problem) from broken
    if not all(row.seconds > 0.0 for row in measured):
        raise InvalidConfiguration("--compare", str(path), "has a median_s that is not positive")
    return machine, measured


def compare(path: Path, calibration: Calibration | None = None) -> Comparison:
    """Errors of the cost model, with the kind's own parameters or ``calibration``, on one file."""
    machine, measured = read_measured(path)
    gpu = gpu_kind(machine["device_name"])
    errors: dict[str, list[float]] = defaultdict(list)
    for row in measured:
        error = predicted_s(row.kernel, gpu, calibration or calibration_of(gpu)) / row.seconds - 1.0
        for group in groups_of(row.kernel):
            errors[group].append(error)
    scores = [score(group, errors[group]) for group in sorted(errors)]
    return Comparison(path.name, gpu.name, machine["source"], scores)


def measure(kernels: Iterable[Kernel]) -> dict[str, Any]:
    """The document of ``--measure``: machine, figures, and the kernels that could not run with the reason."""
    torch = torch_module()
    watch = Stopwatch(torch, "cuda" if torch.cuda.is_available() else "cpu")
    rows: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for kernel in kernels:
        try:
            rows.append({**as_row(kernel), **asdict(watch.timing(kernel))})
        except (RuntimeError, NotImplementedError, ValueError, TypeError) as refused:  # PyTorch's refusals
            skipped.append({**as_row(kernel), "reason": str(refused).partition("\n")[0]})
    return {"format": FORMAT, "machine": machine_of(torch), "kernels": rows, "skipped": skipped}


def machine_of(torch: Any) -> dict[str, Any]:
    """What the figures depend on; no name of a host."""
    machine = {
        "source": "measured with benchmarks.kernels",
        "measured_on": datetime.now(UTC).date().isoformat(),
        "device_name": platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if not torch.cuda.is_available():
        return machine
    properties = torch.cuda.get_device_properties(0)
    return machine | {
        "device_name": properties.name,
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "cuda": torch.version.cuda,
        "driver": _driver(),
    }


def _driver() -> str | None:
    """Version of the NVIDIA driver; ``None`` where its tool does not answer."""
    command = ["nvidia-smi", "--id=0", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)  # noqa: S603 constant
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def write_document(path: Path, document: dict[str, Any]) -> None:
    """JSON with one kernel a line."""
    head = {name: value for name, value in document.items() if not isinstance(value, list)}
    parts = [f"{json.dumps(name)}: {json.dumps(value, indent=1)}" for name, value in head.items()]
    for name in document.keys() - head.keys():
        lines = ",\n  ".join(json.dumps(row) for row in document[name])
        parts.append(f"{json.dumps(name)}: [\n  {lines}\n]" if document[name] else f"{json.dumps(name)}: []")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def _print(comparison: Comparison) -> None:
    print(f"{comparison.file}: {comparison.gpu_kind}, {comparison.source}")
    print(f"  {'group':<46} rows    mean  median   bias")
    for line in comparison.scores:
        errors = f"{line.mean_absolute:6.1%}  {line.median_absolute:6.1%} {line.bias:+7.1%}"
        print(f"  {line.group:<46} {line.rows:4d}  {errors}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description="checks kernel times")
    parser.add_argument("--measure", type=Path, metavar="OUT.json", help="measure here (needs PyTorch)")
    parser.add_argument("--small", action="store_true", help="measure tiny sizes, also without a GPU")
    parser.add_argument("--compare", type=Path, nargs="+", help="files of --measure")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    try:
        if options.measure is not None:
            return _measure_to(options.measure, small=options.small)
        files = options.compare or sorted(SHIPPED.glob("kernels_*.json"))
        comparisons = [compare(path) for path in files]
    except InvalidInput as wrong:
        print(wrong, file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps([asdict(comparison) for comparison in comparisons]))
    else:
        for comparison in comparisons:
            _print(comparison)
    return 0


def _measure_to(path: Path, *, small: bool) -> int:
    if not small and not torch_module().cuda.is_available():
        raise InvalidConfiguration("--measure", "cpu", "PyTorch sees no GPU", "add --small to try it on the CPU")
    document = measure(small_kernels() if small else planned_kernels())
    write_document(path, document)
    print(f"{path}: {len(document['kernels'])} kernels measured, {len(document['skipped'])} skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
