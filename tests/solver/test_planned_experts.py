"""Plans that know how tokens are routed: prices, maps, figures, and what the checker makes of changed ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np
import pytest

from cluster_models.errors import InvalidInput
from cluster_models.remarks import remark
from cluster_models.routing.counts import ExpertLoads, RoutedWorkload
from cluster_models.training.expert_balance import ExpertBalance
from cluster_models.training.expert_slots import ExpertSlots
from cluster_models.training.framework_choices import CudaGraphs, ExpertDispatch
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK
from cluster_models.training.plan import Plan
from solver.check import check_plan
from solver.costs.memory import stage_memory
from solver.costs.routed_loads import domains_of, routed_loads
from solver.costs.step_costs import StepCosts, step_costs
from solver.placement.local_search import search_placement
from solver.predict import predict
from solver.problem import PlanningProblem
from tests.remarks import codes
from tests.solver.cost_cases import H100, MIXTRAL, WORKLOAD, behaviour, candidates, even_layers
from tests.solver.problems import SPARSE, every_candidate, nodes, planned, problem

SKEWED: Final = RoutedWorkload(
    "prefill", (0, 1, 2, 3), np.array([[90.0, 70, 20, 20], [5, 5, 90, 100], [40, 60, 50, 50], [100, 10, 90, 0]])
).plain()
OTHER: Final = RoutedWorkload("decode", (0, 1, 2, 3), np.array([[90.0, 20, 70, 20]] * 4)).plain(0.0)
PINNED: Final = {"expert": 2, "tensor": 1, "pipeline": 1, "expert_tensor": 1}


def asked(*routing: ExpertLoads, keep: bool = False) -> PlanningProblem:
    """A small sparse model whose experts two ranks share, captured in a graph: its layers outrun any host."""
    captured = replace(DEFAULT_FRAMEWORK, cuda_graphs=CudaGraphs.FULL)
    small = problem(nodes(2), model=SPARSE, pinned=PINNED, framework=captured)
    return replace(small, routing=tuple(routing), keep_expert_order=keep)


@cache
def routed_plan() -> Plan:
    """The plan for skewed loads."""
    return planned(asked(SKEWED, OTHER))


def test_experts_are_placed_for_what_was_counted() -> None:
    """Hot experts part, layers differ, and the plan says what that is worth and for whom."""
    plan, balance = routed_plan(), routed_plan().expert_balance
    assert plan.expert_slots is not None
    assert balance is not None
    assert check_plan(plan, asked(SKEWED, OTHER)) == ()
    first, second = (plan.expert_slots.by_rank(row) for row in plan.expert_slots.slots[:2])
    assert not {0, 1} <= set(first[0])
    assert not {2, 3} <= set(second[1])
    assert [layer.imbalance for layer in balance.layers] == pytest.approx([1.1, 1.05, 1.0, 1.0])
    assert [layer.contiguous for layer in balance.layers] == pytest.approx([1.6, 1.9, 1.0, 1.1])
    assert [(each.name, each.weight) for each in balance.workloads] == [("prefill", 1.0), ("decode", 0.0)]
    assert balance.workloads[1].imbalance > 1.1
    assert balance.contiguous_step_s > plan.time.step_s
    assert "experts_reordered" in codes(plan.warnings)
    [worse] = [each for each in plan.warnings if each.code == "worse_balanced_workload"]
    assert (worse.figures["workload"], worse.figures["planned"]) == ("decode", ("prefill",))


def test_a_layer_that_gains_nothing_keeps_its_order() -> None:
    """Layer 2 of the skewed loads is balanced as it is."""
    slots = routed_plan().expert_slots
    assert slots is not None
    assert slots.slots[2] == (0, 1, 2, 3)


def test_without_counts_experts_lie_in_contiguous_blocks() -> None:
    """And nothing is said of a balance."""
    plan = planned(asked())
    assert plan.expert_slots == ExpertSlots((0, 1, 2, 3), ((0, 1, 2, 3),) * 4, 4, 2)
    assert plan.expert_balance is None
    assert "experts_reordered" not in codes(plan.warnings)


def test_a_kept_order_costs_what_the_placed_plan_says_it_does() -> None:
    """The same configuration and hosts, priced with contiguous blocks."""
    plan, kept = routed_plan(), asked(SKEWED, keep=True)
    assert plan.expert_balance is not None
    hosts, gpus = plan.placement.hosts, plan.placement.gpus_per_node
    natural = predict(kept, plan.configuration, hosts=hosts, gpus_per_node=gpus)
    assert natural.time.step_s == pytest.approx(plan.expert_balance.contiguous_step_s, rel=1e-12)
    assert natural.expert_balance is not None
    assert natural.expert_balance.imbalance == natural.expert_balance.contiguous
    assert check_plan(natural, kept) == ()


def test_a_plan_where_one_rank_holds_all_experts_has_no_balance() -> None:
    """There is nothing to share out."""
    alone = replace(asked(SKEWED), workload=replace(asked().workload, pinned=PINNED | {"expert": 1}))
    plan = planned(alone)
    assert plan.expert_balance is None
    assert check_plan(plan, alone) == ()


def test_layers_that_were_not_counted_keep_their_order_and_the_calibrated_imbalance() -> None:
    """Two of four layers: half of the mean is the calibrated one."""
    part = replace(SKEWED, layers=(0, 1), loads=SKEWED.loads[:2])
    plan = planned(asked(part))
    assert plan.expert_slots is not None
    assert plan.expert_slots.slots[2:] == ((0, 1, 2, 3),) * 2
    assert remark("layers_not_counted", layers=2, of=4) in plan.warnings
    found = routed_loads([part], SPARSE, candidates(PINNED), domain=2)
    assert found is not None
    calibration = replace(behaviour(), expert_imbalance=2.0)
    assert found.mean(calibration)[0] == pytest.approx((1.1 + 1.05 + 2.0 + 2.0) / 4)
    assert found.worst(calibration)[0] == 2.0


def test_counts_of_another_model_are_refused() -> None:
    """A problem cannot be made of them."""
    with pytest.raises(InvalidInput, match="has 4 experts in a layer"):
        asked(replace(SKEWED, loads=tuple((*row, 1.0) for row in SKEWED.loads)))


def _changed(**changes: object) -> Callable[[Plan], Plan]:
    def change(plan: Plan) -> Plan:
        assert plan.expert_balance is not None
        return replace(plan, expert_balance=replace(plan.expert_balance, **changes))  # type: ignore[arg-type]

    return change


def _layer(**changes: float) -> Callable[[Plan], Plan]:
    def change(plan: Plan) -> Plan:
        assert plan.expert_balance is not None
        first, *others = plan.expert_balance.layers
        return _changed(layers=(replace(first, **changes), *others))(plan)  # type: ignore[arg-type]

    return change


def _workload(**changes: float) -> Callable[[Plan], Plan]:
    def change(plan: Plan) -> Plan:
        assert plan.expert_balance is not None
        first, *others = plan.expert_balance.workloads
        return _changed(workloads=(replace(first, **changes), *others))(plan)  # type: ignore[arg-type]

    return change


def _natural(plan: Plan) -> Plan:
    """The first layer put back in order, with the figures of the map it had."""
    assert plan.expert_slots is not None
    others = plan.expert_slots.slots[1:]
    return replace(plan, expert_slots=replace(plan.expert_slots, slots=((0, 1, 2, 3), *others)))


WRONG: Final[dict[str, tuple[Callable[[Plan], Plan], str]]] = {
    "imbalance": (_changed(imbalance=1.0), "mean imbalance of the layers is said to be 1,"),
    "contiguous": (_changed(contiguous=9.0), "mean contiguous of the layers is said to be 9,"),
    "least": (_changed(least=1.2), "mean least of the layers"),
    "layer": (_layer(imbalance=1.01), "imbalance of layer 0 is said to be 1.01, by the counts it is 1.1"),
    "layer before": (_layer(contiguous=1.7), "contiguous imbalance of layer 0"),
    "bound above the map": (_layer(least=1.3), "Layer 0 is said to need 1.3000 at least and reaches 1.1000"),
    "workload": (_workload(imbalance=1.3), "imbalance under prefill"),
    "workload before": (_workload(contiguous=1.3), "contiguous imbalance under prefill"),
    "weight": (_workload(weight=0.5), "weight of prefill"),
    "layers lost": (lambda plan: _changed(layers=plan.expert_balance.layers[1:])(plan), "not of the layers"),  # type: ignore[union-attr]
    "workload lost": (_changed(workloads=()), "not of the workloads"),
    "copies": (_changed(leaving_copies=-1.0), "not an amount"),
    "step": (_changed(contiguous_step_s=float("nan")), "not a time"),
    "nothing said": (lambda plan: replace(plan, expert_balance=None), "must be told just where"),
    "another map": (_natural, "imbalance of layer 0 is said to be 1.1, by the counts it is 1.6"),
}


@pytest.mark.parametrize("what", WRONG)
def test_figures_that_do_not_follow_from_the_counts_are_reported(what: str) -> None:
    """The checker adds the loads up itself."""
    change, sentence = WRONG[what]
    found = check_plan(change(routed_plan()), asked(SKEWED, OTHER))
    assert any(sentence in line for line in found), found


def test_a_balance_without_counts_is_reported() -> None:
    """Nobody can have known it."""
    found = check_plan(routed_plan(), asked())
    assert any("leave their order without any count" in line for line in found)
    assert any("must be told just where" in line for line in found)


def test_orders_that_mix_router_groups_are_neither_planned_nor_accepted() -> None:
    """With experts 0 and 1 in one group both stay on a rank, which then carries 1.6 times the mean."""
    assert SPARSE.experts is not None
    grouped = replace(SPARSE, experts=replace(SPARSE.experts, router_groups=2, active_groups=2))
    wanted = replace(asked(SKEWED, OTHER), architecture=grouped)
    found = check_plan(routed_plan(), wanted)
    assert any("The order of experts of layer 0 mixes router groups" in line for line in found)
    plan = planned(wanted)
    assert check_plan(plan, wanted) == ()
    assert plan.expert_balance is not None
    assert plan.expert_balance.layers[0].imbalance == pytest.approx(1.6)
    assert plan.expert_balance.layers[0].least == pytest.approx(1.6)


def _costs(dispatch: ExpertDispatch, counts: tuple[ExpertLoads, ...], imbalance: float) -> StepCosts:
    batch = candidates({"data": 16, "expert": 8}, {"data": 16, "expert": 2}, {"data": 16, "expert": 1})
    calibration = replace(behaviour(expert_dispatch=dispatch), expert_imbalance=imbalance)
    return step_costs(
        batch,
        even_layers(MIXTRAL, 1),
        architecture=MIXTRAL,
        workload=WORKLOAD,
        gpu=H100,
        gpus_per_domain=4,
        gpus_per_node=4,
        calibration=calibration,
        routed=routed_loads(counts, MIXTRAL, batch, domain=4),
    )


@pytest.mark.parametrize("dispatch", [ExpertDispatch.ALL_TO_ALL, ExpertDispatch.DEEPEP])
def test_even_counts_cost_what_an_imbalance_of_one_does(dispatch: ExpertDispatch) -> None:
    """Compute is equal to the bit; copies sent once come from another formula, with replacement in the old one."""
    even = RoutedWorkload("even", tuple(range(32)), np.full((32, 8), 5.0)).plain()
    counted, plain = _costs(dispatch, (even,), 3.0), _costs(dispatch, (), 1.0)
    assert counted.compute_s.tolist() == plain.compute_s.tolist()
    loose = 0.07 if dispatch is ExpertDispatch.DEEPEP else 1e-12
    assert counted.expert_s == pytest.approx(plain.expert_s, rel=loose)
    assert counted.expert_traffic.message_bytes == pytest.approx(plain.expert_traffic.message_bytes, rel=loose)


def test_a_hotter_expert_costs_time_and_memory() -> None:
    """Time by the mean of the layers, memory by the worst of them."""
    rows = np.full((32, 8), 5.0)
    rows[0, 0] = 45.0
    hot = RoutedWorkload("hot", tuple(range(32)), rows).plain()
    batch = candidates({"data": 16, "expert": 8})
    found = routed_loads((hot,), MIXTRAL, batch, domain=8)
    assert found is not None
    worst = 45 * 8 / 80
    assert found.largest[0] == pytest.approx(worst)
    assert found.imbalance[0] == pytest.approx((worst + 31) / 32)
    kept = [
        stage_memory(
            batch,
            even_layers(MIXTRAL, 1),
            architecture=MIXTRAL,
            workload=WORKLOAD,
            gpu=H100,
            micro_batches=np.array([4]),
            calibration=replace(behaviour(), expert_imbalance=imbalance),
            routed=routed,
        ).activations_bytes[0, 0]
        for imbalance, routed in ((1.0, found), (worst, None), (1.0, None))
    ]
    assert kept[0] == pytest.approx(kept[1], rel=1e-12)
    assert kept[0] > kept[2]


@pytest.mark.parametrize(
    ("expert", "cut", "domain", "domains"),
    [
        (8, 1, 8, 1),
        (16, 1, 8, 2),
        (8, 2, 8, 2),
        (4, 8, 8, 4),
        (2, 8, 4, 2),
        (12, 1, 8, 2),
        (9, 1, 4, 3),
        (7, 1, 4, 7),
    ],
)
def test_ranks_divide_by_the_domains_they_span(expert: int, cut: int, domain: int, domains: int) -> None:
    """Where a group does not fill its domains, more of them are counted rather than fewer."""
    assert domains_of(expert, cut, domain) == domains


def test_no_placed_candidate_beats_the_bound() -> None:
    """Every candidate, priced with the map that its plan would carry, placed by a local search of its own."""
    free = replace(problem(nodes(2), model=SPARSE), routing=(SKEWED,))
    bound = planned(free).certificate.bound
    steps = [search_placement(each.placement, moves=50, seed=0).step_s for each in every_candidate(free).values()]
    assert len(steps) > 50
    assert min(steps) >= bound * (1 - 1e-9)


def test_the_balance_is_a_value_of_its_own() -> None:
    """Two equal plans have equal balances."""
    balance = routed_plan().expert_balance
    assert isinstance(balance, ExpertBalance)
    assert balance == planned(asked(SKEWED, OTHER)).expert_balance
