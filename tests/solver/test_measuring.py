"""Which pairs are measured next, in which rounds, at which sizes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Collective, Direction, Sample, SampleStatus
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import NodeState
from cluster_models.errors import InvalidInput
from cluster_models.model.experts import Experts
from cluster_models.remarks import remark
from cluster_models.training.plan import Plan
from solver.measuring.choose import MeasuringPlan, Wanted, Worth, what_to_measure
from solver.measuring.rounds import rounds_of
from solver.measuring.sizes import plan_messages, trials
from solver.measuring.uses import uses_of
from tests.plans import small_architecture
from tests.remarks import codes
from tests.solver.problems import nodes, pair_samples, planned, problem, rates_of

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def _all_pairs(count: int, rate: float = 20.0, flows: int = 2) -> tuple[Sample, ...]:
    pairs = count * (count - 1) // 2
    return pair_samples(rates_of(count, [rate] * pairs), flows=flows) + (
        pair_samples(rates_of(count, [rate] * pairs), flows=1) if flows > 1 else ()
    )


def _dated(samples: tuple[Sample, ...], days: float) -> tuple[Sample, ...]:
    return tuple(replace(sample, measured_at=NOW - timedelta(days=days)) for sample in samples)


def _case(count: int, samples: tuple[Sample, ...]) -> tuple[ClusterSnapshot, Plan]:
    """A snapshot of nodes with 2 GPUs, and a plan of two stages for it."""
    asked = problem(nodes(count, gpus=2), samples, pinned={"pipeline": 2, "tensor": 2}, max_gpus=4)
    return asked.snapshot, planned(asked)


def _by_worth(found: MeasuringPlan) -> dict[Worth, list[Wanted]]:
    result: dict[Worth, list[Wanted]] = {}
    for group in found.rounds:
        for wanted in group:
            result.setdefault(wanted.worth, []).append(wanted)
    return result


def test_a_pair_of_the_plan_that_was_never_measured_comes_first() -> None:
    """It is the one that the plan's step time hangs on."""
    snapshot, plan = _case(4, ())
    found = what_to_measure(snapshot, at=NOW, plan=plan)
    first = found.rounds[0][0]
    assert set(first.pair) == set(plan.placement.hosts)
    assert first.worth is Worth.ON_PLAN_UNSURE
    assert first.why[0].figures["uses"] == ("pipeline",)
    assert codes(first.why) == ["plan_crosses_pair", "pair_unmeasured"]
    assert first.gain_s == pytest.approx(plan.time.pipeline_transfer_s)


def test_pairs_that_could_change_the_placement_come_next() -> None:
    """Measured slow, the plan's link loses to what an unmeasured one could be, but not to a measured one."""
    samples = _dated(pair_samples({("n0", "n1"): 2.0, ("n0", "n2"): 1.0}, flows=2), 1)
    samples += _dated(pair_samples({("n0", "n1"): 2.0, ("n0", "n2"): 1.0}, flows=1), 1)
    asked = problem(nodes(4, gpus=2), samples, pinned={"pipeline": 2, "tensor": 2}, max_gpus=4)
    plan = planned(asked)
    assert set(plan.placement.hosts) == {"n0", "n1"}
    found = _by_worth(what_to_measure(asked.snapshot, at=NOW, plan=plan))
    better = {frozenset(wanted.pair) for wanted in found[Worth.COULD_BE_BETTER]}
    assert better == {frozenset(pair) for pair in (("n0", "n3"), ("n1", "n2"), ("n1", "n3"), ("n2", "n3"))}
    assert {frozenset(wanted.pair) for wanted in found[Worth.ON_PLAN]} == {frozenset(("n0", "n1"))}
    gains = {frozenset(wanted.pair): wanted.gain_s for wanted in found[Worth.COULD_BE_BETTER]}
    assert gains[frozenset(("n1", "n2"))] > gains[frozenset(("n2", "n3"))]
    assert all("pair_could_win" in codes(wanted.why) for wanted in found[Worth.COULD_BE_BETTER])


@pytest.mark.parametrize(("days", "worth"), [(3.0, Worth.ON_PLAN), (40.0, Worth.ON_PLAN_UNSURE)])
def test_old_measurements_of_the_plan_are_unsure(days: float, worth: Worth) -> None:
    """After two weeks a fabric may have changed."""
    snapshot, plan = _case(3, _dated(_all_pairs(3), days))
    found = what_to_measure(snapshot, at=NOW, plan=plan)
    mine = [wanted for group in found.rounds for wanted in group if set(wanted.pair) == set(plan.placement.hosts)]
    assert [wanted.worth for wanted in mine] == [worth]
    assert (remark("pair_measured_long_ago", days=40) in mine[0].why) == (days == 40)


