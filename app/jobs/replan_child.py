"""The deciding process: one question about failures in, progress and one answer out, one JSON object a line.

``task`` in the request says what is wanted: ``decide``, or ``prepare`` the jobs named in ``prepare`` for the loss
of any one node.
"""

from __future__ import annotations

from dataclasses import fields
from typing import IO, Any, Final

from app.jobs.child_talk import answer_one, failed, say
from app.priorities import PREPARATIONS, step_back
from app.replan_request import ReplanRequest
from app.serialization import jsonable
from solver.replanning.check_shared import check_shared
from solver.replanning.decide import ReplanProgress
from solver.replanning.joint_decision import decide_together
from solver.replanning.prepared import prepare
from solver.replanning.problem import ReplanProblem

_FIELDS: Final = tuple(field.name for field in fields(ReplanRequest))


def main() -> None:
    """Read the request, work on it, write the answer."""
    answer_one(work)


def work(message: dict[str, Any], out: IO[str]) -> dict[str, Any]:
    """The answer to a request; a decision that does not pass the independent check is refused."""
    request = ReplanRequest(**{name: message[name] for name in _FIELDS})
    problem = request.to_shared()
    if message["task"] == "prepare":
        return _prepare(problem.without_serving(), message["prepare"], out)

    def on_progress(progress: ReplanProgress) -> None:
        say(out, {"kind": "progress", **jsonable(progress)})

    decision = decide_together(problem, request.to_options(), on_progress=on_progress)
    if broken := check_shared(problem, decision):
        return failed("The decision breaks a rule and was refused: " + " ".join(broken))
    return {"kind": "decision", "decision": jsonable(decision)}


def _prepare(problem: ReplanProblem, wanted: list[str], out: IO[str]) -> dict[str, Any]:
    step_back(PREPARATIONS)
    jobs = {job.id: job for job in problem.jobs}
    for job_id in wanted:
        made = jsonable(prepare(problem, jobs[job_id]))
        say(out, {"kind": "progress", "job_id": job_id, "prepared": made})
    return {"kind": "prepared_all"}


if __name__ == "__main__":
    main()
