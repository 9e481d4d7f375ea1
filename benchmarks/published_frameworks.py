"""The framework generation of a row of a table of measured steps, from the text and date of its source."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from benchmarks.rows import Assumed, Row, text
from cluster_models.training.framework_choices import CudaGraphs, ExpertBalance, ExpertDispatch, Float8Scaling
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK, Framework, framework, frameworks

LINES: Final = (
    (r"kempnerforge", ("kempnerforge-",)),
    (r"huggingface/|transformers", ("transformers-",)),
    (r"megatron-?bridge", ("megatron-bridge-",)),
    (r"automodel", ("automodel-",)),
    (r"torchtitan", ("torchtitan-",)),
    (r"maxtext", ("maxtext-",)),
    (r"nanotron", ("nanotron-",)),
    (r"mosaicml|llm-foundry|composer", ("llm-foundry-",)),
    (r"internevo|internlm", ("internevo-",)),
    (r"\bamp\b|varuna|deepspeedexamples", ("deepspeed-",)),
    (r"bigscience.*experiments/gpt2|alpa", ("megatron-lm-2",)),
    (r"bigscience", ("megatron-deepspeed-2022",)),
    (r"vtrain", ("megatron-deepspeed-2023",)),
    (r"sailor|megatron-deepspeed|deepspeed", ("megatron-deepspeed-",)),
    (r"mlcommons|mlperf|training_results", ("nemo-23.", "mlperf-")),
    (r"nemo|dgxc", ("nemo-",)),
    (r"megatron|2104\.04473|2205\.05198|2201\.11990|korthikanti|nvidia", ("megatron-lm-", "megatron-core-")),
    (r"fsdp|pytorch", ("llm-foundry-", "torchtitan-")),
)
"""Which generations (by the start of their names) a source may belong to, by a pattern; the first that matches."""
STRANGE_LINES: Final = (
    (
        r"axolotl|llama-?factory|ms-swift|\btrl\b|lmflow|open-?instruct|accelerate|arctic|ulysses",
        ("transformers-",),
    ),
    (r"levanter|axlearn|paxml|\bt5x\b|\bjax\b|easylm", ("maxtext-",)),
    (r"colossal|xtuner", ("internevo-",)),
    (r"gpt-?neox|eleuther", ("megatron-deepspeed-",)),
    (r"picotron|smollm", ("nanotron-",)),
    (r"torchtune|olmo|lingua|foundation-model-stack|litgpt|tinyllama|veomni", ("llm-foundry-", "torchtitan-")),
    (r"primus|rocm|mindspeed|mcore|megascale|galvatron|vescale|paddle", ("megatron-lm-", "megatron-core-")),
)
"""Generations of other products, by how each trains: what it is built on, or what that resembles."""
STRANGERS: Final = re.compile(r"varuna|alpa|composer|fsdp|sailor", re.IGNORECASE)
"""Sources whose own framework is not among the generations; they get the nearest one."""
SHARDED: Final = ("llm-foundry-", "torchtitan-")
UNSHARDED: Final = ("megatron-lm-", "megatron-core-")
"""The generations that a source may resemble of which nothing but the sharding is known."""
MLPERF_ROUNDS: Final = {
    "1.0": (2021, 6),
    "1.1": (2021, 12),
    "2.0": (2022, 6),
    "2.1": (2022, 11),
    "3.0": (2023, 6),
    "3.1": (2023, 11),
    "4.0": (2024, 6),
    "4.1": (2024, 11),
    "5.0": (2025, 6),
    "5.1": (2025, 11),
    "6.0": (2026, 6),
}
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
CORE_RELEASES: Final = {
    "0.8": (2024, 7),
    "0.9": (2024, 10),
    "0.10": (2025, 1),
    "0.11": (2025, 3),
    "0.12": (2025, 5),
    "0.13": (2025, 7),
    "0.14": (2025, 10),
    "0.15": (2025, 12),
}
"""Months of Megatron-Core's releases (its changelog)."""
LATER_CORE: Final = (2025, 8)
LATER_MLPERF: Final = (2026, 11)
DISPATCHES: Final = (
    ("hybridep", ExpertDispatch.HYBRIDEP),
    ("deepep", ExpertDispatch.DEEPEP),
    ("tokendrop", ExpertDispatch.ALL_TO_ALL),
    ("dispatcher alltoall", ExpertDispatch.ALL_TO_ALL),
    ("dispatcher a2a", ExpertDispatch.ALL_TO_ALL),
)
"""By words of the notes; Megatron-Bridge drops tokens only with its all-to-all dispatcher."""
CONTAINER: Final = re.compile(r"\bnemo 2\d\.\d\d")
"""A container that the notes name; collections of recipes are younger than the containers that they run."""
BRIDGE: Final = re.compile(r"megatron-bridge 0\.(\d)")
"""A release of Megatron-Bridge that the notes name; containers carry it since 25.09 (0.1, its changelog)."""
BRIDGE_CONTAINERS: Final = {"1": "25.09", "2": "25.11", "3": "26.02", "4": "26.04", "5": "26.06", "6": "26.08"}
DGXC_BRIDGE: Final = re.compile(
    r"dgxc-benchmarking v(25\.1\d|2[6-9]\.\d\d)(?!.*(?:grok|nemotron-?4|torchtitan))", re.IGNORECASE
)
"""Collections whose recipes are Megatron-Bridge's, but for those of models that stayed with NeMo (its metadata)."""
DGXC_CONTAINERS: Final = {"25.10": "25.09", "25.12": "25.11", "26.02": "26.02", "26.05": "26.04", "26.06": "26.04"}
"""Containers that they run."""
FP32_BUCKET_BYTES: Final = 6e9
"""Copies of gradients in DeepSpeed's pipeline with BF16_Optimizer: flat in FP32 (``buffered_allreduce_fallback``),
5e8 elements and the tensor that overfills them at a time, the embedding of BigScience's models."""
LOSS_CHUNK: Final = 256
"""Tokens of a chunk of TRL's chunked loss."""
BALANCES: Final = (
    (r"token ?drop", ExpertBalance.CAPACITY),
    (r"force[d-]+[a-z -]*balanc|fake gate|balanced (?:fake|routing)", ExpertBalance.FORCED),
)
"""By words of the notes."""
UNTRAINED: Final = ("kempnerforge", "nemo-25", "megatron-bridge")
"""Generations, by the start of their name, whose published steps are the first of a run: 20 (moe_ep_bench.sh), or
50 on mock data (NVIDIA's launchers), which matters where a capacity fills the experts that no token chose."""
PRINTED_RECIPE: Final = re.compile(r"recipe v0\.[0-5]\.")
"""Notes that print all that a recipe of Megatron-Bridge switches on; from v0.6 on recipes print none of it."""
EAGER: Final = re.compile(r"eth-easl/sailor|DachengLi1/AMP")
"""Sources whose models run one operation after the other: Sailor's ports of OPT and GPT-Neo to Megatron-DeepSpeed
(megatron/model/opt_model.py: activation, dropout and residual are calls of their own), AMP's GPT-2, whose script
(ds_pretrain_gpt2_pipe.sh) asks for none of Megatron-LM 1.1.5's fusions."""
UNFUSED_LATENT: Final = ("nemo-25.04",)
"""Generations whose libraries had no fused attention for latent heads (192 and 128 elements) on Blackwell: NVIDIA's
launcher recomputes their attention core on GB200 alone (dgxc-benchmarking v25.05.05, deepseek_v3/pretraining)."""
BEFORE_BLACKWELL: Final = ("H", "A", "V")
"""GPU kinds, by their first letter, whose recipes do not capture whole iterations as CUDA graphs."""