def test_links_that_stand_out_come_first() -> None:
    """However lately they were measured, and before older ones."""
    pairs = dict.fromkeys(combinations([f"n{k}" for k in range(5)], 2), 40.0) | {("n1", "n4"): 4.0}
    samples = (*_dated(pair_samples(pairs, flows=1), 1), *_dated(pair_samples(pairs, flows=2), 1))
    old = _dated(pair_samples({("n0", "n1"): 40.0}, flows=2), 60)
    asked = problem(nodes(5, gpus=2), tuple(s for s in samples if (s.source, s.destination) != ("n0", "n1")) + old)
    first, *others = [wanted for group in what_to_measure(asked.snapshot, at=NOW).rounds for wanted in group]
    assert (set(first.pair), first.worth) == ({"n1", "n4"}, Worth.STANDS_OUT)
    assert codes(first.why) == ["pair_stands_out", "pair_taken_at"]
    assert first.why[0].figures["share"] == pytest.approx(0.1)
    assert Worth.DOUBTFUL in {wanted.worth for wanted in others}


def test_a_pair_whose_test_failed_is_doubtful() -> None:
    """Also where older tests of it worked."""
    samples = _dated(_all_pairs(3), 1)
    broken = replace(samples[-1], status=SampleStatus.FAILED, bytes_per_s=None)
    asked = problem(nodes(3, gpus=2), (*samples, broken))
    found = _by_worth(what_to_measure(asked.snapshot, at=NOW))
    assert [wanted.pair for wanted in found[Worth.DOUBTFUL]] == [(broken.source, broken.destination)]
    assert "pair_test_failed" in codes(found[Worth.DOUBTFUL][0].why)


def test_a_failure_is_forgotten_once_a_later_test_works() -> None:
    """Else the pair would be asked for again and again."""
    samples = _dated(_all_pairs(3), 1)
    before = replace(samples[-1], status=SampleStatus.FAILED, bytes_per_s=None, measured_at=NOW - timedelta(days=2))
    asked = problem(nodes(3, gpus=2), (*samples, before))
    assert what_to_measure(asked.snapshot, at=NOW) == MeasuringPlan((), 0.0, 0)


def test_everything_measured_lately_leaves_nothing_to_do() -> None:
    """Without a plan there is nothing to repeat."""
    asked = problem(nodes(3, gpus=2), _dated(_all_pairs(3), 1))
    assert what_to_measure(asked.snapshot, at=NOW) == MeasuringPlan((), 0.0, 0)


def test_a_kind_of_pair_that_was_never_measured_is_probed_once() -> None:
    """One pair of a class tells of the others."""
    hosts = nodes(4, gpus=2)
    other = tuple(replace(node, labels={"leaf": "x" if index < 2 else "y"}) for index, node in enumerate(hosts))
    inside = _dated(pair_samples({("n0", "n1"): 20.0}, flows=1), 1)
    asked = problem(other, inside + _dated(pair_samples({("n0", "n1"): 20.0}, flows=2), 1))
    found = _by_worth(what_to_measure(asked.snapshot, at=NOW))
    assert len(found[Worth.NEW_CLASS]) == 1
    assert codes(found[Worth.NEW_CLASS][0].why) == ["class_unmeasured"]


def test_nodes_that_carry_no_ranks_are_not_measured() -> None:
    """A failed node would fail its tests."""
    hosts = list(nodes(4, gpus=2))
    hosts[1] = replace(hosts[1], state=NodeState.FAILED)
    found = what_to_measure(problem(hosts).snapshot, at=NOW)
    assert {name for group in found.rounds for wanted in group for name in wanted.pair} == {"n0", "n2", "n3"}


def test_a_cluster_of_one_node_has_no_pairs() -> None:
    """Nothing to measure."""
    assert what_to_measure(problem(nodes(1)).snapshot, at=NOW) == MeasuringPlan((), 0.0, 0)


@pytest.mark.parametrize("limits", [{"most_pairs": 0}, {"most_seconds": 0.0}, {"most_seconds": float("nan")}])
def test_limits_start_at_one(limits: dict[str, float]) -> None:
    """Nothing could be measured."""
    with pytest.raises(InvalidInput, match=next(iter(limits))):
        what_to_measure(problem(nodes(2)).snapshot, at=NOW, **limits)  # type: ignore[arg-type]


def test_a_plan_of_another_cluster_is_refused() -> None:
    """Its hosts are not there."""
    _, plan = _case(4, ())
    with pytest.raises(InvalidInput, match="is not a node"):
        what_to_measure(problem(nodes(1, gpus=2)).snapshot, at=NOW, plan=plan)


@given(st.integers(2, 9), st.integers(1, 40), st.floats(1, 5000))
def test_limits_hold_and_rounds_share_no_node(count: int, pairs: int, seconds: float) -> None:
    """Whatever they are; and what is left out is counted."""
    snapshot = problem(nodes(count, gpus=2)).snapshot
    found = what_to_measure(snapshot, at=NOW, most_pairs=pairs, most_seconds=seconds)
    assert found.pairs <= pairs
    assert found.seconds <= seconds
    assert found.pairs + found.left_out == count * (count - 1) // 2
    for group in found.rounds:
        names = [name for wanted in group for name in wanted.pair]
        assert len(names) == len(set(names))
    assert found == what_to_measure(snapshot, at=NOW, most_pairs=pairs, most_seconds=seconds)


