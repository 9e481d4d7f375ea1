"""Layers that run again and backward by chunks of a sequence (StreamBP, arXiv 2506.03077)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster_models.errors import InvalidConfiguration, InvalidInput
from cluster_models.training.frameworks import framework
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.candidates import RECOMPUTE_CODES, SHARDING_CODES
from solver.check import check_plan
from solver.costs.memory import StageMemoryParts, stage_memory
from tests.app.exports.plans import export
from tests.solver.cost_cases import H100, LLAMA_70B, candidates, even_layers
from tests.solver.problems import DENSE, SPARSE, nodes, not_planned, planned, problem

LLAMA_8B = replace(LLAMA_70B, layers=32, hidden=4096, heads=32, mlp_hidden=14336, vocabulary=128256)
TRANSFORMERS = framework("transformers-2025")


def held(tokens: int, chunk: int, **degrees: int) -> StageMemoryParts:
    """Memory of Llama 3 8B on one GPU, every layer run again, by chunks of so many tokens."""
    workload = TrainingWorkload(
        sequence_length=tokens,
        global_batch=1,
        framework=replace(TRANSFORMERS, stream_tokens=chunk, gradient_bytes=2.0),
        recompute=(Recompute.FULL,),
        sharding=(Sharding.NONE,),
    )
    none, full = SHARDING_CODES.index(Sharding.NONE), RECOMPUTE_CODES.index(Recompute.FULL)
    row = candidates({"sharding": none, "recompute": full} | degrees)
    shape: dict[str, Any] = {"architecture": LLAMA_8B, "workload": workload, "gpu": H100}
    return stage_memory(row, even_layers(LLAMA_8B, 1), micro_batches=np.array([1]), **shape)


def passing(tokens: int, chunk: int) -> float:
    """Bytes of a backward pass alone: activations, logits and what is in pieces of them."""
    found = held(tokens, chunk)
    parts = found.activations_bytes + found.logits_bytes + found.fragmentation_bytes
    return float(parts[0, 0])


def test_chunks_cut_what_a_layer_works_on_and_its_logits() -> None:
    """A quarter of the logits; of a layer all but its input, both gradients of the stream, keys and values."""
    whole, chunked = held(8192, 0), held(8192, 2048)
    assert chunked.logits_bytes == pytest.approx(whole.logits_bytes / 4)
    boundaries = 2.0 * 4096 * 8192 * 32
    stream, keys = 4.0 * 4096 * 8192, 2.0 * 2.0 * 2.0 * 8 * 128 * 8192
    working = float((whole.activations_bytes - boundaries)[0, 0])
    expected = boundaries + (working - stream) / 4 + stream + keys
    assert float(chunked.activations_bytes[0, 0]) == pytest.approx(expected)
    assert chunked.weights_bytes == pytest.approx(whole.weights_bytes)


def test_a_chunk_as_long_as_the_sequence_changes_nothing() -> None:
    """Nor do chunks on tensor ranks, which the wrapper does not know."""
    assert held(8192, 8192).total_bytes == pytest.approx(held(8192, 0).total_bytes)
    assert held(8192, 2048, tensor=2).total_bytes == pytest.approx(held(8192, 0, tensor=2).total_bytes)


def test_sequences_grow_as_published() -> None:
    """2.8 to 5.5 times those of gradient checkpointing on 80 GB (abstract); a third to a tenth at a time here."""
    room = 80e9 - 2.0 * 2.0 * LLAMA_8B.parameters()

    def longest(parts: int) -> float:
        low, high = 1_000, 400_000
        while high - low > 100:
            middle = (low + high) // 2
            fits = passing(middle, middle // parts if parts > 1 else 0) <= room
            low, high = (middle, high) if fits else (low, middle)
        return low

    once = longest(1)
    assert 2.3 < longest(3) / once < 2.8
    assert 4.5 < longest(10) / once < 5.5


def asked(chunk: int, **changes: Any) -> Any:
    """A long sequence on one GPU."""
    settings: dict[str, Any] = {
        "model": DENSE,
        "framework": replace(TRANSFORMERS, stream_tokens=chunk),
        "recompute": (Recompute.FULL,),
        "sharding": (Sharding.NONE, Sharding.OPTIMIZER),
        "sequence_length": 150_000,
        "global_batch": 1,
        "pinned": {"tensor": 1, "context": 1},
    }
    return problem(nodes(1, gpus=1), **settings | changes)


def test_a_plan_streams_where_nothing_else_fits() -> None:
    """Its memory is sound for the checker; DeepSpeed's script names the wrapper, others refuse."""
    found = planned(asked(1000))
    assert check_plan(found, asked(1000)) == ()
    assert not_planned(asked(0)).closest is not None
    assert "chunks of 1000 tokens" in "".join(file.text for file in export("deepspeed").files(found))
    with pytest.raises(InvalidConfiguration, match="stream_tokens"):
        export("torchtitan").files(found)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": SPARSE}, "dense layers"),
        ({"recompute": tuple(Recompute)}, "allow recompute full alone"),
        ({"sharding": (Sharding.PARAMETERS,)}, "stages 1 and 2"),
    ],
)
def test_what_cannot_stream_is_refused(changes: dict[str, Any], reason: str) -> None:
    """At the setting."""
    with pytest.raises(InvalidInput, match=reason):
        planned(asked(1000, **changes))
    with pytest.raises(InvalidInput, match="runs no layers by chunks"):
        asked(1000, framework=replace(framework("torchtitan-2025"), stream_tokens=8))
