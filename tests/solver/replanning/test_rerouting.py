"""Re-routed micro-batches: as planned without losses, no faster than their work, refused where they cannot be."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.jobs.recovery import RecoveryAction
from cluster_models.jobs.running import RecoveryPolicy
from solver.replanning import options as actions
from solver.replanning.rerouting import living_cells, rerouted
from tests.solver.problems import SPARSE
from tests.solver.replanning.option_cases import plan_of, refusal, site, taken
from tests.solver.replanning.samples import after, cluster, job, names, one_lost, replan
from tests.solver.replanning.test_site import measured
from tests.solver.replanning.upper import upper_value

RATES = st.lists(st.floats(4, 40), min_size=15, max_size=15)
REROUTING: Final = RecoveryPolicy(may_reroute=True)


@settings(max_examples=15)
@given(rates=RATES, shape=st.sampled_from([(2, 2), (1, 4)]))
def test_without_losses_rerouting_is_no_slower_than_planned(rates: list[float], shape: tuple[int, int]) -> None:
    """Backwards first under the same limit in flight is 1F1B; a wider limit is taken only where it is faster."""
    whole = measured(cluster(6, leaf_nodes=3), rates, 2)
    running = job("a", whole, names(whole, 0, 4), recovery=REROUTING, tensor=shape[0], pipeline=shape[1])
    here = site(replan(whole, [running]))
    assert rerouted(here, living_cells(here)).step_s <= running.plan.time.step_s * (1 + 1e-9)


@settings(max_examples=15)
@given(rates=RATES, tensor=st.sampled_from([1, 2]))
def test_a_rerouted_step_is_longer_than_its_work(rates: list[float], tensor: int) -> None:
    """No stage can do the work of all replicas in less than its live cells take."""
    whole = measured(cluster(6, leaf_nodes=3), rates, 2)
    running = job("a", whole, names(whole, 0, 4), recovery=REROUTING, tensor=tensor, pipeline=2)
    problem = replan(after(whole, failed=["n01"]), [running])
    here = site(problem)
    alive = living_cells(here)
    found = rerouted(here, alive)
    arrays = here.candidate.placement.arrays
    micro_batches = here.candidate.placement.schedule.micro_batches
    work = arrays.duration_s.sum(axis=0) * micro_batches * len(alive) / alive.sum(axis=0)
    assert found.step_s >= work.max()
    option = taken(actions.reroute(here))
    assert option.holds == {(host, gpu) for host in ("n00", "n02", "n03") for gpu in (0, 1)}
    assert option.migration.moved == ()
    assert option.tokens_per_s == pytest.approx(here.asked.workload.tokens_per_step / plan_of(option).time.step_s)
    assert option.value_flop <= upper_value(here, RecoveryAction.REROUTE)
    time = plan_of(option).time
    parts = (time.compute_s, time.tensor_s, time.pipeline_bubble_s, time.pipeline_transfer_s)
    assert sum(parts) + time.data_exposed_s + time.optimizer_s == pytest.approx(time.step_s)


def test_what_cannot_be_rerouted_is_told() -> None:
    """The framework, experts across replicas, a stage without any replica."""
    assert "may_reroute" in refusal(actions.reroute(site(one_lost())))
    whole = cluster(4)
    moe = job("moe", whole, names(whole, 0, 4), model=SPARSE, tensor=2, expert=4, recovery=REROUTING)
    problem = replan(after(whole, failed=["n00"]), [moe], spares=())
    assert "experts" in refusal(actions.reroute(site(problem)))
    deep = job("deep", whole, names(whole, 0, 4), tensor=2, pipeline=4, recovery=REROUTING)
    problem = replan(after(whole, failed=["n00"]), [deep], spares=())
    assert "all replicas of some stage are lost" in refusal(actions.reroute(site(problem)))


def test_rerouting_beats_shrinking_where_bubbles_take_the_work() -> None:
    """One of eight parts is lost: the other stage has all its replicas, and memory for micro-batches in flight."""
    whole = cluster(8)
    running = job("a", whole, names(whole), recovery=REROUTING, tensor=2, pipeline=2)
    here = site(replan(after(whole, failed=["n03"]), [running], spares=()))
    assert taken(actions.reroute(here)).tokens_per_s > taken(actions.shrink(here)).tokens_per_s


def test_a_rerouted_job_runs_on_and_can_take_its_node_back() -> None:
    """Rerouted work counts as it runs; when the node returns it may be swapped in again."""
    whole = cluster(4)
    running = job("a", whole, names(whole, 0, 4), tensor=2, pipeline=2, recovery=REROUTING)
    rerouted_plan = plan_of(actions.reroute(site(replan(after(whole, failed=["n01"]), [running], spares=()))))
    limping = replace(running, plan=rerouted_plan)
    problem = replan(whole, [limping], spares=("n01",))
    here = site(problem)
    assert taken(actions.keep(here)).tokens_per_s == rerouted_plan.tokens_per_s
    assert taken(actions.keep(here)).value_flop <= upper_value(here, RecoveryAction.NONE)
    back = taken(actions.swap(here, ["n01"]))
    assert plan_of(back).placement.hosts == running.nodes
    again = site(replan(after(whole, failed=["n02"]), [limping], spares=()))
    assert "more of the ranks" in refusal(actions.keep(again))
    assert taken(actions.wait(again)).migration.downtime.middle_s > 0
    assert back.tokens_per_s == pytest.approx(running.plan.tokens_per_s)
