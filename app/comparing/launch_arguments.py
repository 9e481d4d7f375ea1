"""A configuration from the arguments of somebody's own launch script, whatever stands around them.

Flags and their meaning as in ``megatron/training/arguments.py`` of Megatron-LM, or the same names with underscores
as NeMo and Megatron-Bridge set them; what a script leaves out has their default.  Scripts are not run: variables
are followed where a plain assignment gives them a value.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from app.documents.configuration import ConfigurationDocument, DegreesDocument
from app.exports.context_exchanges import BY_NAME
from app.exports.offloading import percent_said
from app.exports.readback.megatron import GROUP, Rows, even_rows, rows_of_layout, sharding_of
from cluster_models.errors import InvalidConfiguration, InvalidInput
from cluster_models.training.framework_choices import ContextExchange, CudaGraphs, ExpertDispatch, FreeSetting
from cluster_models.training.plan import RankOrder
from cluster_models.training.recompute import MODULES_BY_NAME
from cluster_models.training.run_settings import RunSettings
from cluster_models.training.workload import WHOLE_OFFLOAD, Recompute, RecomputeModule, Sharding

TENSOR: Final = "--tensor-model-parallel-size"
PIPELINE: Final = "--pipeline-model-parallel-size"
CONTEXT: Final = "--context-parallel-size"
EXCHANGE: Final = "--cp-comm-type"
GROUPS: Final = "--hierarchical-context-parallel-sizes"
EXPERTS: Final = "--num-experts"
EXPERT: Final = "--expert-model-parallel-size"
EXPERT_TENSOR: Final = "--expert-tensor-parallel-size"
MICRO_BATCH: Final = "--micro-batch-size"
GLOBAL_BATCH: Final = "--global-batch-size"
SEQUENCE: Final = "--seq-length"
LAYERS: Final = "--num-layers"
LAYOUT: Final = "--pipeline-model-parallel-layout"
CHUNK_LAYERS: Final = "--num-layers-per-virtual-pipeline-stage"
CHUNKS: Final = "--num-virtual-stages-per-pipeline-rank"
FIRST: Final = "--decoder-first-pipeline-num-layers"
LAST: Final = "--decoder-last-pipeline-num-layers"
GRANULARITY: Final = "--recompute-granularity"
METHOD: Final = "--recompute-method"
RECOMPUTED: Final = "--recompute-num-layers"
MODULES: Final = "--recompute-modules"
OFFLOAD: Final = "--optimizer-cpu-offload"
OFFLOADED: Final = "--optimizer-offload-fraction"
INSTANCES: Final = "--num-distributed-optimizer-instances"
WAITING: Final = "--cpu-offloading-num-layers"
_SWITCHES: Final = {
    FreeSetting.OVERLAP_TENSOR: ("--tp-comm-overlap",),
    FreeSetting.EXPERT_OVERLAP: ("--overlap-moe-expert-parallel-comm",),
    FreeSetting.CUDA_GRAPHS: ("--cuda-graph-impl", "--external-cuda-graph", "--enable-cuda-graph"),
    FreeSetting.EXPERT_DISPATCH: ("--moe-token-dispatcher-type",),
}
_OTHER_NAMES: Final = {
    CHUNKS: "virtual_pipeline_model_parallel_size",
    GROUP: "microbatch_group_size_per_vp_stage",
    EXPERTS: "num_moe_experts",
    FIRST: "num_layers_in_first_pipeline_stage",
    LAST: "num_layers_in_last_pipeline_stage",
}
"""Names of settings in NeMo that are not the flag with underscores."""
_USUAL: Final = {RecomputeModule.CORE_ATTENTION}
"""Modules of selective recomputation where none is named."""
_NOTHING: Final = frozenset({"None", "null", "~", ""})
_UNPRICED: Final = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
_NODES: Final = ("--nnodes", "--num-nodes")
_PER_NODE: Final = ("--nproc-per-node", "--nproc_per_node", "--gpus-per-node", "--ntasks-per-node")

_COMMENT: Final = re.compile(r"(?m)(^|(?<=\s))#(?!SBATCH).*$")
_ASSIGNED: Final = re.compile(
    r"""(?m)(?:^|[;\s])(?:export\s+|local\s+)?([A-Za-z_]\w*)=("[^"\n]*"|'[^'\n]*'|[^\s;()&|]*)"""
)
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)(?::?-([^}\n]{0,200}))?\}|\$([A-Za-z_]\w*)")
MOST_TEXT: Final = 500_000
_LONGEST_VALUE: Final = 500
_DEEPEST: Final = 8
"""Variables that stand for variables."""


