"""From a request to a problem that the solver can take, refused here where that is cheap to see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from sqlalchemy.orm import Session

from app.documents.reading import FieldProblem, InvalidDocument, close_name, problems_of
from app.services import clusters, models, snapshots
from app.services.requests import OptionsDocument, ProblemRequest
from cluster_models.errors import InvalidInput
from cluster_models.links import effective_links
from cluster_models.snapshot import ClusterSnapshot
from solver.enumeration import context_legal, tensor_legal
from solver.problem import PlanningProblem, SearchOptions


def make_problem(session: Session, *, request: ProblemRequest) -> PlanningProblem:
    """The problem that a request describes, its snapshot stored; raises ``InvalidInput`` with all that is wrong."""
    architecture = models.resolve_model(session, model=request.model)
    with errors_under("workload"):
        workload = request.workload.to_workload()
    problem = PlanningProblem(_snapshot(session, request), architecture, workload)
    check_problem(problem)
    return problem


def search_options(options: OptionsDocument, *, default_limit_s: float, max_limit_s: float) -> SearchOptions:
    """The solver's options; raises ``InvalidInput`` for more time than the service gives."""
    given = options.time_limit_s
    if given is not None and given > max_limit_s:
        raise InvalidInput("options.time_limit_s", given, f"is more than the {max_limit_s:g} s this service allows")
    return SearchOptions(
        time_limit_s=default_limit_s if given is None else given,
        effort=options.effort,
        seed=options.seed,
        gap=options.gap,
        backend=options.backend,
        alternatives=options.alternatives,
    )


def check_problem(problem: PlanningProblem) -> None:
    """Raise ``InvalidDocument`` where no search is needed to see that the problem contradicts itself."""
    problems = [*_node_problems(problem), *_degree_problems(problem)]
    if problems:
        raise InvalidDocument(problems)
    effective_links(problem.snapshot)


@contextmanager
def errors_under(prefix: str) -> Iterator[None]:
    """Give the fields of errors raised inside the place they have in the request."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidDocument([replace(p, field=_under(prefix, p.field)) for p in problems_of(error)]) from error


def _under(prefix: str, field: str) -> str:
    return field if field == prefix or field.startswith(f"{prefix}.") else f"{prefix}.{field}"


def _snapshot(session: Session, request: ProblemRequest) -> ClusterSnapshot:
    if not isinstance(request.cluster, str):
        if request.snapshot is not None:
            raise InvalidInput("snapshot", request.snapshot, "goes with a stored cluster only", "leave it out")
        with errors_under("cluster"):
            cluster = request.cluster.to_cluster()
            return snapshots.store_inline(session, cluster=cluster, samples=request.cluster.to_samples(cluster))
    if request.snapshot is None:
        return snapshots.take_snapshot(session, reference=request.cluster)
    snapshot = snapshots.get_snapshot(session, snapshot_id=request.snapshot)
    name = clusters.get_cluster(session, reference=request.cluster).name
    if snapshot.cluster.name != name:
        raise InvalidInput(
            "snapshot", request.snapshot, f"is one of cluster {snapshot.cluster.name!r}, not of {name!r}"
        )
    return snapshot


def _node_problems(problem: PlanningProblem) -> Iterator[FieldProblem]:
    nodes = problem.snapshot.cluster.nodes
    names = [node.name for node in nodes]
    for index, name in enumerate(problem.workload.avoid_nodes):
        if name not in names:
            yield FieldProblem(
                f"workload.avoid_nodes[{index}]", name, "is not a node of the cluster", close_name(name, names)
            )
    usable = [node for node in nodes if node.usable and node.name not in problem.workload.avoid_nodes]
    if not usable:
        states = ", ".join(sorted({str(node.state) for node in nodes}))
        yield FieldProblem(
            "cluster.nodes",
            states,
            "no node may be used: each is avoided, or neither ready nor degraded",
            "free a node, or mark one ready",
        )


def _degree_problems(problem: PlanningProblem) -> Iterator[FieldProblem]:
    """Pinned degrees that the model, the batch or the cluster rules out, whatever the other degrees are."""
    model, workload = problem.architecture, problem.workload
    pinned = {name: workload.pinned.get(name, 1) for name in _DEGREES}
    heads = f"{model.heads} heads, {model.kv_heads} key/value heads, width {model.hidden}"
    length, batch, micro = workload.sequence_length, workload.global_batch, pinned["micro_batch"]
    experts = model.experts.count if model.experts else 1
    broken = {
        "tensor": (
            not tensor_legal(model, workload, pinned["tensor"]),
            f"must divide the model and the sequence: {heads}, {length} tokens",
        ),
        "context": (
            not context_legal(workload, pinned["context"]),
            f"twice its value must divide the sequence length of {length}",
        ),
        "pipeline": (
            pinned["pipeline"] * pinned["virtual_pipeline"] > model.layers,
            f"makes more pipeline chunks than the model's {model.layers} layers",
        ),
        "expert": (
            experts % pinned["expert"] != 0,
            f"must divide the model's {experts} experts" if model.experts else "the model has no experts",
        ),
        "data": (
            batch % (pinned["data"] * micro) != 0,
            f"times micro_batch {micro} must divide the global batch of {batch}",
        ),
    }
    for name, (is_broken, sentence) in broken.items():
        if is_broken:
            yield FieldProblem(f"workload.pinned.{name}", pinned[name], sentence, "pin another value, or none")
    gpus = pinned["tensor"] * pinned["context"] * pinned["pipeline"] * pinned["data"]
    available = problem.snapshot.cluster.gpu_count
    if gpus > min(available, workload.max_gpus or available):
        yield FieldProblem(
            "workload.pinned", dict(workload.pinned), f"needs at least {gpus} GPUs; there are {available}"
        )


_DEGREES = ("tensor", "context", "pipeline", "data", "virtual_pipeline", "expert", "micro_batch")
