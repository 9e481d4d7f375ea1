"""``scontrol show node``: blocks of lines, one line a node (``-o``), or JSON.

Values hold spaces and "=" (``OS``, ``Reason``), so a value ends only where the next key that Slurm prints begins.
GPUs are counted from typed entries of ``Gres`` where there are any, else from ``CfgTRES``, whose ``gres/gpu`` is
the sum over all types and counts MIG slices as GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cluster_models.cluster.topology import NodeState
from cluster_models.health.slurm import state_of
from cluster_models.health.states import NODE_STATES
from readers.frame.facts import HostFact, Name, NameKind
from readers.frame.findings import Finding, doubt, refusal, refused, refused_runs
from readers.frame.host_lists import expand
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source, origin_of
from readers.frame.trees import joined

_KEY: Final = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z_]{1,30})=")
_FREE: Final = {"OS", "Reason", "Comment", "Extra"}
"""Keys whose values may hold spaces and words with an equals sign."""
_AFTER_FREE: Final = re.compile(
    r"Node(?:Name|Addr|HostName)|InstanceId|InstanceType|Arch|Port|Version|OS|State|NextState|Owner|MCS_label"
    r"|CPU(?:Alloc|EfctvTot|Efctv|Tot|Load|SpecList)|Core(?:sPerSocket|SpecCount)|ThreadsPerCore|Sockets|Boards"
    r"|(?:Available|Active)Features|Gres(?:Drain|Used)?|(?:Cfg|Alloc)TRES|Partitions|TmpDisk|Weight|Topology"
    r"|(?:Real|Alloc|Free)Mem(?:ory)?|MemSpecLimit|BootTime|SlurmdStartTime|LastBusyTime|ResumeAfterTime"
    r"|(?:Cap|Current|Ave)Watts|ExtSensors\w+|Reason|Comment|Extra|ReservationName"
)
_LEAF: Final = re.compile(r"(?:ib|leaf|switch|sw)[-_]\w*l\d+s\d+|(?:leaf|ibsw|switch)[-_:][\w.\-]+", re.IGNORECASE)
_RACK: Final = re.compile(r"(?:[a-z]+-)?rack[-_]?[a-z]?\d\w*(?:_\w+)?|rack_\w+", re.IGNORECASE)
_INSTANCE: Final = re.compile(r"[a-z][a-z0-9\-]{1,12}\.\d{0,2}(?:x?large|metal|micro|small|medium)(?:-\w+)?")
_GRES: Final = re.compile(r"gpu(?::([^:(),=]+))?[:=](\d{1,6})(?:\(|$)", re.ASCII)
_TRES: Final = re.compile(r"gres/gpu(?::([^=,]+))?=(\d{1,6})$", re.ASCII)
_SLICE: Final = re.compile(r"(?<![a-zA-Z0-9])(?:\d{1,2}g[._]?\d{1,3}gb|mig(?![a-z]))", re.IGNORECASE)
_NO_VALUE: Final = {"", "N/A", "(null)", "None", "n/a", "n/s", "none"}


@dataclass(slots=True)
class _Block:
    """The keys of one node and the lines that they stand on."""

    first: Line
    last: int
    values: dict[str, str] = field(default_factory=dict)


def read(source: Source, lines: tuple[Line, ...]) -> Contents:
    """One fact a node with GPUs; nodes without are refused."""
    odd: list[Line] = []
    facts: list[HostFact] = []
    refusals: list[Finding] = []
    doubts: list[Finding] = []
    for block in _blocks(lines, odd):
        made = _host(source, block)
        if isinstance(made, Finding):
            refusals.append(made)
        else:
            facts.extend(_each(made, refusals, block.first))
            doubts.extend(_doubts(made, block.values))
    remedy = "send what scontrol show node prints, from the line with NodeName= on"
    refusals.extend(refused_runs(odd, "the line belongs to no node", remedy))
    return Contents(tuple(facts), tuple(refusals), tuple(doubts))


def _blocks(lines: Sequence[Line], odd: list[Line]) -> Iterator[_Block]:
    block: _Block | None = None
    for line in lines:
        text = line.text.strip()
        if text.startswith("NodeName="):
            if block is not None:
                yield block
            block = _Block(line, line.number)
        if not text:
            continue
        found = dict(_pairs(text))
        if block is None or not (found or text[0] == "["):
            odd.append(line)
            continue
        block.values.update(found)
        block.last = line.number
    if block is not None:
        yield block


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Keys and values of a line; behind a key with free text only keys that Slurm prints end the value."""
    key, begin = "", 0
    for found in _KEY.finditer(text):
        if key in _FREE and _AFTER_FREE.fullmatch(found[1]) is None:
            continue
        if key:
            yield key, text[begin : found.start()].strip()
        key, begin = found[1], found.end()
    if key:
        yield key, text[begin:].strip()


