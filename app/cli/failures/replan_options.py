"""Options of ``meshwright replan`` and ``resilience`` that are more than a word: jobs, durations, policies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.cli.failures.failure_options import known_node
from app.cli.files import is_path, naming, read_calibration, read_text
from app.documents.plan import PlanDocument
from app.documents.reading import close_name, parse_text, read_document
from app.documents.running_jobs import LEAST_WEIGHT, MOST_WEIGHT, RecoveryDocument
from app.services.planning.given_plans import given_plan
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidInput
from cluster_models.jobs.running import RecoveryPolicy, RunningJob
from cluster_models.jobs.serving import ServingJob
from cluster_models.training.plan import Plan

ALL: Final = "all"
_UNITS: Final[Mapping[str, float]] = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)")
_STEPS: Final = re.compile(r"(\d+)\s*steps?")
_JOB_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class TypedJobs:
    """Jobs as typed, each ``NAME=...``; a policy without a name is that of every job without its own."""

    plans: Sequence[str]
    weights: Sequence[str] = ()
    recoveries: Sequence[str] = ()


def seconds_of(option: str, text: str) -> float:
    """Seconds of a duration like 6h, 90m, 1h30m or 2d; raises ``InvalidInput``."""
    parts = _DURATION.findall(text.strip())
    if not parts or "".join(_DURATION.sub("", text).split()):
        raise InvalidInput(option, text, "is not a duration", "write it with its unit: 45s, 90m, 6h, 1h30m or 2d")
    value = sum(float(figure) * _UNITS[unit] for figure, unit in parts)
    if not 0 < value < float("inf"):
        raise InvalidInput(option, text, "must be longer than nothing")
    return value


def interval_steps(option: str, text: str, *, step_s: float) -> int:
    """Steps of an interval that is given as such (``100steps``) or as a duration; at least one."""
    if (steps := _STEPS.fullmatch(text.strip())) is not None:
        if not int(steps[1]):
            raise InvalidInput(option, text, "must be at least one step")
        return int(steps[1])
    return max(1, round(seconds_of(option, text) / step_s))


def read_jobs(typed: TypedJobs, cluster: Cluster) -> tuple[RunningJob, ...]:
    """The jobs that run, in the order given; raises ``InvalidInput`` naming the option that is wrong."""
    if not typed.plans:
        raise InvalidInput("--job", None, "is missing", "name each job with its plan: --job NAME=plan.json")
    plans = {
        name: (path, read_running_plan(path))
        for name, path in named_options("--job", typed.plans, "NAME=plan.json").items()
    }
    weights = named_options("--weight", typed.weights, "NAME=2")
    policies = {name: read_recovery(path) for name, path in named_policies(typed.recoveries).items()}
    for option, names in (("--weight", weights), ("--recovery", policies)):
        for name in set(names) - set(plans) - {ALL}:
            raise InvalidInput(option, name, "is not the name of a --job", close_name(name, list(plans)))
    jobs = []
    for name, (path, plan) in plans.items():
        if not _JOB_NAME.fullmatch(name):
            raise InvalidInput("--job", name, "is not a name of a job", "use letters, digits, dots and dashes")
        check_plan_fits(f"--job {name}", path, plan, cluster)
        policy = policies.get(name) or policies.get(ALL) or RecoveryPolicy()
        jobs.append(RunningJob(name, name, plan, job_weight(name, weights.get(name)), policy))
    _check_shared(jobs)
    return tuple(jobs)


def read_fitted(paths: Sequence[str], jobs: Sequence[RunningJob]) -> dict[str, FittedParameters]:
    """Own parameters that each job's plan was priced with, by job id, of the calibration files at ``paths``.

    Raises ``InvalidInput`` where a job's are missing, since others would price it anew, or a file is nobody's.
    """
    given = {path: read_calibration(path) for path in paths}
    by_label = {fitted.source: fitted for fitted in given.values()}
    wanted = {job.plan.provenance.calibration for job in jobs}
    for path, fitted in given.items():
        if fitted.source not in wanted:
            raise InvalidInput("--calibration", path, f"is {fitted.source}, which no --job was planned with")
    for job in jobs:
        label = job.plan.provenance.calibration
        if label and label not in by_label:
            problem = f"was planned with the calibration {label}"
            raise InvalidInput("--job", job.name, problem, "give its file: --calibration FILE")
    return {job.id: by_label[label] for job in jobs if (label := job.plan.provenance.calibration)}


def read_running_plan(path: str) -> Plan:
    """The plan document of a job; raises ``InvalidInput`` of one that contradicts itself."""
    text = read_text(path)
    with naming(path):
        data = parse_text(text, what="plan")
        if isinstance(data, Mapping) and data.get("result") == "no_plan":
            raise InvalidInput("plan", "no_plan", "says that no plan fits: no job runs by it")
        if not isinstance(data, Mapping) or not {"ranks", "configuration"} <= set(data):
            raise InvalidInput("plan", text[:40], "is not a plan", "give what meshwright plan --output wrote")
        return given_plan(read_document(PlanDocument, data, what="plan"))


def read_recovery(path: str) -> RecoveryPolicy:
    """The policy in a file."""
    text = read_text(path)
    with naming(path):
        return read_document(RecoveryDocument, parse_text(text, what="recovery"), what="recovery").to_value()


def spares_of(
    typed: Sequence[str], cluster: Cluster, jobs: Sequence[RunningJob], serving: Sequence[ServingJob] = ()
) -> tuple[str, ...]:
    """The spare nodes: those named (also ``a,b``), or with ``all`` every node that no job is on.

    Where none is named, those that the plans themselves kept as spares.
    """
    owners = {node: job.name for job in serving for node, _ in job.gpus}
    owners |= {node: job.name for job in jobs for node in job.plan.placement.hosts}
    held = owners.keys()
    free = [node.name for node in cluster.nodes if node.name not in held]
    names = [name.strip() for text in typed for name in text.split(",") if name.strip()]
    if names == [ALL]:
        return tuple(free)
    if not names:
        kept = {name for job in jobs for name in job.plan.spare_nodes}
        return tuple(name for name in free if name in kept)
    found = dict.fromkeys(known_node("--spare", name, cluster) for name in names)
    for name in found:
        if name in held:
            raise InvalidInput("--spare", name, f"is held by {owners[name]}", "a spare is a node that no job is on")
    return tuple(found)


def without_own_use(cluster: Cluster, jobs: Sequence[RunningJob], serving: Sequence[ServingJob] = ()) -> Cluster:
    """The cluster with the GPUs of these jobs not in use: what becomes of them is to be decided."""
    held: dict[str, set[int]] = {}
    for job in jobs:
        for place in job.plan.placement.ranks:
            held.setdefault(place.node, set()).add(place.gpu)
    for node, gpu in (each for deployment in serving for each in deployment.gpus):
        held.setdefault(node, set()).add(gpu)
    nodes = tuple(
        replace(node, gpus_in_use=tuple(gpu for gpu in node.gpus_in_use if gpu not in held.get(node.name, ())))
        for node in cluster.nodes
    )
    return replace(cluster, nodes=nodes)


def check_plan_fits(option: str, path: str, plan: Plan, cluster: Cluster) -> None:
    """Raise ``InvalidInput`` where a plan is of another cluster."""
    counts = {node.name: node.gpu_count for node in cluster.nodes}
    strangers = [host for host in plan.placement.hosts if host not in counts]
    if strangers:
        share = f"{len(strangers)} of its {len(plan.placement.hosts)} nodes are not"
        problem = f"is not a plan of the cluster {cluster.name}: {share} in it, such as {strangers[0]}"
        raise InvalidInput(option, path, problem, "give the plan and the cluster file that belong together")
    for place in plan.placement.ranks:
        if place.gpu >= counts[place.node]:
            problem = f"rank {place.rank} is on GPU {place.gpu} of {place.node}, which has {counts[place.node]}"
            raise InvalidInput(option, path, problem, "give the plan and the cluster file that belong together")
    if plan.architecture is None or plan.workload is None:
        raise InvalidInput(
            option, path, "does not say which model and workload it is for", "plan it anew with meshwright plan"
        )


def _check_shared(jobs: Sequence[RunningJob]) -> None:
    held: dict[tuple[str, int], str] = {}
    for job in jobs:
        for place in job.plan.placement.ranks:
            other = held.setdefault((place.node, place.gpu), job.name)
            if other != job.name:
                problem = f"holds GPU {place.gpu} of {place.node}, as {other} does"
                raise InvalidInput(
                    "--job", job.name, problem, "a GPU serves one job: is one of the plans not running?"
                )


def job_weight(name: str, text: str | None) -> float:
    """The weight of ``--weight NAME=NUMBER``, 1 where none was typed."""
    if text is None:
        return 1.0
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not LEAST_WEIGHT <= value <= MOST_WEIGHT:
        raise InvalidInput("--weight", f"{name}={text}", "is not a positive number", "2 counts twice as much as 1")
    return value


def named_options(option: str, texts: Sequence[str], form: str) -> dict[str, str]:
    """Values by name of an option that is typed as ``NAME=VALUE``, each name once."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise InvalidInput(option, text, f"is not {form.partition('=')[0]}=...", f"write it as {option} {form}")
        if name in found:
            raise InvalidInput(option, text, f"gives {name} twice", "give each job once")
        found[name] = value
    return found


def named_policies(texts: Sequence[str]) -> dict[str, str]:
    """Files of policies by job; one without a name is for all."""
    return named_options(
        "--recovery", [text if _has_name(text) else f"{ALL}={text}" for text in texts], "NAME=policy.yaml"
    )


def _has_name(text: str) -> bool:
    name, equals, _ = text.partition("=")
    return bool(equals) and not is_path(name)
