"""Arguments of serving engines: what each generation knows and takes."""

from __future__ import annotations

import pytest

from cluster_models.serving.engines import serving_engine, serving_engines
from cluster_models.serving.flags import engine_flags, engine_program, flag_problems


def test_every_engine_with_exports_has_a_program_and_degrees() -> None:
    """The first generation of a family on; ATOM has no table yet."""
    for engine in serving_engines().values():
        has_table = engine.family != "atom"
        assert bool(engine_program(engine)) == bool(engine_flags(engine)) == has_table, engine.name


def test_later_generations_know_all_that_earlier_ones_know() -> None:
    """Arguments came, and none that exports use has gone."""
    for family in ("vllm", "sglang", "trtllm"):
        known: set[str] = set()
        for engine in (each for each in serving_engines().values() if each.family == family):
            assert known <= set(engine_flags(engine))
            known = set(engine_flags(engine))


@pytest.mark.parametrize(
    ("engine", "given", "said"),
    [
        ("vllm-0.16", ("--tensor-parallel-size", ("4",)), ""),
        ("vllm-0.16", ("--enable-expert-parallel", ()), ""),
        ("vllm-0.16", ("--speculative-config", ('{"method": "mtp"}',)), ""),
        ("vllm-0.11", ("--nnodes", ("2",)), "has no argument --nnodes"),
        ("vllm-0.16", ("--tp-size", ("4",)), "has no argument --tp-size"),
        ("vllm-0.16", ("--tensor-parallel-size", ("0",)), "must be a count"),
        ("vllm-0.16", ("--tensor-parallel-size", ()), "takes one value, not 0"),
        ("vllm-0.16", ("--headless", ("yes",)), "takes nothing, not 1"),
        ("vllm-0.16", ("--speculative-config", ("{",)), "must be JSON"),
        ("vllm-0.16", ("--gpu-memory-utilization", ("1.5",)), "must be a share"),
        ("vllm-0.16", ("--kv-cache-dtype", ("int4",)), "must be one of auto, fp8"),
        ("sglang-0.5.8", ("--node-rank", ("0",)), ""),
    ],
)
def test_arguments_are_judged_as_parsers_do(engine: str, given: tuple[str, tuple[str, ...]], said: str) -> None:
    """In a sentence, or not at all."""
    problems = list(flag_problems(serving_engine(engine), [given]))
    assert bool(problems) == bool(said)
    assert all(said in problem for problem in problems)
