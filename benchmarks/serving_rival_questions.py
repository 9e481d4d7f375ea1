"""Questions to aiconfigurator, in its words, and its answers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cluster_models.errors import InvalidInput
from cluster_models.serving.workload import ServingConfiguration, ServingWorkload, WeightFormat

WORKER: Final = Path(__file__).with_name("aiconfigurator_worker.py")
SYSTEMS: Final[Mapping[str, str]] = {
    "A100-SXM4-80GB": "a100_sxm",
    "H100-SXM5-80GB": "h100_sxm",
    "H200-SXM-141GB": "h200_sxm",
    "B200-SXM-180GB": "b200_sxm",
    "B300-SXM-288GB": "b300_sxm",
    "GB200": "gb200",
    "GB300": "gb300",
}
"""Its names of GPU kinds."""
CHECKPOINTS: Final[Mapping[tuple[str, str], str]] = {
    ("deepseek-v3", "fp8"): "deepseek-ai/DeepSeek-V3",
    ("deepseek-v3", "nvfp4"): "nvidia/DeepSeek-V3.1-NVFP4",
    ("gpt-oss-120b", "mxfp4"): "openai/gpt-oss-120b",
    ("kimi-k2", "int4"): "moonshotai/Kimi-K2.5",
    ("kimi-k2", "nvfp4"): "nvidia/Kimi-K2.5-NVFP4",
    ("llama-3.1-70b", "bf16"): "meta-llama/Meta-Llama-3.1-70B",
    ("llama-3.1-70b", "fp8"): "nvidia/Llama-3.1-70B-Instruct-FP8",
    ("minimax-m2", "fp8"): "MiniMaxAI/MiniMax-M2.5",
    ("qwen3-235b-a22b", "fp8"): "Qwen/Qwen3-235B-A22B-FP8",
    ("qwen3-32b", "bf16"): "Qwen/Qwen3-32B",
    ("qwen3-32b", "fp8"): "Qwen/Qwen3-32B-FP8",
}
"""Checkpoints that it ships the shape of, by our model and the format of its weights."""


def why_not(python: str) -> str | None:
    """A line that says why the interpreter cannot ask aiconfigurator, and the remedy; ``None`` where it can."""
    looks = "import importlib.util as u; exit(u.find_spec('aiconfigurator') is None)"
    try:
        lacks = subprocess.run((python, "-Ic", looks), check=False).returncode  # noqa: S603 - the user names it
    except OSError as error:
        return f"{python} cannot be started: {error.strerror}"
    remedy = "install it into an environment of its own (pip install aiconfigurator) and name its python: --python"
    return f"aiconfigurator is not installed for {python}, nothing compared: {remedy}" if lacks else None


def ask(python: str, estimates: Sequence[Mapping[str, Any]], plans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The answers of aiconfigurator, in the order of the questions."""
    done = subprocess.run(  # noqa: S603 - as above
        (python, "-I", "-W", "ignore", str(WORKER)),
        input=json.dumps({"estimates": estimates, "plans": plans}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise InvalidInput("python", python, f"aiconfigurator ended with: {done.stderr.strip()[-300:]}")
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def question_of(
    configuration: ServingConfiguration,
    workload: ServingWorkload,
    *,
    requests: float,
    checkpoint: str,
    system: str,
    sparse: bool,
) -> dict[str, Any]:
    """Arguments of ``cli_estimate``; its batch is that of one attention data rank."""
    worker = configuration.decode.worker
    ranks = configuration.decode.replicas * worker.attention_data
    experts = {"moe_tp_size": worker.expert_tensor, "moe_ep_size": worker.expert} if sparse else {}
    precision = {"gemm_quant_mode": "bfloat16"} if workload.weights is WeightFormat.BF16 else {}
    return {
        "model_path": checkpoint,
        "system_name": system,
        "backend_name": workload.engine.family,
        "isl": workload.input_tokens,
        "osl": workload.output_tokens,
        "batch_size": max(1, round(requests / ranks)),
        "tp_size": worker.tensor,
        "pp_size": worker.pipeline,
        "attention_dp_size": worker.attention_data,
        **experts,
        **precision,
    }
