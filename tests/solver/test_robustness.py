"""A plan's lead when links change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Collective, Sample
from cluster_models.links.spread import LinkSpread, Spread, SpreadOrigin, link_spread
from cluster_models.remarks import remark
from cluster_models.training.robustness import Drifted, Robustness
from cluster_models.training.workload import LinkBandwidth, Objective
from solver.answer.robustness import Contender, Drift, drift_of, drifted_steps, robustness
from solver.answer.warnings import used_links
from solver.check import check_plan
from solver.compiled import step_seconds
from solver.predict import predict
from solver.problem import PlanningProblem
from tests.cluster_models.clusters import sample
from tests.solver.problems import candidate, names, nodes, pair_samples, planned, problem, rates_of

RATES = rates_of(4, (40, 12, 25, 8, 30, 18))
SEEN = Spread(0.1, 0.1, SpreadOrigin.CLASS, 20)


def again(ratio: float, runs: int = 2) -> list[Sample]:
    """Every pair of four nodes measured ``runs`` times, every second time ``ratio`` times as fast."""
    return [
        sample(a, b, rate * (ratio if run % 2 else 1.0), collective=Collective.POINT_TO_POINT, ranks=2)
        for (a, b), rate in RATES.items()
        for run in range(runs)
        for _ in range(2)
    ]


def four(samples: list[Sample] | None = None, **changes: object) -> PlanningProblem:
    """Four nodes of two GPUs with very unequal links; pipelines of two so that links matter."""
    known = pair_samples(RATES, flows=2) if samples is None else samples
    return problem(nodes(4), known, **{"pinned": {"tensor": 2, "micro_batch": 1}, **changes})


def drift(asked: PlanningProblem, decile: float, *, node_share: float = 0.1, draws: int = 400) -> Drift:
    """The drift of a problem with one spread for all its links."""
    seen = link_spread(asked.snapshot)
    spread = Spread(decile, node_share, SpreadOrigin.CLASS, 20)
    known_well = np.full_like(seen.samples, 10**9)
    return Drift(asked, LinkSpread((spread,) * len(seen.by_class), seen.link_classes, known_well), None, draws, 7)


def contender(*step_s: float, weight: float = 1.0) -> Contender:
    """A contender with these steps."""
    return Contender(np.array(step_s), weight)


def robust(found: Robustness | None) -> Robustness:
    """Every plan of a search carries one."""
    assert found is not None
    return found


def test_a_small_case_by_hand() -> None:
    """Four draws: two won against the runner-up, losses 0, 0, 1/11 and 3/11, and 13.4 s against 11 s at p90."""
    rivals = [contender(11, 11, 11, 11), contender(20, 20, 20, 20)]
    found = robustness(contender(10, 10, 12, 14), rivals, SEEN)
    assert [rival.plan_ahead for rival in found.rivals] == [0.5, 1.0]
    assert found.mean_loss == pytest.approx(1 / 11)
    assert found.worst_loss == pytest.approx(3 / 11)
    assert found.step == Drifted(10.0, 11.0, pytest.approx(13.4))
    assert found.safer == 0


def test_the_objective_decides_who_is_ahead() -> None:
    """Half the GPUs at two thirds of the pace are ahead by GPU time."""
    found = robustness(contender(1.5, 1.5), [contender(1.0, 1.0, weight=2.0)], SEEN)
    assert found.rivals[0].plan_ahead == 1
    assert found.worst_loss == 0
    assert found.safer is None


@given(st.lists(st.lists(st.integers(50, 200), min_size=6, max_size=6), min_size=2, max_size=4), st.floats(0.1, 9))
def test_lead_and_loss_hold_together(steps: list[list[int]], unit: float) -> None:
    """Something is lost exactly where some rival is ahead; the mean stays below the worst; units do not count."""
    contenders = [contender(*each) for each in steps]
    scaled = [Contender(each.step_s * unit, 1.0) for each in contenders]
    found, other = (robustness(each[0], each[1:], SEEN) for each in (contenders, scaled))
    assert 0 <= found.mean_loss <= found.worst_loss
    assert (found.worst_loss == 0) is all(rival.plan_ahead == 1 for rival in found.rivals)
    assert [rival.plan_ahead for rival in other.rivals] == [rival.plan_ahead for rival in found.rivals]
    assert other.worst_loss == pytest.approx(found.worst_loss)


def test_draws_of_one_link_are_the_same_whoever_asks() -> None:
    """Plan and alternatives meet the same weather, and the same seed makes it again."""
    asked = four()
    alone = drift(asked, 0.2).factors(np.array([[1, 2]]))
    among = drift(asked, 0.2).factors(np.array([[3, 1], [1, 2], [2, 1]]))
    assert (alone[:, 0] == among[:, 1]).all()
    assert (among[:, 1] != among[:, 2]).all()


def test_draws_have_the_spread_and_the_correlation_asked_for() -> None:
    """One in ten is slower than the decile; links with one end in common share half the node's part."""
    factors = drift(four(), 0.3, node_share=0.6, draws=20_000).factors(np.array([[0, 1], [0, 2], [3, 2]]))
    logs = np.log(factors)
    assert np.quantile(logs[:, 0], [0.1, 0.5, 0.9]) == pytest.approx([-0.3, 0, 0.3], abs=0.01)
    assert np.corrcoef(logs[:, 0], logs[:, 1])[0, 1] == pytest.approx(0.3, abs=0.03)
    assert np.corrcoef(logs[:, 0], logs[:, 2])[0, 1] == pytest.approx(0, abs=0.03)


