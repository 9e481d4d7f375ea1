"""Exchanges of context ranks in launch scripts and in the shorthand of configurations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.comparing.launch_arguments import read_launch
from app.comparing.standings import configuration_in
from app.exports.registry import EXPORTS
from cluster_models.errors import InvalidInput
from cluster_models.training.framework_choices import ContextExchange
from cluster_models.training.plan import Degrees
from tests.app.exports.plans import shaped, under


@pytest.mark.parametrize("name", ["megatron", "nemo"])
@pytest.mark.parametrize(("exchange", "heads"), [("gather", 0), ("all_to_all", 0), ("hierarchical", 2)])
def test_an_exported_exchange_of_context_ranks_is_read_back(name: str, exchange: str, heads: int) -> None:
    """From the files for the plan, and by the shorthand."""
    ring = under(shaped(Degrees(context=4, data=2), ((6,),)), "megatron-bridge-25.09")
    own = replace(ring.configuration, context_exchange=ContextExchange(exchange), head_ranks=heads)
    text = "\n".join(file.text for file in EXPORTS[name].files(replace(ring, configuration=own)))
    assert ring.architecture is not None
    for given in (text, f"{own.degrees} mb{own.micro_batch} exchange={own.exchange_words}"):
        assert configuration_in(given, ring).to_configuration(ring.architecture) == own


@pytest.mark.parametrize(
    ("given", "problem"), [("a2a p2p", "differs by layer"), ("ulysses", "is not priced"), ("a2a+p2p", "two sizes")]
)
def test_exchanges_that_are_not_priced_are_named(given: str, problem: str) -> None:
    """Layers that exchange otherwise than others, unknown names, groups without sizes."""
    with pytest.raises(InvalidInput, match=problem):
        read_launch(f"--micro-batch-size 1 --context-parallel-size 2 --cp-comm-type {given}", layers=6, gpus=8)