Month = tuple[int, int]
READINGS: Final[tuple[tuple[str, Callable[[re.Match[str]], Month]], ...]] = (
    (r"(?<![\d.])(?:v|ngc|nemo[ -]?)?(2[1-9])\.(0[1-9]|1[0-2])(?!\d\d)", lambda m: (2000 + int(m[1]), int(m[2]))),
    (r"(?:core[_ -]?)?r(0\.\d+)", lambda m: CORE_RELEASES.get(m[1], LATER_CORE)),
    (r"(?:training_results_|mlperf[^v]*)v(\d\.\d)", lambda m: MLPERF_ROUNDS.get(m[1], LATER_MLPERF)),
    (r"(?<!\d)(20[12]\d)-?(0[1-9]|1[0-2])(?!\d{3})", lambda m: (int(m[1]), int(m[2]))),
    (rf"\b({'|'.join(MONTHS)})[a-z]* (20[12]\d)", lambda m: (int(m[2]), 1 + MONTHS.index(m[1].casefold()))),
    (r"(?<!\d)([12]\d)(0[1-9]|1[0-2])\.\d{5}(?!\d)", lambda m: (2000 + int(m[1]), int(m[2]))),
    (r"(?<!\d)(20[12]\d)(?!\d)", lambda m: (int(m[1]), 12)),
)
"""How a text says year and month, in the order in which they are believed."""