@given(factor=st.floats(0.5, 4), seed=st.integers(0, 9))
@settings(max_examples=12)
def test_steps_are_those_of_slower_links(factor: float, seed: int) -> None:
    """All links alike by one factor: the step time of the same placement with whole matrices multiplied."""
    asked = four()
    placed = candidate(asked, tensor=2, pipeline=2, data=2).placement
    assignment = np.random.default_rng(seed).permutation(4)
    pairs = used_links(placed, assignment)
    found = drifted_steps(placed, assignment, pairs, np.full((1, len(pairs)), factor))
    arrays = placed.arrays
    scaled = arrays._replace(
        hop_s=arrays.hop_s * factor,
        cross_s=arrays.cross_s * factor,
        reduce_s=arrays.reduce_s * factor,
        gather_s=arrays.gather_s * factor,
    )
    assert found[0] == pytest.approx(step_seconds(assignment, scaled)[0], rel=1e-12)


def test_the_problem_is_left_as_it_was() -> None:
    """Drawing changes no matrix that others read."""
    placed = candidate(four(), tensor=2, pipeline=2, data=2).placement
    assignment = np.arange(4)
    before = step_seconds(assignment, placed.arrays)
    drifted_steps(placed, assignment, used_links(placed, assignment), np.full((3, 8), 9.0)[:, :8])
    assert step_seconds(assignment, placed.arrays) == before


def test_more_spread_never_narrows_the_range_of_a_step() -> None:
    """One candidate in the same draws, every deviation grown."""
    asked = four()
    chosen = candidate(asked, tensor=2, pipeline=4, data=1)
    widths = []
    for decile in (0.0, 0.05, 0.1, 0.2, 0.4):
        steps = drift(asked, decile).step_s(chosen, np.arange(4))
        low, high = np.quantile(steps, [0.1, 0.9])
        widths.append(high - low)
    assert widths[0] == 0
    assert widths == sorted(widths)


def test_tests_that_always_agree_leave_the_lead_alone() -> None:
    """Zero spread: every draw is the plan as predicted, ahead of all, nothing lost."""
    plan = planned(four(again(1.0)))
    found = robust(plan.robustness)
    assert found.slow_link == 0
    assert found.step == Drifted(*[pytest.approx(plan.time.step_s)] * 3)
    assert found.rivals
    assert {rival.plan_ahead for rival in found.rivals} == {1.0}
    assert (found.mean_loss, found.worst_loss, found.safer) == (0, 0, None)


