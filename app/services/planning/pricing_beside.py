"""Predictions, comparisons, outlooks for requests: beside the web process where they take more than a second."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from app.db.engine import SessionFactory
from app.documents.configuration import ConfigurationDocument
from app.services.planning.planning_problems import unstored_problem
from app.services.planning.predictions import Prediction, predict_configuration
from app.services.planning.requests import ProblemRequest, ServingProblemRequest
from app.services.planning.serving_plans import unstored_serving_problem
from app.services.subprocesses import in_subprocess
from cluster_models.serving.refusal import NoServingPlan
from cluster_models.training.plan import NoPlan
from solver.outlook import Outlook, outlook
from solver.problem import PlanningProblem
from solver.serving.outlook import ServingOutlook, serving_outlook
from solver.serving.problem import ServingProblem

Problem = TypeVar("Problem", PlanningProblem, ServingProblem)
Seen = TypeVar("Seen")

MOST_NODES: Final = 512
"""A prediction takes 0.6 s of processor time with so many nodes, an outlook 1.3 s; four times as many take 10 s."""
MOST_PASSES: Final = 100_000
"""Forwards and backwards of a step, each stage's counted; to simulate and check so many takes a second."""
LIMIT_S: Final = 120.0


def predict_for_request(problem: PlanningProblem, *, document: ConfigurationDocument, alike: int = 1) -> Prediction:
    """``predict_configuration``, one of ``alike`` for the same request; raises ``NotReady`` as well."""
    if _is_large(problem, _passes(problem, document), alike=alike):
        priced = partial(predict_configuration, document=document)
        return in_subprocess(priced, problem, limit_s=LIMIT_S, what="configuration", command="meshwright predict")
    return predict_configuration(problem, document=document)


def outlook_of(
    sessions: SessionFactory, request: ProblemRequest | ServingProblemRequest
) -> Outlook | NoPlan | ServingOutlook | NoServingPlan:
    """The outlook of the problem that a request describes, nothing of it kept; raises as ``make_problem`` does."""
    if isinstance(request, ServingProblemRequest):
        return outlook_for_request(serving_outlook, unstored_serving_problem(sessions, request=request))
    return outlook_for_request(outlook, unstored_problem(sessions, request=request))


def outlook_for_request(seen: Callable[[Problem], Seen], problem: Problem) -> Seen:
    """The outlook that ``seen``, a function of a module, makes; raises ``NotReady`` as well."""
    if _is_large(problem):
        return in_subprocess(seen, problem, limit_s=LIMIT_S, what="cluster", command="meshwright plan")
    return seen(problem)


def _is_large(problem: PlanningProblem | ServingProblem, passes: float = 0.0, *, alike: int = 1) -> bool:
    return alike * len(problem.snapshot.cluster.nodes) > MOST_NODES or alike * passes > MOST_PASSES


def _passes(problem: PlanningProblem, document: ConfigurationDocument) -> float:
    degrees = document.degrees
    micro_batches = problem.workload.global_batch / (degrees.data * document.micro_batch_sequences)
    return 2 * micro_batches * degrees.pipeline * degrees.virtual_pipeline
