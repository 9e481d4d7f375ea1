"""The table of measured points of serving: what a line means, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from app.documents.serving_points import read_serving_points
from cluster_models.errors import InvalidInput

HEAD = "engine,gpu,model,tp,input_tokens,output_tokens,concurrency,weights,ttft_ms,tpot_ms,output_tok_s"
LINE = "vllm-0.16,H100,llama-3.1-8b,2,1024,512,8,fp8,50,8,1024"


def test_a_line_is_a_case_with_its_figures() -> None:
    """In seconds and requests a second; what is not measured is not a number."""
    points = read_serving_points(f"{HEAD}\n{LINE}\n{LINE.replace(',50,8,', ',,8,')}\n")
    (first, second) = points.cases
    assert first == second
    assert (first.pair, first.configuration.decode.worker.tensor) == ("vllm-0.16@H100-SXM5-80GB", 2)
    np.testing.assert_allclose(points.figures, [[0.008, 0.05, 2.0], [0.008, np.nan, 2.0]])
    assert points.names == ("line 2", "line 3")


def test_prefill_columns_split_the_phases() -> None:
    """With the network that joins them."""
    more = "prefill_tp,prefill_replicas,network_gbits_per_gpu"
    points = read_serving_points(f"{HEAD},{more}\n{LINE},4,2,400\n")
    prefill = points.cases[0].configuration.prefill
    assert prefill is not None
    assert (prefill.worker.tensor, prefill.replicas) == (4, 2)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("vllm-0.16", "vllm-9", "column engine: no such serving engine"),
        ("vllm-0.16", "atom-0.1", "it is for GPUs of AMD"),
        ("H100", "H1000", "column gpu"),
        ("llama-3.1-8b", "llama-9", "column model"),
        (",2,1024", ",3,1024", "must divide the 32 attention heads"),
        (",2,1024", ",16,1024", "give what the network carries per GPU"),
        (",1024,512", ",200000,512", "llama-3.1-8b takes 131072"),
        (",8,fp8", ",0,fp8", "column concurrency: must be greater than 0"),
        (",8,fp8", ",nan,fp8", "is not a number"),
        ("fp8", "fp5", "column weights: must be one of"),
        ("50,8,1024", ",,", "give one of tpot_ms, ttft_ms, output_tok_s"),
        ("50,8,1024", "-1,8,1024", "column ttft_ms: must be greater than 0"),
    ],
)
def test_a_wrong_cell_is_named_with_its_line(old: str, new: str, said: str) -> None:
    """Line, column, problem and remedy."""
    with pytest.raises(InvalidInput, match="line 2") as refused:
        read_serving_points(f"{HEAD}\n{LINE.replace(old, new, 1)}\n")
    assert said in str(refused.value)