def _host(source: Source, block: _Block) -> HostFact | Finding:
    values = block.values
    count, product, sliced = _gpus(values)
    name = values["NodeName"].split()[0] if values["NodeName"] else ""
    if not name:
        return refused(block.first, "the node has no name", "send NodeName= with its value", block.last)
    if not count and not sliced:
        reason = f"{name} has no GPU in Gres or CfgTRES: it is not taken as a node"
        remedy = "if it has GPUs, add them to Gres in slurm.conf, or send nvidia-smi topo -m from it"
        return refused(block.first, reason, remedy, block.last)
    state = _state(values["State"]) if values.get("State") else None
    return HostFact(
        origin_of(source, block.first.number, block.last),
        _names(name, values),
        gpu_product=product,
        gpu_count=None if sliced else count,
        gpu_in_slices=sliced,
        labels=_labels(values),
        state=state,
        instance_type=_instance_type(values),
    )


def _each(fact: HostFact, refusals: list[Finding], line: Line) -> tuple[HostFact, ...]:
    """The fact of each node where one line of ``slurm.conf`` tells of many: "NodeName=n[1-8]"."""
    if "[" not in fact.names[0].text:
        return (fact,)
    try:
        names = expand(fact.names[0].text)
    except ValueError as error:
        refusals.append(refused(line, str(error), "write NodeName=n[001-016]"))
        return ()
    return tuple(replace(fact, names=(Name(NameKind.SLURM, name),)) for name in names)


def _names(name: str, values: Mapping[str, str]) -> tuple[Name, ...]:
    names = [Name(NameKind.SLURM, name)]
    host, address = values.get("NodeHostName", ""), values.get("NodeAddr", "")
    if host not in _NO_VALUE and host != name:
        names.append(Name(NameKind.FQDN if "." in host else NameKind.HOST, host))
    if re.fullmatch(r"[\d.]{7,15}|[0-9a-fA-F:]*:[0-9a-fA-F:]+", address):
        names.append(Name(NameKind.ADDRESS, address))
    elif address not in _NO_VALUE and address not in {name, host}:
        names.append(Name(NameKind.FQDN if "." in address else NameKind.HOST, address))
    if (instance := values.get("InstanceId", "")) not in _NO_VALUE:
        names.append(Name(NameKind.INSTANCE, instance))
    return tuple(names)


def _gpus(values: Mapping[str, str]) -> tuple[int, str | None, bool]:
    """GPUs, their product where one type is named, and whether they are cut into slices."""
    gres = _counted(_GRES, _split(values.get("Gres", "")))
    tres = _counted(_TRES, values.get("CfgTRES", "").split(","))
    listed = f"{values.get('Gres', '')},{values.get('CfgTRES', '')}"
    whole = {kind: n for kind, n in (gres or tres).items() if kind and n and not _SLICE.search(kind)}
    untyped = (gres or tres).get("", 0)
    typed_tres = sum(n for kind, n in tres.items() if kind)
    sliced = _SLICE.search(listed) is not None or (0 < typed_tres < tres.get("", 0))
    product = next(iter(whole)) if len(whole) == 1 else None
    return sum(whole.values()) or untyped, product, sliced


def _counted(pattern: re.Pattern[str], entries: Sequence[str]) -> dict[str, int]:
    """GPUs by type, "" where none is named."""
    counted: dict[str, int] = {}
    for entry in entries:
        found = pattern.match(entry.strip())
        if found is not None:
            kind = found[1] or ""
            counted[kind] = counted.get(kind, 0) + int(found[2])
    return counted