def test_measuring_what_is_wanted_makes_links_sure() -> None:
    """Samples of the wanted trials leave no estimate, and the next call wants nothing."""
    asked = problem(nodes(5, gpus=2))
    found = what_to_measure(asked.snapshot, at=NOW)
    samples = tuple(
        Sample(
            *wanted.pair,
            direction=Direction.BOTH,
            tool="nccl-tests",
            collective=trial.collective,
            message_bytes=float(size),
            ranks_per_node=trial.ranks_per_node,
            pairs_active=len(group),
            status=SampleStatus.OK,
            bytes_per_s=size / (1e-5 + size / 1e10),
            measured_at=NOW,
        )
        for group in found.rounds
        for wanted in group
        for trial in wanted.trials
        for size in trial.sizes
    )
    measured = problem(nodes(5, gpus=2), samples).snapshot
    assert what_to_measure(measured, at=NOW) == MeasuringPlan((), 0.0, 0)


@given(st.integers(2, 13))
def test_all_pairs_take_the_fewest_rounds(count: int) -> None:
    """A tournament of n has n - 1 rounds, or n where n is odd; three and more nodes cannot do with less."""
    pairs = [(str(a), str(b)) for a, b in combinations(range(count), 2)]
    found = rounds_of(pairs)
    assert len(found) == (count - 1 if count % 2 == 0 else count)
    assert sorted(index for group in found for index in group) == list(range(len(pairs)))
    _check_rounds(pairs, found)


@given(st.sets(st.tuples(st.integers(0, 12), st.integers(0, 12)).filter(lambda pair: pair[0] < pair[1])))
def test_rounds_of_any_pairs(edges: set[tuple[int, int]]) -> None:
    """Each pair once, no node twice in a round, the first pair in the first round, at most 2d - 1 rounds."""
    pairs = [(str(a), str(b)) for a, b in sorted(edges, key=lambda pair: (pair[0] * 7 + pair[1] * 3) % 11)]
    found = rounds_of(pairs)
    assert sorted(index for group in found for index in group) == list(range(len(pairs)))
    _check_rounds(pairs, found)
    degree = Counter(node for pair in pairs for node in pair)
    assert len(found) <= max(2 * max(degree.values(), default=0) - 1, 0)
    assert not pairs or 0 in found[0]


def _check_rounds(pairs: list[tuple[str, str]], found: tuple[tuple[int, ...], ...]) -> None:
    for group in found:
        names = [name for index in group for name in pairs[index]]
        assert len(names) == len(set(names))


def test_sizes_lie_at_both_ends() -> None:
    """One GPU alone at small and large messages, all GPUs at large ones."""
    small, large, together = trials(8)
    assert (small.collective, small.ranks_per_node, small.sizes) == (Collective.SEND_RECV, 1, (8, 256, 8192))
    assert large.sizes == tuple(1 << power for power in range(20, 31, 2))
    assert (together.collective, together.ranks_per_node) == (Collective.ALL_TO_ALL, 8)
    assert len(trials(1)) == 2


def test_sizes_reach_beyond_the_messages_of_the_plan() -> None:
    """Gradients of the whole model and activations lie between the smallest and the largest."""
    _, plan = _case(4, ())
    messages = plan_messages(plan)
    assert messages
    _, large, _ = trials(2, plan)
    assert all(large.sizes[0] <= message <= max(large.sizes[-1], 4 << 30) for message in messages)
    assert large.sizes[-1] == large.largest_bytes


def test_uses_are_the_links_that_groups_cross() -> None:
    """Two stages on two hosts: the pipeline crosses, the tensor groups do not."""
    _, plan = _case(4, ())
    (use,) = uses_of(plan)
    assert use.traffic == "pipeline"
    assert [set(pair) for pair in use.pairs] == [set(plan.placement.hosts)]


def test_rings_of_data_ranks_close() -> None:
    """Three replicas on three hosts: all three pairs are links of the ring."""
    asked = problem(nodes(4, gpus=2), pinned={"tensor": 2, "data": 4, "pipeline": 1})
    plan = planned(asked)
    (use,) = uses_of(plan)
    hosts = plan.placement.hosts
    ring = {tuple(sorted((hosts[index], hosts[index - 1]))) for index in range(4)}
    assert use.traffic == "data parallel"
    assert set(use.pairs) == ring


def test_expert_ranks_talk_all_to_all() -> None:
    """Four experts over two nodes of a stage: the expert groups cross them, and so do no others but the rings."""
    model = replace(small_architecture(), experts=Experts(count=4, active=2, hidden=512))
    plan = planned(
        problem(nodes(2, gpus=2), model=model, pinned={"tensor": 1, "data": 4, "pipeline": 1, "expert": 4})
    )
    assert {use.traffic for use in uses_of(plan)} == {"data parallel", "expert parallel"}
    assert {use.pairs for use in uses_of(plan)} == {frozenset({("n0", "n1")})}