def read_framework(row: Row, assumed: Assumed) -> Framework:
    """The generation that the source names, with what the row says of its settings."""
    notes = text(row, "notes").casefold()
    found = _with_experts(_dense_settings(row, notes, assumed), row, notes)
    if "cuda graph" in notes and "cuda graphs none" not in notes:
        return replace(found, cuda_graphs=_graphs(notes))
    if PRINTED_RECIPE.search(notes) or text(row, "gpu").startswith(BEFORE_BLACKWELL):
        return replace(found, cuda_graphs=CudaGraphs.NONE)
    return found


def _dense_settings(row: Row, notes: str, assumed: Assumed) -> Framework:
    source = text(row, "source")
    found = _generation(f"{_product(notes, source)} {source}", assumed, sharded=_is_sharded(row))
    if parallel := text(row, "sequence_parallel"):
        found = replace(found, sequence_parallel=parallel.casefold() not in ("0", "false", "no"))
    elif text(row, "tp") not in ("", "1"):
        assumed.take("sequence parallelism", found.sequence_parallel, "the framework's default")
    found = _kernels(found, row, notes)
    if group := re.search(r"zero1=(\d+)", text(row, "zero")):
        found = replace(found, sharding_ranks=int(group[1]))
    if found.name.startswith("megatron-deepspeed") and text(row, "precision").startswith("bf16"):
        found = replace(found, gradient_bytes=4.0, own_gradient_bytes=2.0, bucket_bytes=FP32_BUCKET_BYTES)
    if found.name == "megatron-lm-2" and text(row, "zero") == "3":
        found = replace(found, slices_shards=True)  # it shards no parameters: DeepSpeed 0.3 does
    if found.name.startswith("transformers") and text(row, "zero") == "2":
        found = replace(found, gradient_bytes=2.0, shards_gradients=True)  # DeepSpeed's
    return found


def _kernels(found: Framework, row: Row, notes: str) -> Framework:
    """Kernels and collectives as far as the row departs from its generation."""
    if re.search(r"async ?tp", notes):
        found = replace(found, overlap_tensor=True)
    if "chunked loss" in notes:
        found = replace(found, loss_chunk_tokens=LOSS_CHUNK)
    blackwell = not text(row, "gpu").startswith(BEFORE_BLACKWELL)
    if found.name in UNFUSED_LATENT and blackwell and text(row, "model_name").startswith("deepseek"):
        found = replace(found, fused_attention=False)
    if "rowwise" in notes:
        found = replace(found, float8_scaling=Float8Scaling.ROW)
    if "eager" in notes or "no compile" in notes or EAGER.search(text(row, "source")):
        found = replace(found, fused_kernels=False)
    return found