def _split(text: str) -> list[str]:
    """Entries between commas, those inside brackets not counted: "gpu:a:4(S:0,2),gpu:b:1"."""
    return re.split(r",(?![^()]*\))", text)


def _state(text: str) -> NodeState:
    """A base and flags: "IDLE+CLOUD", "DOWN*+DRAIN"; a star says that the node does not answer."""
    state = state_of(text)
    return NodeState.UNKNOWN if state is None else NODE_STATES[state]


def _labels(values: Mapping[str, str]) -> dict[str, str]:
    """Leaf and rack where the features hide them ("ib-i4l1s19", "rack_f1"), and a block of ``Topology=``."""
    features = (values.get("ActiveFeatures") or values.get("AvailableFeatures") or "").split(",")
    labels: dict[str, str] = {}
    for label, pattern in (("leaf", _LEAF), ("rack", _RACK)):
        fitting = [feature for feature in features if pattern.fullmatch(feature) and not feature.startswith("eth-")]
        if fitting:
            labels[label] = fitting[0]
    return labels


def _instance_type(values: Mapping[str, str]) -> str:
    given = values.get("InstanceType", "")
    if given not in _NO_VALUE:
        return given
    features = (values.get("ActiveFeatures") or values.get("AvailableFeatures") or "").split(",")
    return next((feature for feature in features if _INSTANCE.fullmatch(feature)), "")


def _doubts(fact: HostFact, values: Mapping[str, str]) -> Iterator[Finding]:
    name, line = fact.names[0].text, fact.origin.first_line
    if fact.gpu_in_slices:
        sentence = f"{name} lists MIG slices with its GPUs, so the number of GPUs is not taken from it"
        yield doubt("mig", line, sentence, "say how many whole GPUs a job may use there")
    drained = values.get("GresDrain", "")
    if any(found for found in _counted(_GRES, _split(drained)).values()):
        sentence = f"{name} drains some of its GPUs: {drained[:60]}"
        yield doubt("gres-drain", line, sentence, "leave these GPUs out of the plan")


def is_node_json(tree: Any) -> bool:
    """Whether a value is ``scontrol show node --json`` or the same from slurmrestd."""
    nodes = tree.get("nodes") if isinstance(tree, dict) else None
    return (
        isinstance(nodes, list)
        and bool(nodes)
        and all(isinstance(node, dict) and "name" in node and ("gres" in node or "tres" in node) for node in nodes)
    )


_JSON_KEYS: Final = {
    "NodeName": "name",
    "Gres": "gres",
    "GresDrain": "gres_drained",
    "CfgTRES": "tres",
    "NodeAddr": "address",
    "NodeHostName": "hostname",
    "ActiveFeatures": "active_features",
    "AvailableFeatures": "features",
    "State": "state",
    "Reason": "reason",
    "InstanceId": "instance_id",
    "InstanceType": "instance_type",
}


def read_json(source: Source, lines: tuple[Line, ...]) -> Contents:
    """The same from JSON: states and features are lists there."""
    if not is_node_json(source.tree):
        return Contents((), (refusal(1, 1, "no list of nodes", "send scontrol show node --json"),))
    where: dict[str, Line] = {}
    for line in lines:
        if line.text.lstrip().startswith('"name":'):
            where.setdefault(line.text.partition(":")[2].strip(' ",'), line)
    facts: list[HostFact] = []
    refusals: list[Finding] = []
    doubts: list[Finding] = []
    for number, node in enumerate(source.tree["nodes"]):
        values = {key: joined(node.get(word), "+" if key == "State" else ",") for key, word in _JSON_KEYS.items()}
        line = where.get(values["NodeName"], Line(1, values["NodeName"]))
        made = _host(source, _Block(line, line.number, values))
        if isinstance(made, Finding):
            refusals.append(made)
            continue
        origin = origin_of(source, line.number, path=f"nodes[{number}]")
        facts.append(replace(made, origin=origin))
        doubts.extend(_doubts(facts[-1], values))
    return Contents(tuple(facts), tuple(refusals), tuple(doubts))


FORMATS: Final = (
    Format("slurm-nodes", "scontrol show node", "slurm", read, (re.compile(r"^\s*NodeName=\S+ "),)),
    Format("slurm-nodes-json", "scontrol show node --json", "slurm", read_json, (), is_node_json),
)
