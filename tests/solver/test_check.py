"""A plan written by hand passes the checker, and every way to spoil it is reported."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace

import grimp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.gpus import Precision
from cluster_models.cluster.topology import NodeState
from cluster_models.model.experts import Experts
from cluster_models.training.expert_slots import ExpertSlots
from cluster_models.training.plan import Confidence, Degrees, Plan, RankOrder, TimelineEvent
from cluster_models.training.rank_costs import StageMemory, TimeBreakdown
from cluster_models.training.robustness import Drifted, Rival
from cluster_models.training.workload import LinkBandwidth, Objective, Recompute, Sharding
from solver.check import check_plan
from solver.problem import PlanningProblem
from tests.solver.hand_made import hand_made_plan, hand_made_problem

PLAN, PROBLEM = hand_made_plan(), hand_made_problem()
STEADY = Drifted(10.9, 11.0, 11.2)
Spoil = Callable[[Plan], Plan]


def test_a_correct_plan_passes() -> None:
    """The hand-made plan breaks no rule."""
    assert check_plan(PLAN, PROBLEM) == ()


def test_the_checker_shares_no_code_with_what_it_checks() -> None:
    """``solver.check`` reaches nothing of ours but the domain and the problem's vocabulary."""
    graph = grimp.build_graph("solver", "cluster_models", include_external_packages=True)
    own = {"solver.check"} | graph.find_descendants("solver.check")
    reached = {name for module in own for name in graph.find_modules_directly_imported_by(module)} - own
    allowed = {"solver.problem", "solver.reinforcement.problem", "solver.serving.problem", "numpy"}
    library = {"__future__", "collections", "dataclasses", "itertools", "math", "typing"}
    assert {name for name in reached if not name.startswith("cluster_models")} <= allowed | library


NATURAL = (0, 1, 2, 3)


def _slots(rows: tuple[tuple[int, ...], ...], ranks: int) -> ExpertSlots:
    """Maps of layers from 0 on."""
    return ExpertSlots(tuple(range(len(rows))), rows, len(set(rows[0])), ranks)


def _degrees(**changes: int) -> Spoil:
    return lambda plan: _configuration(degrees=replace(plan.configuration.degrees, **changes))(plan)


def _configuration(**changes: object) -> Spoil:
    return lambda plan: replace(plan, configuration=replace(plan.configuration, **changes))  # type: ignore[arg-type]


def _placement(**changes: object) -> Spoil:
    return lambda plan: replace(plan, placement=replace(plan.placement, **changes))  # type: ignore[arg-type]


def _rank(index: int, **changes: object) -> Spoil:
    def spoil(plan: Plan) -> Plan:
        ranks = list(plan.placement.ranks)
        ranks[index] = replace(ranks[index], **changes)  # type: ignore[arg-type]
        return _placement(ranks=tuple(ranks))(plan)

    return spoil


def _memory(index: int, **changes: object) -> Spoil:
    def spoil(plan: Plan) -> Plan:
        stages = list(plan.memory)
        stages[index] = replace(stages[index], **changes)  # type: ignore[arg-type]
        return replace(plan, memory=tuple(stages))

    return spoil


def _robustness(**changes: object) -> Spoil:
    return lambda plan: replace(plan, robustness=replace(plan.robustness, **changes))  # type: ignore[type-var]


def _certificate(**changes: object) -> Spoil:
    return lambda plan: replace(plan, certificate=replace(plan.certificate, **changes))  # type: ignore[arg-type]


def _event(name: str, track: int, **changes: object) -> Spoil:
    def spoil(plan: Plan) -> Plan:
        def edit(event: TimelineEvent) -> TimelineEvent:
            hit = event.name == name and event.track == track and event.replica == 0
            return replace(event, **changes) if hit else event  # type: ignore[arg-type]

        return replace(plan, timeline=tuple(map(edit, plan.timeline)))

    return spoil


def _alternative(**changes: object) -> Spoil:
    return lambda plan: replace(plan, alternatives=(replace(plan.alternatives[0], **changes),))  # type: ignore[arg-type]