def _with_experts(found: Framework, row: Row, notes: str) -> Framework:
    if text(row, "experts"):  # no recipe of a mixture of experts defers it
        found = replace(found, defer_head_gradient=False)
    if PRINTED_RECIPE.search(notes):
        found = replace(found, expert_dispatch=ExpertDispatch.ALL_TO_ALL, expert_overlap=False)
    if dispatch := next((dispatch for word, dispatch in DISPATCHES if word in notes), None):
        found = replace(found, expert_dispatch=dispatch)
    balance = next((each for words, each in BALANCES if re.search(words, notes)), found.expert_balance)
    overlap = (found.expert_overlap or "a2a overlap" in notes or "all-to-all overlap on" in notes) and (
        "all-to-all overlap off" not in notes
    )
    untrained = found.name.startswith(UNTRAINED) and (found.pads_experts or balance is ExpertBalance.CAPACITY)
    return replace(found, expert_overlap=overlap, expert_balance=balance, untrained_router=untrained)


def _product(notes: str, source: str) -> str:
    """The container or library that the notes name, which a collection of several does not; else empty."""
    if bridge := BRIDGE.search(notes):
        return f"nemo {BRIDGE_CONTAINERS[bridge[1]]}"
    if "deepspeed zero" in notes:
        return "transformers"
    container = CONTAINER.search(notes)
    if collection := DGXC_BRIDGE.search(source):
        release = container[0] if container else f"nemo {DGXC_CONTAINERS.get(collection[1], collection[1])}"
        return f"megatron-bridge {release}"
    return container[0] if container else ""


def _graphs(notes: str) -> CudaGraphs:
    """Graphs of the router and what follows it, without attention, leave the host as busy as before."""
    if "full_iteration" in notes or "full iteration" in notes:
        return CudaGraphs.FULL
    return CudaGraphs.NONE if "moe_router" in notes and "attn" not in notes else CudaGraphs.PARTIAL


def _is_sharded(row: Row) -> bool:
    """Whether the row says that parameters are sharded, as PyTorch's FSDP does."""
    return text(row, "zero").casefold().startswith(("3", "fsdp", "hsdp"))


def _generation(source: str, assumed: Assumed, *, sharded: bool) -> Framework:
    lines, when = _lines(LINES, source), source_month(source)
    guessed = lines is None
    if guessed:
        resembled = SHARDED if sharded else UNSHARDED if when is not None else None
        lines = _lines(STRANGE_LINES, source) or resembled
    names = [name for name in frameworks() if lines is not None and name.startswith(lines)]
    if not names:
        return framework(assumed.take("framework", DEFAULT_FRAMEWORK.name, "not recognised in the source"))
    dated = sorted((generation_month(name), name) for name in names)
    if when is None:
        name = dated[-1][1]
        if len(dated) > 1:
            assumed.take("framework", name, "latest generation; the source has no date")
        return framework(name)
    name = next((name for month, name in reversed(dated) if month <= when), dated[0][1])
    if guessed or STRANGERS.search(source):
        assumed.take("framework", name, "the nearest known")
    return framework(name)


def _lines(table: tuple[tuple[str, tuple[str, ...]], ...], source: str) -> tuple[str, ...] | None:
    """Starts of names of the first line of ``table`` that ``source`` matches."""
    return next((lines for pattern, lines in table if re.search(pattern, source, re.IGNORECASE)), None)


def generation_month(name: str) -> Month:
    """From when a generation was current: its release, or the year and month in its name if they come before."""
    year, month = (int(part) for part in framework(name).released.split("-"))
    if found := re.search(r"-(\d\d)\.(\d\d)$", name):
        return min((2000 + int(found[1]), int(found[2])), (year, month))
    return year, month


def source_month(source: str) -> Month | None:
    """Year and month that the text of a source speaks of: a release, an MLPerf round, a date, a paper's number.

    A release (NeMo 24.07, v25.02.02) wins over the rest, because texts cite papers older than what they ran.
    """
    for pattern, month in READINGS:
        if found := re.search(pattern, source, re.IGNORECASE):
            return month(found)
    return None