def test_the_spread_seen_reaches_the_plan() -> None:
    """Tests that halve every second time: the slow decile follows from them, and the interval opens."""
    plan = planned(four(again(0.5)))
    found = robust(plan.robustness)
    assert found.slow_link == pytest.approx(1 - 0.5 ** np.sqrt(1 / 3))  # half the log ratio, four tests each
    assert found.spread_from == remark("drift_repeated_tests", repeats=18, same_class=True, agree=False)
    assert found.step.step_p10_s < found.step.step_median_s < found.step.step_p90_s
    assert not check_plan(plan, four(again(0.5)))


def test_a_plan_on_one_node_is_not_touched() -> None:
    """Nothing leaves the node, so no link matters."""
    found = robust(planned(problem(nodes(1, gpus=8))).robustness)
    assert found.step.step_p10_s == found.step.step_p90_s
    assert found.spread_from == remark("drift_no_traffic")


def test_pessimistic_links_never_promise_more() -> None:
    """The best plan at the slow decile is no faster than the best at the median, and says what it was made on."""
    usual, careful = (planned(four(link_bandwidth=bandwidth)) for bandwidth in LinkBandwidth)
    assert careful.time.step_s >= usual.time.step_s
    assert careful.provenance.link_bandwidth is LinkBandwidth.PESSIMISTIC
    assert not check_plan(careful, four(link_bandwidth=LinkBandwidth.PESSIMISTIC))


def test_pessimistic_links_lead_away_from_unsteady_ones() -> None:
    """Two stages on two of three nodes: the fast link fell to a fifth in two of five runs, another never moves."""
    rates = {("n0", "n1"): (40, 40, 40, 8, 8), ("n0", "n2"): (30,) * 5, ("n1", "n2"): (10,) * 5}
    runs = [
        sample(a, b, rate, collective=Collective.POINT_TO_POINT, ranks=2)
        for (a, b), each in rates.items()
        for rate in each
    ]
    pinned = {"tensor": 2, "pipeline": 2, "virtual_pipeline": 1, "micro_batch": 1}
    usual, careful = (
        planned(problem(nodes(3), runs, pinned=pinned, max_gpus=4, link_bandwidth=bandwidth))
        for bandwidth in LinkBandwidth
    )
    assert set(usual.placement.hosts) == {"n0", "n1"}
    assert set(careful.placement.hosts) == {"n0", "n2"}


def test_drift_is_around_the_median_whatever_the_plan_is_made_on() -> None:
    """One configuration on the same hosts meets the same draws under either choice."""
    configuration = planned(four()).configuration
    found = [predict(four(link_bandwidth=bandwidth), configuration, hosts=names(4)) for bandwidth in LinkBandwidth]
    assert found[0].robustness == found[1].robustness
    assert found[0].time.step_s < found[1].time.step_s


def test_a_prediction_has_no_rivals() -> None:
    """A configuration given in full still says what drift does to its step."""
    configuration = planned(four()).configuration
    found = robust(predict(four(), configuration, hosts=names(4)).robustness)
    assert (found.rivals, found.mean_loss, found.safer) == ((), 0, None)


def test_long_schedules_get_fewer_draws() -> None:
    """The work of the draws is held, not their number."""
    asked = four()
    long = replace(asked, workload=replace(asked.workload, global_batch=131_072))
    batch = candidate(asked, tensor=2, pipeline=4, data=1).batch
    assert drift_of(long, 0, batch).draws < drift_of(asked, 0, batch).draws


@pytest.mark.parametrize("objective", [Objective.STEP_TIME, Objective.GPU_TIME])
def test_the_same_problem_and_seed_give_the_same_figures(objective: Objective) -> None:
    """Nothing but the problem and the seed goes in."""
    first, second = (planned(four(again(0.8), objective=objective)) for _ in range(2))
    assert first.robustness == second.robustness
