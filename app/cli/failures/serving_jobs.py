"""Deployments among the jobs of ``meshwright replan``: those whose plan is of serving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.cli.failures.replan_options import ALL, TypedJobs, job_weight, named_options, named_policies
from app.cli.files import naming, read_text
from app.documents.reading import parse_text, read_document
from app.documents.serving_plan import ServingPlanDocument
from app.documents.serving_policy import ServingPolicyDocument
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidInput
from cluster_models.jobs.running import RunningJob
from cluster_models.jobs.serving import ServingJob, ServingPolicy, plan_gpus
from cluster_models.serving.plan import ServingPlan

_FORM = "NAME=plan.json"


def split_jobs(typed: TypedJobs, cluster: Cluster) -> tuple[TypedJobs, tuple[ServingJob, ...]]:
    """Split typed jobs into training jobs and deployments; raises ``InvalidInput`` naming the option."""
    plans = named_options("--job", typed.plans, _FORM)
    serving = {name: plan for name, path in plans.items() if (plan := read_serving_plan(path)) is not None}
    if not serving:
        return typed, ()
    weights = named_options("--weight", typed.weights, "NAME=2")
    policies = named_policies(typed.recoveries)
    if len(serving) == len(plans):  # else a policy without a name is that of the training jobs
        policies = dict.fromkeys(serving, policies.pop(ALL)) | policies if ALL in policies else policies
    jobs = tuple(
        ServingJob(name, name, plan, job_weight(name, weights.get(name)), read_policy(policies.get(name)))
        for name, plan in serving.items()
    )
    for job in jobs:
        check_serving_fits(f"--job {job.name}", plans[job.name], job.plan, cluster)

    def others(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(text for text in texts if text.partition("=")[0] not in serving)

    left = replace(
        typed, plans=others(typed.plans), weights=others(typed.weights), recoveries=others(typed.recoveries)
    )
    return left, jobs


def check_apart(training: Sequence[RunningJob], serving: Sequence[ServingJob]) -> None:
    """Raise ``InvalidInput`` where two jobs hold one GPU."""
    held = {(place.node, place.gpu): job.name for job in training for place in job.plan.placement.ranks}
    for job in serving:
        for gpu in sorted(job.gpus):
            if (other := held.setdefault(gpu, job.name)) != job.name:
                problem = f"holds GPU {gpu[1]} of {gpu[0]}, as {other} does"
                remedy = "a GPU serves one job: is one of the plans not running?"
                raise InvalidInput("--job", job.name, problem, remedy)


def read_serving_plan(path: str) -> ServingPlan | None:
    """The plan of serving in a file, ``None`` where it is another; raises ``InvalidInput`` of a refusal."""
    text = read_text(path)
    with naming(path):
        data = parse_text(text, what="plan")
        if not isinstance(data, Mapping) or not str(data.get("result")).endswith("serving_plan"):
            return None
        if data.get("result") == "no_serving_plan":
            raise InvalidInput("plan", "no_serving_plan", "says that nothing serves the load: nothing runs by it")
        return read_document(ServingPlanDocument, data, what="plan").to_plan()


def read_policy(path: str | None) -> ServingPolicy:
    """How replicas start again, as a file says it; the defaults without one."""
    if path is None:
        return ServingPolicy()
    text = read_text(path)
    with naming(path):
        return read_document(ServingPolicyDocument, parse_text(text, what="recovery"), what="recovery").to_value()


def check_serving_fits(option: str, path: str, plan: ServingPlan, cluster: Cluster) -> None:
    """Raise ``InvalidInput`` where a plan of serving is of another cluster."""
    counts = {node.name: node.gpu_count for node in cluster.nodes}
    for name, gpu in sorted(plan_gpus(plan)):
        if gpu >= counts.get(name, 0):
            problem = f"is not a plan of the cluster {cluster.name}, which has no GPU {gpu} of {name}"
            raise InvalidInput(option, path, problem, "give the plan and the cluster file that belong together")
