"""Summary of a section in one sentence for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from app.presentation.figures import gbytes_per_s, plural, seconds
from cluster_models.units import GBIT
from cluster_models.wording import joined
from readers.frame.facts import (
    Fact,
    HealthFact,
    HostFact,
    JointKind,
    MatrixFact,
    Memory,
    PortFact,
    Quantity,
    RunEnd,
    RunFact,
    SwitchFact,
    WiringFact,
)

NOTHING: Final = "nothing that is used"
"""The sentence of a section without facts."""
_MOST_NAMES: Final = 3
_PAIR: Final = 2
_BETWEEN: Final = {"gpus": "GPUs"}
_LINKS: Final = {JointKind.NVLINK: "NVLink", JointKind.XGMI: "XGMI"}


def summary(facts: Sequence[Fact]) -> str:
    """All facts of one section in a sentence; "nothing that is used" where there are none."""
    by_kind: dict[type, list[Fact]] = {}
    for fact in facts:
        by_kind.setdefault(type(fact), []).append(fact)
    parts = [_SENTENCES[kind](found) for kind, found in by_kind.items()]
    return "; ".join(parts) or NOTHING


def fact_words(fact: Fact) -> str:
    """One fact, in the words of ``summary``."""
    return summary((fact,))


def measurements_shown(samples: int, failed: int) -> str:
    """Count of measurements, and of failed tests among ``samples``."""
    tests = f" and {plural(failed, 'failed test')}" if failed else ""
    return f"{plural(samples - failed, 'measurement')}{tests}"


def _runs(facts: Sequence[RunFact]) -> str:
    if len(facts) == 1:
        return _run(facts[0])
    tests = joined(sorted({str(fact.operation) for fact in facts}))
    hosts = _among([fact.hosts for fact in facts])
    best = _best(facts)
    ends = Counter(fact.end for fact in facts)
    failed = f", {ends[RunEnd.FAILED]} failed" if ends[RunEnd.FAILED] else ""
    return f"{len(facts)} runs of {tests}{hosts}{best}{failed}"


def _run(fact: RunFact) -> str:
    sizes = plural(len(fact.points), "size")
    who = "process" if fact.memory is Memory.HOST else "GPU"
    many = f" among {_counted(fact.ranks, who)}" if fact.ranks else ""
    hosts = _of(fact.hosts) or (f" of {plural(fact.nodes, 'node')}" if fact.nodes else "")
    end = {
        RunEnd.COMPLETE: "",
        RunEnd.FAILED: f"; it failed{': ' if fact.end_reason else ''}{fact.end_reason[:100]}",
        RunEnd.CUT: "; the file ends before the test does",
        RunEnd.EXCERPT: "; rows are missing",
    }[fact.end]
    return f"{sizes} of {fact.operation}{many}{hosts}{_best([fact])}{end}"


def _best(facts: Iterable[RunFact]) -> str:
    rates = [point.bytes_per_s for fact in facts for point in fact.points if point.bytes_per_s]
    times = [point.time_s for fact in facts for point in fact.points if point.time_s]
    if rates:
        return f", up to {gbytes_per_s(max(rates))}"
    return f", from {seconds(min(times))}" if times else ""


def _matrices(facts: Sequence[MatrixFact]) -> str:
    words = [_matrix(fact) for fact in facts[:_MOST_NAMES]]
    more = len(facts) - len(words)
    return ", ".join(words) + (f" and {plural(more, 'table')} more" if more > 0 else "")


def _matrix(fact: MatrixFact) -> str:
    values = [value for row in fact.values for value in row if value is not None]
    best = ""
    if values and fact.quantity is Quantity.BANDWIDTH:
        best = f", up to {gbytes_per_s(max(values))}"
    elif values and fact.quantity is Quantity.LATENCY:
        best = f", from {seconds(min(values))}"
    own = _of((fact.host,) if fact.host else ())
    method = f" ({fact.method})" if fact.method else ""
    ends = f"{len(fact.rows)} x {len(fact.columns)} {_BETWEEN.get(fact.between, fact.between)}"
    return f"{fact.quantity} of {ends}{own}{method}{best}"


def _wirings(facts: Sequence[WiringFact]) -> str:
    if len(facts) > 1:
        return f"wiring of {len(facts)} hosts"
    fact = facts[0]
    gpus = plural(max(len(fact.gpus), fact.expected_gpus), "GPU")
    nics = f" and {plural(len(fact.nics), 'network card')}" if fact.nics else ""
    kinds = Counter(joint.kind for joint in fact.joints)
    pairs = [f"{_LINKS.get(kind, kind.value.upper())} {count}" for kind, count in kinds.most_common(_MOST_NAMES)]
    joined = f"; pairs joined by {', '.join(pairs)}" if pairs else ""
    return f"wiring of {gpus}{nics}{_of((fact.host,) if fact.host else ())}{joined}"


def _hosts(facts: Sequence[HostFact]) -> str:
    if len(facts) > 1:
        names = [fact.names[0].text for fact in facts if fact.names]
        gpus = Counter(_gpus(fact) for fact in facts if _gpus(fact))
        kinds = ", ".join(f"{count} with {words}" for words, count in gpus.most_common(_MOST_NAMES))
        shown = f": {kinds}" if kinds else _of(names[:1], "from")
        return f"{len(facts)} hosts{shown}"
    fact = facts[0]
    said = [_gpus(fact), _cards(fact)]
    labels = " ".join(f"{key}={value}" for key, value in sorted(fact.labels.items()))
    words = ", ".join(word for word in (*said, labels) if word)
    name = fact.names[0].text if fact.names else "without a name"
    return f"host {name}{': ' if words else ''}{words}"


def _gpus(fact: HostFact) -> str:
    if fact.gpu_count is None:
        return fact.gpu_product or ""
    return f"{fact.gpu_count} x {fact.gpu_product or 'GPU'}"


def _cards(fact: HostFact) -> str:
    return ", ".join(
        f"{nics.count} x {nics.bytes_per_s / GBIT:g} Gb/s"
        if nics.bytes_per_s
        else plural(nics.count, "network card")
        for nics in fact.nics
    )


def _ports(facts: Sequence[PortFact]) -> str:
    up = [fact.bytes_per_s for fact in facts if fact.up and fact.bytes_per_s]
    best = f", up to {max(up) / GBIT:g} Gb/s" if up else ""
    return f"{plural(len(facts), 'port')}, {sum(fact.up for fact in facts)} up{best}"


def _switches(facts: Sequence[SwitchFact]) -> str:
    blocks = [fact for fact in facts if fact.domain]
    kinds = [(len(facts) - len(blocks), "switch"), (len(blocks), "block")]
    words = " and ".join(_counted(count, noun) for count, noun in kinds if count)
    hosts = {host for fact in facts for host in fact.hosts}
    return f"{words} over {plural(len(hosts), 'host')}"


def _counted(count: int, noun: str) -> str:
    return plural(count, noun) if count == 1 or not noun.endswith(("ch", "ss")) else plural(count, f"{noun}e")


def _health(facts: Sequence[HealthFact]) -> str:
    first = facts[0]
    more = f" and {len(facts) - 1} more" if len(facts) > 1 else ""
    return f"health of {first.host or 'an unnamed host'}: {first.entity} {first.state}{more}"


def _among(groups: Sequence[Sequence[str]]) -> str:
    names, most = sorted({host for group in groups for host in group}), max(map(len, groups))
    if len(names) <= _MOST_NAMES:
        return _of(names)
    return f" between pairs of {len(names)} nodes" if most <= _PAIR else f" over up to {most} nodes at once"


def _of(names: Sequence[str], word: str = "of") -> str:
    if not names:
        return ""
    shown = " and ".join(names[:2]) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more"
    return f" {word} {shown}"


_SENTENCES: Final[Mapping[type, Callable[[Sequence[Any]], str]]] = {
    RunFact: _runs,
    MatrixFact: _matrices,
    WiringFact: _wirings,
    HostFact: _hosts,
    PortFact: _ports,
    SwitchFact: _switches,
    HealthFact: _health,
}
