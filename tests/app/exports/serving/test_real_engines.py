"""The table of arguments beside the argument parsers themselves, where ``make fetch-tools`` brought them."""

from __future__ import annotations

import pytest

from cluster_models.serving.engines import serving_engine
from cluster_models.serving.flags import engine_flags
from tests.app.exports.test_real_tools import fields, words

GENERATIONS = ("sglang-0.5.1", "sglang-0.5.8", "vllm-0.11", "vllm-0.16")


@pytest.mark.parametrize("generation", GENERATIONS)
def test_parsers_declare_every_argument_of_the_table(generation: str) -> None:
    """As a flag, or as a field of the arguments that the parser is made of."""
    tool = f"engines/{generation}"
    said, every = words(tool), set().union(*fields(tool).values())
    known = engine_flags(serving_engine(generation))
    assert len(known) > 15
    unknown = {
        flag for flag in known if flag not in said and flag.removeprefix("--").replace("-", "_") not in every
    }
    assert unknown == set()


@pytest.mark.parametrize("generation", GENERATIONS)
def test_parsers_know_every_value_of_the_table(generation: str) -> None:
    """Words that an argument is one of stand among the parser's."""
    tool = f"engines/{generation}"
    said = words(tool)
    choices = {choice for flag in engine_flags(serving_engine(generation)).values() for choice in flag.choices}
    assert choices
    assert choices <= said