@dataclass(frozen=True, slots=True)
class OwnLaunch:
    """Run that launch arguments describe: sizes that must be those of the workload; ``None`` unsaid.

    ``micro_batch_group``: micro-batches that pass a virtual stage together, as many as pipeline ranks if unsaid.
    """

    configuration: ConfigurationDocument
    sequence_length: int | None
    global_batch: int | None
    micro_batch_group: int
    settings: RunSettings


def has_launch_arguments(text: str) -> bool:
    """Whether a text gives any size of a parallel group as Megatron-LM or NeMo would be told."""
    return any(re.search(_spelled(flag), text) for flag in (TENSOR, PIPELINE, CONTEXT, MICRO_BATCH))


def read_launch(text: str, *, layers: int, gpus: int, free: Collection[FreeSetting] = ()) -> OwnLaunch:
    """The configuration that ``text`` starts a model of ``layers`` layers with.

    ``gpus`` are taken where the text does not say how many; of overlaps, graphs and dispatcher only those that are
    ``free`` are read.  Raises ``InvalidConfiguration`` with the flag as the
    field where a value is missing, not plain, contradicts another, or cannot be priced.
    """
    given = _Flags(text)
    tensor, pipeline = given.number(TENSOR, 1), given.number(PIPELINE, 1)
    context = given.number(CONTEXT, 1)
    if given.number(LAYERS, layers) != layers:
        raise InvalidConfiguration(LAYERS, given.number(LAYERS, layers), f"the model of the plan has {layers}")
    if not given.has(MICRO_BATCH):
        raise InvalidConfiguration(MICRO_BATCH, None, "is missing", "Megatron-LM does not start without it")
    world = given.world or gpus
    if world % (tensor * pipeline * context):
        raise InvalidConfiguration(
            TENSOR,
            tensor,
            f"tensor {tensor} x pipeline {pipeline} x context {context} does not divide {world} GPUs",
            "say how many GPUs the run has",
        )
    rows = _stage_layers(given, layers, pipeline)
    sparse = given.has(EXPERTS) or given.has(EXPERT)
    return OwnLaunch(
        ConfigurationDocument(
            degrees=DegreesDocument(
                tensor=tensor,
                pipeline=pipeline,
                data=world // (tensor * pipeline * context),
                context=context,
                expert=given.number(EXPERT, 1),
                # Megatron-LM cuts experts as wide as all else unless it is told otherwise.
                expert_tensor=given.number(EXPERT_TENSOR, tensor if sparse else 1),
                virtual_pipeline=len(rows),
            ),
            micro_batch_sequences=given.number(MICRO_BATCH, 1),
            **_recomputation(given, rows),
            sharding=(sharding := _sharding(given)),
            sharding_ranks=_sharing(given, world // (tensor * pipeline)) * (sharding is Sharding.OPTIMIZER),
            optimizer_offload_percent=_offload(given),
            offloaded_layers=given.number(WAITING, 0),
            **_exchange(given, context),
            rank_order=RankOrder.PIPELINE_BEFORE_DATA
            if given.has("--use-tp-pp-dp-mapping")
            else RankOrder.DATA_BEFORE_PIPELINE,
            stage_layers=[list(row) for row in rows],
        ),
        sequence_length=given.number(SEQUENCE, 0) or None,
        global_batch=given.number(GLOBAL_BATCH, 0) or None,
        micro_batch_group=given.number(GROUP, pipeline),
        settings=_run_settings(given, free),
    )


def _sharing(given: _Flags, ranks: int) -> int:
    """Data ranks that share out optimizer states where several instances are told; 0: as many as there are."""
    instances = given.number(INSTANCES, 1)
    if ranks % max(instances, 1):
        raise InvalidConfiguration(INSTANCES, instances, f"does not divide {ranks} data and context ranks")
    return ranks // instances if instances > 1 else 0


def _exchange(given: _Flags, context: int) -> dict[str, Any]:
    """How context ranks exchange: in a ring unless told otherwise, in all layers alike."""
    names = dict.fromkeys(given.words(EXCHANGE)) if context > 1 else {}
    if len(names) > 1:
        raise InvalidConfiguration(EXCHANGE, list(names), "differs by layer, which is not priced")
    if not names:
        return {}
    name = next(iter(names))
    if name not in BY_NAME:
        raise InvalidConfiguration(EXCHANGE, name, "is not priced", f"use {' or '.join(BY_NAME)}")
    exchange = BY_NAME[name]
    if exchange is not ContextExchange.HIERARCHICAL:
        return {"context_exchange": exchange}
    sizes = [int(size) for size in given.words(GROUPS) if size.isascii() and size.isdigit()]
    if len(sizes) != 2 or sizes[0] * sizes[1] != context:
        raise InvalidConfiguration(GROUPS, sizes, f"must be two sizes that make {context} context ranks")
    return {"context_exchange": exchange, "head_ranks": sizes[0]}


def _run_settings(given: _Flags, free: Collection[FreeSetting]) -> RunSettings:
    """Settings that are ``free``; unsaid they are off in Megatron-LM, and in NeMo as the recipe has them."""
    switches = (each for each in free if each in _SWITCHES)
    said = (each for each in switches if not given.is_nemo or any(map(given.is_told, _SWITCHES[each])))
    found: dict[str, Any] = {}
    for each in said:
        match each:
            case FreeSetting.CUDA_GRAPHS:
                found[each] = _graphs(given)
            case FreeSetting.EXPERT_DISPATCH:
                found[each] = _dispatch(given)
            case _:
                found[each] = given.has(_SWITCHES[each][0])
    return RunSettings(**found)


def _graphs(given: _Flags) -> CudaGraphs:
    kind = given.word("--cuda-graph-impl")
    if kind == "transformer_engine" or given.has("--external-cuda-graph"):
        return CudaGraphs.PARTIAL
    is_whole = kind not in (None, "none") or given.has("--enable-cuda-graph")
    return CudaGraphs.FULL if is_whole else CudaGraphs.NONE


def _dispatch(given: _Flags) -> ExpertDispatch:
    if given.word(_SWITCHES[FreeSetting.EXPERT_DISPATCH][0]) != "flex":
        return ExpertDispatch.ALL_TO_ALL
    is_hybrid = given.word("--moe-flex-dispatcher-backend") == "hybridep"
    return ExpertDispatch.HYBRIDEP if is_hybrid else ExpertDispatch.DEEPEP


class _Flags:
    """The flags of a text and their values."""

    def __init__(self, text: str) -> None:
        self._text = _followed(_COMMENT.sub("", text.replace("\\\n", " ")))

    def has(self, flag: str) -> bool:
        """Whether the flag stands in the text, or its name is given a value that is not no."""
        off = r"""["']?\s*[=:]\s*["']?(?:[Ff]alse|None|null|0)\b"""
        return re.search(rf"{_spelled(flag)}(?!{off})", self._text) is not None

    def is_told(self, flag: str) -> bool:
        """Whether the text says anything about a flag, yes or no."""
        return re.search(_spelled(flag), self._text) is not None

    @property
    def is_nemo(self) -> bool:
        """Whether settings are named as in NeMo."""
        return re.search(_spelled(TENSOR), self._text.replace(TENSOR, "")) is not None

    def word(self, flag: str) -> str | None:
        """The one value of a flag; ``None`` where it is not given."""
        # Quotes, commas and dashes stand between a flag and its value in lists of YAML, JSON and Python.
        between = r"""["']?(?:\s*[=:,]\s*|\s+)(?:-\s+)?"""
        pattern = rf"""{_spelled(flag)}{between}(?:"([^"]*)"|'([^']*)'|([^\s"')\]]+))"""
        found = {next(filter(None, match.groups()), "").rstrip(",") for match in re.finditer(pattern, self._text)}
        if found <= _NOTHING and found:
            return None
        if not found and self.has(flag):
            raise InvalidConfiguration(flag, None, "has no value")
        if len(found) > 1:
            raise InvalidConfiguration(
                flag, sorted(found), "is given with several values", "leave one launch in the text"
            )
        return found.pop() if found else None

    def words(self, flag: str) -> tuple[str, ...]:
        """The values of a flag that takes several, up to the end of the line or of a list."""
        found = re.search(rf"""{_spelled(flag)}["']?\s*[=:,]?\s*\[?([^\])\n]*)""", self._text)
        given = re.split(r"[\s,\"']+", found[1]) if found else []
        values = takewhile(lambda word: not word.startswith("-"), given)
        return tuple(word for word in values if word not in _NOTHING)

    def number(self, flag: str, default: int, *, least: int = 1) -> int:
        """The value of a flag, a whole number of at least ``least``."""
        word = self.word(flag)
        if word is None:
            return default
        if not (word.isascii() and word.isdigit() and len(word) < 13):
            raise InvalidConfiguration(
                flag, word[:80], "is not a plain whole number", "write the number in its place"
            )
        if int(word) < least:
            raise InvalidConfiguration(flag, int(word), f"must be at least {least}")
        return int(word)

    @property
    def world(self) -> int | None:
        """GPUs of the run where nodes and GPUs of each stand there as plain numbers."""
        nodes = self._first(_NODES) or self._scheduled("nodes|N")
        each = self._first(_PER_NODE) or self._scheduled("gpus-per-node|ntasks-per-node")
        return nodes * each if nodes and each else None

    def _first(self, flags: tuple[str, ...]) -> int | None:
        for flag in flags:
            found = re.search(rf"(?<![\w-]){flag}[=\s]+(\d{{1,6}})(?![\w:.-])", self._text)
            if found:
                return int(found[1])
        return None

    def _scheduled(self, names: str) -> int | None:
        found = re.search(rf"(?m)^#SBATCH\s+--?(?:{names})[=\s]+(\d{{1,6}})\s*$", self._text)
        return int(found[1]) if found else None


def _spelled(flag: str) -> str:
    """The pattern of a flag, or of the setting that NeMo calls so."""
    other = _OTHER_NAMES.get(flag, flag.removeprefix("--").replace("-", "_"))
    return rf"(?<![\w-])(?:{flag}|{other})(?![\w-])"


def _followed(text: str) -> str:
    """The text with variables replaced by their values, those assigned once to a plain value."""
    if len(text) > MOST_TEXT:
        raise InvalidConfiguration("launch", f"{len(text)} characters", "is too long", f"give {MOST_TEXT} at most")
    values: dict[str, str] = {}
    for name, assigned in _ASSIGNED.findall(text):
        plain = assigned.strip("\"'") if len(assigned) <= _LONGEST_VALUE else ""
        own = _VARIABLE.fullmatch(plain)
        if own is not None and own[1] == name:
            plain = own[2] or ""  # as in PP=${PP:-4}
        values[name] = plain if values.get(name, plain) == plain else ""
    left = MOST_TEXT

    def value(match: re.Match[str]) -> str:
        nonlocal left
        found = values.get(match[1] or match[3]) or match[2] or match[0]
        left -= len(found)
        return found if left > 0 else match[0]  # variables that stand for each other would grow without end

    for _ in range(_DEEPEST):
        followed = _VARIABLE.sub(value, text)
        if followed == text:
            break
        text = followed
    return text


def _stage_layers(given: _Flags, layers: int, pipeline: int) -> Rows:
    """(virtual stage, pipeline rank) layers, by the flag that says how they are split."""
    for flag in _UNPRICED:
        if given.has(flag):
            raise InvalidConfiguration(flag, True, "is not priced", f"say the same by {LAYOUT}")
    try:
        if layout := given.word(LAYOUT):
            rows = rows_of_layout(layout, pipeline)
            if sum(map(sum, rows)) != layers:
                raise InvalidConfiguration(LAYOUT, layout, f"does not hold {layers} layers")
            return rows
        if given.has(CHUNK_LAYERS):
            chunk = given.number(CHUNK_LAYERS, 1)
            return even_rows(layers, pipeline, max(1, layers // max(1, chunk * pipeline)))
        if given.has(FIRST) or given.has(LAST):
            return (_uneven_ends(given, layers, pipeline),)
        return even_rows(layers, pipeline, given.number(CHUNKS, 1))
    except InvalidInput as error:
        field = error.field if error.field.startswith("--") else PIPELINE
        raise InvalidConfiguration(field, error.value, error.problem, f"say how by {LAYOUT}") from error


def _uneven_ends(given: _Flags, layers: int, pipeline: int) -> tuple[int, ...]:
    """Layers of each pipeline rank where the first or the last has a number of its own."""
    if given.has(CHUNKS):
        raise InvalidConfiguration(CHUNKS, given.word(CHUNKS), f"conflicts with {FIRST} or {LAST}")
    ends = [given.number(flag, 0, least=0) if given.has(flag) else None for flag in (FIRST, LAST)]
    left = layers - sum(end or 0 for end in ends)
    middle = pipeline - sum(end is not None for end in ends)
    if middle < 1 or left < 0 or left % middle:
        raise InvalidConfiguration(FIRST, ends[0], f"leaves {left} layers to {middle} stages, which is not even")
    first, last = ([] if end is None else [end] for end in ends)
    return (*first, *[left // middle] * middle, *last)


def _sharding(given: _Flags) -> Sharding:
    """Sharding among data ranks; recipes of NeMo shard the optimizer unless they say otherwise."""
    parameters = given.has("--use-megatron-fsdp")
    told = given.is_told("--use-distributed-optimizer")
    optimizer = given.has("--use-distributed-optimizer") or (given.is_nemo and not told)
    return sharding_of(parameters=parameters, optimizer=optimizer or parameters)


def _offload(given: _Flags) -> int:
    """Percent of the optimizer states that processors update."""
    fraction = given.word(OFFLOADED)
    try:
        percent = percent_said(given.has(OFFLOAD), fraction or "")
    except ValueError as error:
        raise InvalidConfiguration(OFFLOADED, fraction, "is not a share between 0 and 1") from error
    if not 0 <= percent <= WHOLE_OFFLOAD:
        raise InvalidConfiguration(OFFLOADED, fraction, "is not a share between 0 and 1")
    return percent


def _recomputation(given: _Flags, rows: Rows) -> dict[str, Any]:
    """Fields of the configuration about recomputation; modules that are the default are not named."""
    granularity = given.word(GRANULARITY)
    if granularity is None:
        granularity = Recompute.SELECTIVE if given.has("--recompute-activations") else Recompute.NONE
        return {"recompute": granularity}
    if granularity not in (Recompute.FULL, Recompute.SELECTIVE):
        raise InvalidConfiguration(GRANULARITY, granularity, "must be full or selective")
    if granularity == Recompute.SELECTIVE:
        modules = given.words(MODULES)
        if unknown := [each for each in modules if each not in MODULES_BY_NAME]:
            known = ", ".join(MODULES_BY_NAME)
            raise InvalidConfiguration(
                MODULES, unknown[0], "is not a module that is priced", f"use some of {known}"
            )
        named = {MODULES_BY_NAME[each] for each in modules}
        return {"recompute": granularity, "recompute_modules": sorted(named if named != _USUAL else ())}
    most = max(map(max, rows))
    limit = given.number(RECOMPUTED, most) if given.word(METHOD) == "block" else most
    return {"recompute": granularity, "recompute_layers": limit if limit < most else 0}
