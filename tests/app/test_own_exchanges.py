"""Exchanges of context ranks in launch scripts and in the shorthand of configurations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.comparing.launch_arguments import read_launch
from app.comparing.standings import configuration_in
from app.exports.registry import EXPORTS
from app.presentation.configuration import settings
from cluster_models.errors import InvalidInput
from cluster_models.training.framework_choices import ContextExchange, Optimizer
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


def test_what_is_no_default_is_printed() -> None:
    """How context ranks exchange, and an optimizer other than Adam, among the settings of a plan."""
    plan = under(shaped(Degrees(context=4, data=2), ((6,),)), "megatron-bridge-26.06")
    own = replace(plan.configuration, context_exchange=ContextExchange.HIERARCHICAL, head_ranks=2)
    assert plan.workload is not None
    found = dict(settings(own, replace(plan.workload, optimizer=Optimizer.MUON)))
    assert found["context ranks"] == "all-to-all of heads among 2, ring over 2"
    assert found["optimizer"] == "muon"
    assert "optimizer" not in dict(settings(own, plan.workload))


@pytest.mark.parametrize(
    ("given", "problem"), [("a2a p2p", "differs by layer"), ("ulysses", "is not priced"), ("a2a+p2p", "two sizes")]
)
def test_exchanges_that_are_not_priced_are_named(given: str, problem: str) -> None:
    """Layers that exchange otherwise than others, unknown names, groups without sizes."""
    with pytest.raises(InvalidInput, match=problem):
        read_launch(f"--micro-batch-size 1 --context-parallel-size 2 --cp-comm-type {given}", layers=6, gpus=8)
