"""The solving process: one problem in on standard input, progress and one answer out, one JSON object a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Any, Final

from app.jobs.child_talk import ENOUGH, answer_one, failed, say
from app.serialization import jsonable, load
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.model.architecture import Architecture
from cluster_models.routing.counts import ExpertLoads
from cluster_models.serving.goal import ServedModel, ServingGoal
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import NoPlan, Plan
from cluster_models.training.workload import TrainingWorkload
from solver.check import check_plan
from solver.problem import PlanningProblem, Progress, SearchOptions
from solver.search import plan
from solver.serving.problem import ServingProblem

_REFUSED: Final = "The plan that was found breaks a rule and was refused: "


@dataclass(frozen=True, slots=True)
class Request:
    """Problem to solve, and the options of the search."""

    problem: PlanningProblem
    options: SearchOptions


@dataclass(slots=True)
class _Talk:
    """Progress out; who wants the best plan so far is heard once a plan is known."""

    out: IO[str]
    has_plan: bool = False

    def tell(self, progress: Progress) -> None:
        """Write progress."""
        self.has_plan |= bool(progress.incumbent)
        say(self.out, {"kind": "progress", **jsonable(progress)})

    def is_enough(self) -> bool:
        """Whether the search is to end."""
        return self.has_plan and ENOUGH.is_set()


def main() -> None:
    """Read the request, solve it, write the answer."""
    answer_one(work)


def work(message: dict[str, Any], out: IO[str]) -> dict[str, Any]:
    """The answer to a problem of any kind; one of serving has a goal."""
    if "fleet" in message:
        return solve_fleet(message, out)
    if "reinforcement" in message:
        return solve_reinforcement(message, out)
    return solve_serving(message, out) if "goal" in message else solve(_read(message), out)


def solve(request: Request, out: IO[str]) -> dict[str, Any]:
    """The answer to a request; a plan that does not pass the independent check is refused."""
    talk = _Talk(out)

    def on_draft(draft: Plan) -> None:
        say(out, {"kind": "draft", "answer": _checked(draft, request.problem)})

    found = plan(
        request.problem,
        request.options,
        on_progress=talk.tell,
        is_cancelled=talk.is_enough,
        on_draft=on_draft,
    )
    if isinstance(found, NoPlan):
        return {"kind": "no_plan", "no_plan": jsonable(found)}
    return _checked(found, request.problem)


def _checked(found: Plan, problem: PlanningProblem) -> dict[str, Any]:
    if broken := check_plan(found, problem):
        return failed(_REFUSED + " ".join(broken))
    return {"kind": "plan", "plan": jsonable(found)}


def solve_serving(message: dict[str, Any], out: IO[str]) -> dict[str, Any]:
    """The answer to a problem of serving."""
    from solver.check.serving import check_serving_plan  # noqa: PLC0415 - problems of training need none of it
    from solver.serving.plan import plan_serving  # noqa: PLC0415 - likewise

    problem = ServingProblem(
        snapshot=load(ClusterSnapshot, message["snapshot"]),
        models=load(tuple[ServedModel, ...], message["models"]),
        goal=load(ServingGoal, message["goal"]),
    )
    talk = _Talk(out)

    def checked(found: ServingPlan) -> dict[str, Any]:
        if broken := check_serving_plan(found, problem):
            return failed(_REFUSED + " ".join(broken))
        return {"kind": "plan", "plan": jsonable(found)}

    found = plan_serving(
        problem,
        load(SearchOptions, message["options"]),
        on_progress=talk.tell,
        is_cancelled=talk.is_enough,
        on_draft=lambda draft: say(out, {"kind": "draft", "answer": checked(draft)}),
    )
    return checked(found) if isinstance(found, ServingPlan) else {"kind": "no_plan", "no_plan": jsonable(found)}


def solve_fleet(message: dict[str, Any], out: IO[str]) -> dict[str, Any]:
    """The answer to a problem of a fleet."""
    from cluster_models.fleet.jobs import FleetProblem  # noqa: PLC0415 - other problems need none of it
    from cluster_models.fleet.plan import NoFleetPlan  # noqa: PLC0415 - likewise
    from solver.check.fleet import check_fleet  # noqa: PLC0415 - likewise
    from solver.fleet.plan import plan_fleet  # noqa: PLC0415 - likewise

    problem = load(FleetProblem, message["fleet"])
    options = load(SearchOptions, message["options"])
    talk = _Talk(out)
    found = plan_fleet(problem, options, on_progress=talk.tell, is_cancelled=talk.is_enough)
    if isinstance(found, NoFleetPlan):
        return {"kind": "no_plan", "no_plan": jsonable(found)}
    if broken := check_fleet(found, problem):
        return failed(_REFUSED + " ".join(broken))
    return {"kind": "plan", "plan": jsonable(found)}


def solve_reinforcement(message: dict[str, Any], out: IO[str]) -> dict[str, Any]:
    """The answer to a problem of reinforcement learning."""
    from cluster_models.reinforcement.plan import NoReinforcementPlan  # noqa: PLC0415 - other problems need none of it
    from cluster_models.reinforcement.workload import ReinforcementWorkload  # noqa: PLC0415 - likewise
    from solver.check.reinforcement import check_reinforcement  # noqa: PLC0415 - likewise
    from solver.reinforcement.plan import plan_reinforcement  # noqa: PLC0415 - likewise
    from solver.reinforcement.problem import ReinforcementProblem  # noqa: PLC0415 - likewise

    problem = ReinforcementProblem(
        snapshot=load(ClusterSnapshot, message["snapshot"]),
        architecture=load(Architecture, message["architecture"]),
        workload=load(ReinforcementWorkload, message["reinforcement"]),
        fitted=_fitted(message),
    )
    options = load(SearchOptions, message["options"])
    talk = _Talk(out)
    found = plan_reinforcement(problem, options, on_progress=talk.tell, is_cancelled=talk.is_enough)
    if isinstance(found, NoReinforcementPlan):
        return {"kind": "no_plan", "no_plan": jsonable(found)}
    if broken := check_reinforcement(found, problem):
        return failed(_REFUSED + " ".join(broken))
    return {"kind": "plan", "plan": jsonable(found)}


def _fitted(message: dict[str, Any]) -> FittedParameters | None:
    fitted = message.get("fitted")
    return None if fitted is None else load(FittedParameters, fitted)


def _read(message: dict[str, Any]) -> Request:
    problem = PlanningProblem(
        snapshot=load(ClusterSnapshot, message["snapshot"]),
        architecture=load(Architecture, message["architecture"]),
        workload=load(TrainingWorkload, message["workload"]),
        fitted=_fitted(message),
        routing=load(tuple[ExpertLoads, ...], message.get("routing", [])),
        keep_expert_order=message.get("keep_expert_order", False),
    )
    return Request(problem, load(SearchOptions, message["options"]))


if __name__ == "__main__":
    main()
