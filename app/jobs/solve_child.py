"""The solving process: one problem in on standard input, progress and one answer out, one JSON object a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Final

from app.jobs.child_talk import ENOUGH, answer_one, failed, say
from app.serialization import jsonable, load
from cluster_models.serving.refusal import NoServingPlan
from cluster_models.training.plan import NoPlan
from solver.check import check_plan
from solver.problem import PlanningProblem, Progress, SearchOptions
from solver.search import plan
from solver.serving.problem import ServingProblem

_REFUSED: Final = "The plan that was found breaks a rule and was refused: "


@dataclass(slots=True)
class Talk:
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

    def draft(self, answer: Callable[[Any], dict[str, Any]], found: object) -> None:
        """Write the best plan so far, checked as the last one will be."""
        say(self.out, {"kind": "draft", "answer": answer(found)})


def main() -> None:
    """Read the request, solve it, write the answer."""
    answer_one(work)


def work(message: dict[str, Any], out: IO[str]) -> dict[str, Any]:
    """The answer to a problem of any kind; a plan that does not pass the independent check is refused.

    A message has the fields of the problem: one of serving a ``goal``, others what names their kind.
    """
    options, talk = load(SearchOptions, message["options"]), Talk(out)
    if "fleet" in message:
        return _solve_fleet(message, options, talk)
    if "reinforcement" in message:
        return _solve_reinforcement(message, options, talk)
    if "goal" in message:
        return _solve_serving(load(ServingProblem, message), options, talk)
    return solve(load(PlanningProblem, message), options, talk)


def solve(problem: PlanningProblem, options: SearchOptions, talk: Talk) -> dict[str, Any]:
    """The answer to a problem of training."""
    return _with_drafts(plan, problem, options, talk, partial(_answer, problem, NoPlan, check_plan))


def _solve_serving(problem: ServingProblem, options: SearchOptions, talk: Talk) -> dict[str, Any]:
    from solver.check.serving import check_serving_plan  # noqa: PLC0415 - problems of training need none of it
    from solver.serving.plan import plan_serving  # noqa: PLC0415 - likewise

    answer = partial(_answer, problem, NoServingPlan, check_serving_plan)
    return _with_drafts(plan_serving, problem, options, talk, answer)


def _solve_fleet(message: dict[str, Any], options: SearchOptions, talk: Talk) -> dict[str, Any]:
    from cluster_models.fleet.jobs import FleetProblem  # noqa: PLC0415 - other problems need none of it
    from cluster_models.fleet.plan import NoFleetPlan  # noqa: PLC0415 - likewise
    from solver.check.fleet import check_fleet  # noqa: PLC0415 - likewise
    from solver.fleet.plan import plan_fleet  # noqa: PLC0415 - likewise

    problem = load(FleetProblem, message["fleet"])
    found = plan_fleet(problem, options, on_progress=talk.tell, is_cancelled=talk.is_enough)
    return _answer(problem, NoFleetPlan, check_fleet, found)


def _solve_reinforcement(message: dict[str, Any], options: SearchOptions, talk: Talk) -> dict[str, Any]:
    from cluster_models.reinforcement.plan import NoReinforcementPlan  # noqa: PLC0415 - other problems need none of it
    from solver.check.reinforcement import check_reinforcement  # noqa: PLC0415 - likewise
    from solver.reinforcement.plan import plan_reinforcement  # noqa: PLC0415 - likewise
    from solver.reinforcement.problem import ReinforcementProblem  # noqa: PLC0415 - likewise

    problem = load(ReinforcementProblem, message | {"workload": message["reinforcement"]})
    found = plan_reinforcement(problem, options, on_progress=talk.tell, is_cancelled=talk.is_enough)
    return _answer(problem, NoReinforcementPlan, check_reinforcement, found)


def _with_drafts(
    search: Callable[..., object],
    problem: object,
    options: SearchOptions,
    talk: Talk,
    answer: Callable[[object], dict[str, Any]],
) -> dict[str, Any]:
    """The answer to a problem whose search tells its best plan so far."""
    draft = partial(talk.draft, answer)
    return answer(search(problem, options, on_progress=talk.tell, is_cancelled=talk.is_enough, on_draft=draft))


def _answer(
    problem: object, refusal: type, check: Callable[[Any, Any], Sequence[str]], found: object
) -> dict[str, Any]:
    if isinstance(found, refusal):
        return {"kind": "no_plan", "no_plan": jsonable(found)}
    if broken := check(found, problem):
        return failed(_REFUSED + " ".join(broken))
    return {"kind": "plan", "plan": jsonable(found)}


if __name__ == "__main__":
    main()
