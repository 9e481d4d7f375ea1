"""NVIDIA's DCGM exporter (Prometheus text) and lines of the kernel log about GPUs.

Figures say how a GPU is now; totals that only grow since the driver was loaded say nothing of now, and of them only
those count that a healthy GPU never has.  Lines of the kernel log say what happened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from app.documents.text import decode
from app.events.dcgm_rules import RULES, XID_GAUGE, finding_of
from app.events.payloads import BODY, ReportCollector, clean, digest, moment
from app.events.reading import Adapter, Reported
from cluster_models.errors import InvalidInput
from cluster_models.health.events import EntityKind, HealthState
from cluster_models.health.xids import state_of_xid
from readers.health.kernel_lines import KernelLine, bus_of, kernel_line

_FIGURE: Final = re.compile(
    r"(DCGM_\w{1,60})\{(.{0,4000})\}\s{1,9}([0-9eE.+\-]{1,40}|NaN|[+-]?Inf)(?:\s{1,9}(\d{1,16}))?\s*"
)
_LABEL: Final = re.compile(r'(\w{1,60})="((?:[^"\\]|\\.){0,1000})"')
_NODE_LABELS: Final = (
    "Hostname",
    "hostname",
    "node",
    "kubernetes_node",
    "nodename",
    "exported_instance",
    "instance",
)
_GPU_LABELS: Final = ("gpu", "minor_number", "pci_bus_id", "UUID", "uuid", "device")
_LONGEST_LINE: Final = 6_000


@dataclass(slots=True)
class _Gpu:
    """The figures of one GPU: findings by the name of the figure, or of the Xid."""

    node: str
    part: str
    at: datetime | None = None
    device: str = ""
    xid_is_clear: bool = False
    well: list[str] = field(default_factory=list)
    found: dict[str, tuple[HealthState, str]] = field(default_factory=dict)


def read_dcgm(body: bytes, now: datetime) -> Reported:
    """Figures and kernel lines of a body; raises ``InvalidInput`` where it holds neither."""
    taken = ReportCollector(now)
    gpus: dict[tuple[str, str], _Gpu] = {}
    numbers: dict[tuple[str, str], str] = {}
    lines: list[tuple[int, KernelLine]] = []
    understood = False
    for number, line in enumerate(decode(body, what=BODY).split("\n"), 1):
        if len(line) > _LONGEST_LINE or not line.strip() or line.startswith("#"):
            understood |= line.startswith(("# HELP DCGM_", "# TYPE DCGM_"))
            continue
        if (figure := _FIGURE.fullmatch(line)) is not None:
            understood = True
            with taken.entry(f"line {number}"):
                _take_figure(figure, gpus, numbers)
        elif (said := kernel_line(line)) is not None:
            understood = True
            lines.append((number, said))
    if not understood:
        remedy = "send what dcgm-exporter serves under /metrics, or lines of the kernel log with NVRM"
        raise InvalidInput(BODY, clean(body[:60].decode("utf-8", "replace")), "holds no figure of DCGM", remedy)
    for gpu in gpus.values():
        with taken.entry(f"{gpu.node} gpu {gpu.part}"):
            _take_gpu(gpu, taken)
    only = next(iter({gpu.node for gpu in gpus.values()})) if len({gpu.node for gpu in gpus.values()}) == 1 else ""
    for number, said in lines:
        with taken.entry(f"line {number}"):
            _take_line(said, said.host or only, numbers, taken)
    return taken.done()


def _take_figure(
    figure: re.Match[str], gpus: dict[tuple[str, str], _Gpu], numbers: dict[tuple[str, str], str]
) -> None:
    """Note one figure with its GPU; those that no rule speaks of are left out without a word."""
    name, value = figure[1], float(figure[3])
    if name not in RULES or value != value:  # noqa: PLR0124 - NaN: no value
        return
    labels = dict(_LABEL.findall(figure[2]))
    node = next((labels[label] for label in _NODE_LABELS if labels.get(label)), "")
    part = next((labels[label] for label in _GPU_LABELS if labels.get(label)), "").removeprefix("nvidia")
    if not node or not part:
        raise InvalidInput(name, ", ".join(labels)[:100], "says no host or GPU", "keep the labels Hostname and gpu")
    gpu = gpus.setdefault((node, part), _Gpu(node, part, device=labels.get("UUID", "")))
    if figure[4]:
        gpu.at = _moment(int(figure[4]))
    if labels.get("pci_bus_id"):
        numbers[node.casefold(), bus_of(labels["pci_bus_id"])] = part
    found = finding_of(name, value, labels)
    if found is not None:
        code, state, text = found
        if state is not None:
            gpu.found[code] = (state, text)
    else:
        gpu.xid_is_clear |= name == XID_GAUGE
        gpu.well.append(name)


def _take_gpu(gpu: _Gpu, taken: ReportCollector) -> None:
    """Report each finding on a GPU by its code; well as a whole where its last Xid is none."""
    seen = str(gpu.at or taken.now)
    if not gpu.found and gpu.xid_is_clear:
        _sight(gpu, HealthState.RECOVERED, "", "no Xid and no other finding", seen, taken)
        return
    for code, (state, text) in sorted(gpu.found.items()):
        _sight(gpu, state, code, text, seen, taken)
    for name in sorted(set(gpu.well) - gpu.found.keys() - {XID_GAUGE}):
        _sight(gpu, HealthState.RECOVERED, name, "is well again", seen, taken)


def _sight(gpu: _Gpu, state: HealthState, code: str, text: str, seen: str, taken: ReportCollector) -> None:
    taken.add(
        state,
        gpu.node,
        kind=EntityKind.GPU,
        part=gpu.part,
        at=gpu.at,
        source_id=digest(gpu.node, gpu.part, code, state, seen),
        text=text,
        code=code,
        device=gpu.device,
        is_sighting=True,
    )


def _take_line(said: KernelLine, host: str, numbers: Mapping[tuple[str, str], str], taken: ReportCollector) -> None:
    """One line of the kernel log; a bus address whose number figures in the same body tell becomes that number."""
    state = state_of_xid(said.xid, said.text)
    if state is None:
        return
    if not host:
        remedy = "send lines with the host in front, as journalctl and syslog write them"
        raise InvalidInput("host", clean(said.text, 100), "no host is named", remedy)
    code = f"Xid {said.xid}"
    part = numbers.get((host.casefold(), said.bus), f"PCI:{said.bus}")
    taken.add(
        state,
        host,
        kind=EntityKind.GPU,
        part=part,
        at=moment(said.iso),
        source_id=digest(host, part, code, said.stamp or taken.now.isoformat(), said.text),
        text=f"{code}: {said.text}" if said.text else code,
        # a recovery action of none ends whatever Xid asked for one
        code="" if state is HealthState.RECOVERED else code,
    )


def _moment(milliseconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


DCGM: Final = Adapter(
    "dcgm",
    "NVIDIA DCGM exporter (Prometheus text) and NVRM lines of the kernel log",
    read_dcgm,
    'DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-5e0c",pci_bus_id="00000000:4E:00.0",Hostname="n3"} 79\n'
    'DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="3",UUID="GPU-5e0c",pci_bus_id="00000000:4E:00.0",Hostname="n3"} 0\n'
    "2026-03-01T12:00:05+00:00 n4 kernel: NVRM: Xid (PCI:0000:1b:00): 94, pid=411, Contained memory error\n",
)
