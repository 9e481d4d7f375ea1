"""The first failure after a start is answered as fast as any later one.

The solver, its compiled functions and the readers of stored plans are loaded when they are first used, which costs
a second of processor time.  A process that serves spends it beside its first requests, on a made-up failure.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from app.replan_request import ReplanRequest
from app.serialization import jsonable
from app.services.decisions.safe_answers import work_out
from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster, NicGroup, Node, NodeState
from cluster_models.jobs.recovery import BatchDecision
from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.model.catalogue import catalogue_model
from cluster_models.training.plan import Configuration, Degrees, Plan, RankOrder
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from cluster_models.units import GBIT

_GPU_KIND: Final = "H100-SXM5-80GB"
_MODEL: Final = "llama-3-8b"
_NODES: Final = ("a", "b", "spare")
_GPUS: Final = 8
_LOOK_EVERY_S: Final = 0.05

log = structlog.get_logger(__name__)


def warm_up_beside(is_started: Callable[[], bool], is_ending: Callable[[], bool]) -> None:
    """Warm up in a thread of its own once the server has started; the process may end at any time."""

    def run() -> None:
        while not is_started():
            if is_ending():
                return
            time.sleep(_LOOK_EVERY_S)
        try:
            made_up_answer()
        except Exception:  # the first failure is answered later than the others, and that is all
            log.exception("not_warmed_up")
        finally:
            leave_alone_what_is_loaded()

    threading.Thread(target=run, name="warm-up", daemon=True).start()


def leave_alone_what_is_loaded() -> None:
    """Let the collector of garbage, off until now, begin, and never look through what is loaded by now.

    That takes a third of a second, which would fall into the middle of an answer.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


def made_up_answer() -> BatchDecision:
    """The safe answer for a job on two nodes, one of which fails, with a spare for it."""
    whole = _cluster(NodeState.READY)
    request = ReplanRequest(
        snapshot={},
        jobs=[
            {
                "id": "job",
                "name": "job",
                "plan": jsonable(_plan(whole)),
                "weight": 1.0,
                "recovery": jsonable(RecoveryPolicy()),
                "is_paused": False,
                "wanted_gpus": None,
                "wanted_batch": None,
                "fitted": None,
            }
        ],
        spares=[_NODES[-1]],
        horizon_s=3600.0,
        back_after_s=3600.0,
        gpu_budget=None,
        events=[],
        options={},
    )
    # Imported late, as the solver is for any answer.
    from solver.replanning.prepared import PreparedJob  # noqa: PLC0415

    prepared = PreparedJob("job", _NODES[:2], ())
    return work_out(request.to_shared(_cluster(NodeState.FAILED)), [jsonable(prepared)])


def _cluster(first: NodeState) -> ClusterSnapshot:
    """Three nodes, of which the first is in that state."""
    kind = gpu_kinds()[_GPU_KIND]
    cards = NicGroup(count=_GPUS, bytes_per_s=400 * GBIT, fabric="infiniband")
    nodes = [Node(name, kind.name, _GPUS, name, cards) for name in _NODES]
    nodes[0] = replace(nodes[0], state=first)
    return ClusterSnapshot(f"made-up-{first}", Cluster("made-up", tuple(nodes), {kind.name: kind}, source=""), ())


def _plan(snapshot: ClusterSnapshot) -> Plan:
    """Two stages, one on each of the first two nodes."""
    # Imported late, as the solver is for any answer.
    from solver.predict import predict  # noqa: PLC0415
    from solver.problem import PlanningProblem  # noqa: PLC0415

    model = catalogue_model(_MODEL)
    half = model.layers // 2
    given = Configuration(
        degrees=Degrees(tensor=2, pipeline=2, data=2 * _GPUS // 4),
        micro_batch=1,
        recompute=Recompute.NONE,
        sharding=Sharding.OPTIMIZER,
        rank_order=RankOrder.DATA_BEFORE_PIPELINE,
        stage_layers=((half, model.layers - half),),
    )
    workload = TrainingWorkload(sequence_length=2048, global_batch=16)
    return predict(PlanningProblem(snapshot, model, workload), given, hosts=_NODES[:2], gpus_per_node=_GPUS)