SPOILED: dict[str, tuple[Spoil, str]] = {
    "too few ranks": (lambda plan: _placement(ranks=plan.placement.ranks[:-1])(plan), "Rank 7 appears 0"),
    "a rank twice": (_rank(1, rank=0), "Rank 0 appears 2 times"),
    "a rank too many": (_rank(7, rank=8), "Rank 8 appears 1 times"),
    "unknown node": (_rank(0, node="nowhere"), "not a node of the cluster"),
    "unknown host": (_placement(hosts=("nowhere", "b")), "Host nowhere is not a node"),
    "host twice": (_placement(hosts=("a", "a")), "Host a is listed 2 times"),
    "failed host": (_placement(hosts=("a", "broken")), "is in state failed"),
    "avoided host": (_placement(hosts=("a", "avoided")), "although the workload avoids it"),
    "missing host": (_placement(hosts=("a",)), "1 hosts with 4 GPUs each"),
    "hosts swapped": (_placement(hosts=("b", "a")), "the host list puts it on b"),
    "GPU that is not there": (_rank(3, gpu=4), "GPU 4 of a, which has 4"),
    "GPU twice": (_rank(3, gpu=2), "GPU 2 of a carries 2 ranks"),
    "wrong coordinates": (_rank(5, tensor=0), "Rank 5 is said to be"),
    "other rank order": (
        _configuration(rank_order=RankOrder.PIPELINE_BEFORE_DATA),
        "order tp-cp-ep-pp-dp makes it",
    ),
    "unused host": (lambda plan: replace(plan, unused_nodes=("a", "spare")), "Node a is called unused"),
    "forgotten node": (lambda plan: replace(plan, unused_nodes=()), "Node spare is usable"),
    "invented node": (lambda plan: replace(plan, unused_nodes=("spare", "x")), "x is called unused"),
    "spare that works": (lambda plan: replace(plan, spare_nodes=("a",)), "Spare a is not a free node"),
    "spare that is broken": (
        lambda plan: replace(plan, spare_nodes=("broken",)),
        "Spare broken is in state failed",
    ),
    "spare nobody asked for": (
        lambda plan: replace(plan, spare_nodes=("spare",), unused_nodes=()),
        "names spares that nobody asked for",
    ),
    "tensor and heads": (_degrees(tensor=3), "does not divide the 4 attention heads"),
    "tensor and kv heads": (_degrees(tensor=3), "nor a divisor of 2 kv heads"),
    "experts of a dense model": (_degrees(expert=2), "has no experts"),
    "data degree and batch": (_degrees(data=3), "Global batch 8 is not divisible"),
    "context degree and sequence": (_degrees(context=3), "not divisible by 2 x context degree 3"),
    "tensor degree and sequence": (_degrees(tensor=64), "which sequence parallelism needs"),
    "interleaving and micro-batches": (_degrees(virtual_pipeline=2, data=4), "Interleaving needs"),
    "interleaving without pipeline": (_degrees(virtual_pipeline=2, pipeline=1), "pipeline degree above 1"),
    "pinned degree": (_degrees(tensor=1), "pins it to 2"),
    "forbidden degree": (_degrees(context=4), "which the workload forbids"),
    "too many GPUs": (_degrees(data=4), "the workload allows 8"),
    "micro-batch": (_configuration(micro_batch=3), "micro-batch 3"),
    "no micro-batch": (_configuration(micro_batch=0), "must be at least 1"),
    "recomputation": (_configuration(recompute=Recompute.FULL), "Recomputation 'full' is not among"),
    "sharding": (_configuration(sharding=Sharding.PARAMETERS), "Sharding 'parameters' is not among"),
    "layers lost": (_configuration(stage_layers=((2, 1),)), "hold 3 layers but the model has 4"),
    "stage lost": (_configuration(stage_layers=((4,),)), "has 1 stages"),
    "virtual stage too many": (_configuration(stage_layers=((1, 1), (1, 1))), "has 2 rows"),
    "negative layers": (_configuration(stage_layers=((5, -1),)), "negative number of layers"),
    "expert map of a dense model": (lambda plan: replace(plan, expert_slots=_slots(((0,),), 1)), "has no experts"),
    "memory stage lost": (lambda plan: replace(plan, memory=plan.memory[:1]), "lists stages [0]"),
    "over the limit": (_memory(0, activations_bytes=2e6), "but its limit is"),
    "negative part": (_memory(1, gradients_bytes=-1.0), "not an amount of memory"),
    "undefined part": (_memory(1, optimizer_bytes=math.nan), "not an amount of memory"),
    "generous limit": (_memory(0, limit_bytes=1e6), "after 10.0 % head-room"),
    "weights too small": (_memory(0, weights_bytes=2 * 45312 * 0.97), "but its parameters take"),
    "weights too large": (_memory(1, weights_bytes=2 * 45376 * 1.03), "but its parameters take"),
    "step without duration": (
        lambda plan: replace(plan, time=replace(plan.time, step_s=0.0)),
        "which is not a duration",
    ),
    "stage time lost": (lambda plan: replace(plan, stages=plan.stages[1:]), "Stage times are given"),
    "negative stage time": (
        lambda plan: replace(plan, stages=(replace(plan.stages[0], forward_s=-1.0), plan.stages[1])),
        "Stage 0 has times",
    ),
    "throughput": (lambda plan: replace(plan, tokens_per_s=26.0), "26 tokens/s but"),
    "throughput per GPU": (lambda plan: replace(plan, tokens_per_s_per_gpu=25.6), "per GPU"),
    "model FLOP/s": (lambda plan: replace(plan, model_flops_per_s_per_gpu=4.5e6), "the model's shape allows"),
    "MFU": (lambda plan: replace(plan, mfu=0.5), "an MFU of 0.5"),
    "model": (lambda plan: replace(plan, model="other"), "names model other"),
    "architecture": (
        lambda plan: replace(plan, architecture=replace(PROBLEM.architecture, layers=5)),
        "carries another architecture",
    ),
    "workload": (
        lambda plan: replace(plan, workload=replace(PROBLEM.workload, global_batch=16)),
        "carries another workload",
    ),
    "snapshot": (
        lambda plan: replace(plan, provenance=replace(plan.provenance, snapshot_id="old")),
        "names snapshot old",
    ),
    "cluster": (
        lambda plan: replace(plan, provenance=replace(plan.provenance, cluster_name="other")),
        "names cluster other",
    ),
    "objective": (_certificate(objective=11.0), "certificate states objective 11"),
    "bound above objective": (_certificate(bound=10.1), "does not lie between"),
    "negative bound": (_certificate(bound=-1.0), "does not lie between"),
    "negative gap": (_certificate(gap=-0.1), "is negative"),
    "gap too small": (_certificate(gap=0.001), "objective and bound make 0.05"),
    "candidates that were not there": (_certificate(candidates_placed=60), "more than the 100"),
    "negative counts": (_certificate(candidates_pruned=-1), "negative counts"),
    "better alternative": (_alternative(step_s=9.0), "beats the best found"),
    "illegal alternative": (
        lambda plan: _alternative(configuration=replace(plan.configuration, micro_batch=3))(plan),
        "Alternative 1 is not legal",
    ),
    "no timeline": (lambda plan: replace(plan, timeline=()), "no timeline"),
    "event before the step": (_event("F0", 0, start_s=-1.0), "runs from -1"),
    "event after the step": (_event("optimizer", 0, duration_s=2.0), "to 11 s in a step of 10 s"),
    "events overlap": (_event("B0", 1, duration_s=2.5), "starts at 4 s while"),
    "forward before its input": (_event("F0", 1, start_s=0.5), "F0 on stage 1 starts at 0.5 s before F0"),
    "backward before its gradient": (_event("B0", 0, start_s=3.0), "before B0 on stage 1"),
    "backward before its forward": (_event("B0", 1, start_s=0.0, duration_s=0.1), "before F0 on stage 1"),
    "event lost": (_event("F1", 0, category="transfer"), "runs 1 forwards and 2 backwards"),
    "stage without events": (
        lambda plan: replace(plan, timeline=tuple(e for e in plan.timeline if e.track == 0)),
        "Replica 0 has stages [0]",
    ),
    "interval beside the step": (
        lambda plan: replace(plan, confidence=Confidence(11.0, 12.0, 0.8, "every measured run", 9, ())),
        "The step takes 10 s, outside its own interval of 11 to 12 s",
    ),
    "interval that holds more than all": (
        lambda plan: replace(plan, confidence=Confidence(9.0, 12.0, 80.0, "every measured run", 9, ())),
        "holds a share of 80.0",
    ),
    "other links than asked for": (
        lambda plan: replace(plan, provenance=replace(plan.provenance, link_bandwidth=LinkBandwidth.PESSIMISTIC)),
        "made on pessimistic link bandwidth",
    ),
    "no draws": (_robustness(draws=0), "drawn 0 times"),
    "links that lose all": (_robustness(slow_link=1.0), "lose a share of 1"),
    "deciles that fall": (_robustness(step=Drifted(9.5, 9.0, 12.0)), "do not rise: 9.5, 9, 12 s"),
    "an unknown rival": (_robustness(rivals=(Rival(3, STEADY, 0.75),)), "held to alternatives [3] of 1"),
    "a rival twice": (_robustness(rivals=(Rival(0, STEADY, 0.75),) * 2), "held to alternatives [0, 0] of 1"),
    "ahead in more than all": (_robustness(rivals=(Rival(0, STEADY, 75.0),)), "in a share of 75"),
    "safer but not drawn": (_robustness(safer=4), "called safer but was not drawn"),
    "safer but slower": (_robustness(step=Drifted(9.5, 10.0, 11.1)), "called safer but takes 11.2 s"),
    "safer but not told": (_robustness(safer=None), "No alternative is called safer"),
    "a mean above the worst": (_robustness(mean_loss=0.3), "0.3 on average under drift and 0.2 at worst"),
    "a loss without being behind": (_robustness(rivals=(Rival(0, STEADY, 1.0),)), "behind in a share of 0"),
    "a mean of too few draws": (_robustness(mean_loss=0.06), "too few for a mean loss of 0.06"),
    "drift of links that do not change": (_robustness(slow_link=0.0), "step of 10 s cannot take 9.5 s"),
    "replica that is not there": (_event("F0", 0, replica=2), "replica 2 at data degree 2"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_every_spoiled_field_is_reported(name: str) -> None:
    """The sentence names the broken rule; nothing crashes on nonsense."""
    spoil, sentence = SPOILED[name]
    found = check_plan(spoil(PLAN), PROBLEM)
    assert any(sentence in line for line in found), found
    assert all(line.endswith(".") and "\n" not in line for line in found)


@given(st.permutations(range(8)))
def test_any_other_seating_of_the_ranks_is_reported(seats: list[int]) -> None:
    """Giving ranks each other's seats passes only when all of them keep their node."""
    ranks = PLAN.placement.ranks
    moved = tuple(
        replace(place, node=ranks[seat].node, gpu=ranks[seat].gpu) for place, seat in zip(ranks, seats, strict=True)
    )
    sound = check_plan(_placement(ranks=moved)(PLAN), PROBLEM) == ()
    assert sound == all(a.node == b.node for a, b in zip(moved, ranks, strict=True))


@given(
    st.sampled_from([part.name for part in fields(TimeBreakdown)]),
    st.floats(1e-4, 10).map(lambda change: round(change, 6)),
    st.sampled_from([-1, 1]),
)
def test_any_change_of_one_time_is_reported(name: str, change: float, sign: int) -> None:
    """The parts and the whole hold each other: none can move alone."""
    time = replace(PLAN.time, **{name: getattr(PLAN.time, name) + sign * change})
    assert check_plan(replace(PLAN, time=time), PROBLEM)


@given(
    st.sampled_from([part.name for part in fields(StageMemory) if part.name.endswith("_bytes")]),
    st.integers(0, 1),
)
def test_memory_beyond_the_limit_is_reported_whatever_part_grew(name: str, stage: int) -> None:
    """One more GPU's worth of any part, or of the limit, is noticed."""
    grown = _memory(stage, **{name: getattr(PLAN.memory[stage], name) + 1e6})
    assert check_plan(grown(PLAN), PROBLEM)


def _sparse_case() -> tuple[Plan, PlanningProblem]:
    """The same plan for a model whose four layers have four experts each, two of them per expert rank."""
    experts = Experts(count=4, active=2, hidden=64)
    model = replace(PROBLEM.architecture, experts=experts)
    routed = 2 * (2 * 3 * 64 * 64)  # two layers, two experts of three matrices
    memory = tuple(
        replace(
            stage,
            weights_bytes=stage.weights_bytes - 2 * 2 * 24576 / 2 + 2 * 2 * 64 * 4 + 2 * routed,
            optimizer_bytes=4.22e5,
        )
        for stage in PLAN.memory
    )
    flops = PLAN.model_flops_per_s_per_gpu + 3.2 * 6 * 4 * 64 * 4  # the router; experts replace the MLP
    plan = replace(
        _degrees(expert=2)(PLAN),
        memory=memory,
        expert_slots=_slots((NATURAL,) * 4, 2),
        model_flops_per_s_per_gpu=flops,
        mfu=flops / 1e9,
        alternatives=(),
        robustness=None,
    )
    return plan, replace(PROBLEM, architecture=model)


def test_a_correct_sparse_plan_passes() -> None:
    """Experts are divided by the expert degree alone, everything else by the tensor degree."""
    assert check_plan(*_sparse_case()) == ()


@pytest.mark.parametrize(
    ("slots", "sentence"),
    [
        (None, "does not say where the experts"),
        (_slots((NATURAL,) * 2, 2), "not of the 4 layers with experts: look at layer 2"),
        (_slots(((0, 1, 2, 0, 3, 1),) * 4, 2), "has 6 slots for 4 experts"),
        (_slots((NATURAL,) * 3 + ((3, 1, 2, 0),), 2), "of layer 3 leave their order without any count"),
        (_slots((NATURAL,) * 4, 4), "has 4 ranks for expert degree 2"),
    ],
)
def test_a_wrong_expert_map_is_reported(slots: ExpertSlots | None, sentence: str) -> None:
    """Every layer with experts has a map, training holds each once, and only counted ones are moved."""
    plan, problem = _sparse_case()
    assert any(sentence in line for line in check_plan(replace(plan, expert_slots=slots), problem))


@pytest.mark.parametrize(
    ("expert", "order", "sentence"),
    [
        (3, RankOrder.DATA_BEFORE_PIPELINE, "does not divide the 4 experts"),
        (3, RankOrder.DATA_BEFORE_PIPELINE, "does not divide tensor x context x data = 4"),
        (4, RankOrder.PIPELINE_BEFORE_DATA, "needs expert degree = tensor x context = 2"),
    ],
)
def test_an_illegal_expert_degree_is_reported(expert: int, order: RankOrder, sentence: str) -> None:
    """Experts divide, fold over one stage, and never reach over data ranks that pipeline ranks separate."""
    plan, problem = _sparse_case()
    found = check_plan(_configuration(rank_order=order)(_degrees(expert=expert)(plan)), problem)
    assert any(sentence in line for line in found), found


def test_repeated_kv_heads_are_legal() -> None:
    """Two kv heads on four tensor ranks are repeated, as Megatron-Core does; it is not a violation."""
    wide = replace(PROBLEM, workload=replace(PROBLEM.workload, pinned={}))
    assert not any("kv heads" in line for line in check_plan(_degrees(tensor=4)(PLAN), wide))


def test_a_tensor_group_across_nvlink_domains_is_reported() -> None:
    """Tensor ranks must share one scale-up domain."""
    wide = replace(PROBLEM, workload=replace(PROBLEM.workload, pinned={}))
    ranks = tuple(replace(place, context=0, data=0, pipeline=0) for place in PLAN.placement.ranks)
    found = check_plan(_placement(ranks=ranks)(_degrees(tensor=8, data=1, pipeline=1)(PLAN)), wide)
    assert any("spans NVLink domains a, b" in line for line in found), found


def test_a_precision_the_gpu_lacks_is_reported() -> None:
    """No FP8 plan on GPUs without FP8."""
    found = check_plan(PLAN, replace(PROBLEM, workload=replace(PROBLEM.workload, precision=Precision.FP8)))
    assert any("has no fp8 arithmetic" in line for line in found), found


@pytest.mark.parametrize(("objective", "value"), [(Objective.GPU_TIME, 80.0), (Objective.COST, 10 * 16 / 3600)])
def test_the_objective_decides_what_the_certificate_states(objective: Objective, value: float) -> None:
    """Eight GPUs for ten seconds are 80 GPU seconds and, at 2 USD an hour each, 160/3600 USD."""
    problem = replace(PROBLEM, workload=replace(PROBLEM.workload, objective=objective))
    found = check_plan(PLAN, problem)
    assert len(found) == 1
    assert "certificate states objective 10" in found[0]
    assert check_plan(_certificate(objective=value, bound=value * 0.95)(PLAN), problem) == ()


def test_fewer_gpus_that_cost_less_beat_the_plan() -> None:
    """By GPU time, half the GPUs at 1.5 times the step are better, and an alternative must not be."""
    problem = replace(PROBLEM, workload=replace(PROBLEM.workload, objective=Objective.GPU_TIME))
    half = replace(PLAN.configuration, degrees=Degrees(tensor=2, pipeline=2), stage_layers=((2, 2),))
    plan = _alternative(configuration=half, step_s=15.0)(_certificate(objective=80.0, bound=76.0)(PLAN))
    assert any("beats the best found" in line for line in check_plan(plan, problem))


def test_a_degraded_node_may_carry_ranks() -> None:
    """Only ready and degraded nodes are usable."""
    cluster = PROBLEM.snapshot.cluster
    nodes = tuple(replace(node, state=NodeState.DEGRADED) if node.name == "a" else node for node in cluster.nodes)
    snapshot = replace(PROBLEM.snapshot, cluster=replace(cluster, nodes=nodes))
    assert check_plan(PLAN, replace(PROBLEM, snapshot=snapshot)) == ()
