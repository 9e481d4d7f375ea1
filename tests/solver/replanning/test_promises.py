"""Promises about options that nobody has worked out, held against options that were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from cluster_models.cluster.topology import NodeState
from cluster_models.jobs.recovery import RecoveryAction
from cluster_models.jobs.running import RecoveryPolicy
from solver.problem import SearchOptions
from solver.replanning.affected_jobs import asked_columns
from solver.replanning.columns import first_options
from solver.replanning.decide import limits_of
from solver.replanning.node_allocation import keep_promise
from solver.replanning.optimistic import NO_SIZES
from solver.replanning.problem import ReplanProblem
from solver.replanning.promises import POOL, asks_of
from solver.replanning.shapes import books_of
from solver.replanning.touched import touched
from solver.replanning.working_out import work_out
from tests.solver.replanning.samples import SAME_SHAPE, after, cluster, four_jobs, job, names, one_lost, replan

DEAR: Final = 1e-5
"""GPU-seconds a byte: what has to move is most of what options are worth, so that bounds show what they forget."""


def dear_problems() -> Iterator[ReplanProblem]:
    """Jobs whose state lies on storage, in memory or twice; nodes failed, drain or are suspected."""
    in_memory = RecoveryPolicy(memory_checkpoint=True, transfer_price_gpu_s_per_byte=DEAR)
    yield four_jobs(spares=2, failed=["n00", "n05"], recovery=in_memory)
    for policy in (RecoveryPolicy(memory_checkpoint=True), RecoveryPolicy(optimizer_instances=2)):
        dear = replace(policy, transfer_price_gpu_s_per_byte=DEAR)
        yield one_lost(recovery=dear)
        whole = cluster(7)
        running = job("a", whole, names(whole, 0, 4), tensor=2, pipeline=2, recovery=dear)
        yield replan(after(whole, failed=["n01"], draining=["n02"]), [running])
        unsure = {"n00": NodeState.UNKNOWN, "n01": NodeState.FAILED}
        nodes = [replace(node, state=unsure.get(node.name, node.state)) for node in whole.cluster.nodes]
        seen = replace(whole, cluster=replace(whole.cluster, nodes=tuple(nodes)))
        yield replan(seen, [running])


def test_every_option_keeps_the_promise_made_for_it() -> None:
    """Each option that a search worked out is worth no more and takes no less than some promise of its action."""
    plain = (four_jobs(spares=1, failed=["n00", "n01", "n04"]), one_lost(), four_jobs(recovery=SAME_SHAPE))
    for problem in (*plain, *dear_problems()):
        columns = asked_columns(problem, touched(problem))
        pool, books = limits_of(problem, columns).pools[POOL], books_of(columns)
        for column in columns:
            book = books.get(column.job.id)
            asks = asks_of(column, pool, NO_SIZES if book is None else book.upper())
            first_options(column, column.pool)
            for ask in asks:
                column.add(work_out(column, ask, column.pool, book, lambda: SearchOptions(alternatives=0)))
            refined = asks_of(column, pool, NO_SIZES if book is None else book.upper())
            placed = [option for option in column.options if option.action in {ask.action for ask in asks}]
            assert placed
            for option in placed:
                for promises in (asks, refined):
                    assert any(
                        ask.promise.value_flop >= option.value_flop
                        and ask.promise.holds <= option.holds
                        and ask.promise.takes[POOL] <= len(option.holds & pool)
                        and ask.promise.gpus <= len(option.holds)
                        for ask in promises
                        if ask.action is option.action
                    ), option.reason


def test_a_promise_of_few_gpus_is_kept_by_no_option_of_more() -> None:
    """Asked again it gives nothing new: the best option known would be three nodes, of which two were promised."""
    whole = cluster(4)
    problem = replan(after(whole, failed=["n00"]), [job("a", whole, names(whole), tensor=2)])
    (column,) = asked_columns(problem, touched(problem))
    first_options(column, ())
    asks = asks_of(column, limits_of(problem, [column]).pools[POOL], NO_SIZES)
    few = next(ask for ask in asks if ask.action is RecoveryAction.SHRINK_DATA_PARALLEL and ask.gpus == 4)
    for new in (True, False):
        option, added = keep_promise(column, few, (), None, SearchOptions)
        assert option is not None
        assert len(option.holds) == 4
        assert bool(added) is new
    assert len(column.best.holds) == 6
