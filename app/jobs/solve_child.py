"""The solving process: one problem in on standard input, progress and one answer out, one JSON object a line.

It dies with the process that started it: the request's pipe stays open until then, and its end ends us.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from dataclasses import dataclass
from typing import IO, Any

from app.serialization import jsonable, load
from cluster_models.architecture import Architecture
from cluster_models.errors import InvalidInput, MeshwrightError
from cluster_models.fitted import FittedParameters
from cluster_models.plan import NoPlan
from cluster_models.routing import ExpertLoads
from cluster_models.snapshot import ClusterSnapshot
from cluster_models.workload import TrainingWorkload
from solver.check import check_plan
from solver.problem import PlanningProblem, Progress, SearchOptions
from solver.search import plan


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be solved, and in how many bytes of address space (``None`` = as many as there are)."""

    problem: PlanningProblem
    options: SearchOptions
    memory_limit_bytes: int | None


def main() -> None:
    """Read the request, solve it, write the answer."""
    out = _own_output()
    line = sys.stdin.buffer.readline()
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        request = _read(line)
        if request.memory_limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (request.memory_limit_bytes, request.memory_limit_bytes))
        answer = solve(request, out)
    except InvalidInput as wrong:
        answer = _failed(f"{wrong.field}: {wrong.problem}", wrong.remedy)
    except MeshwrightError as broken:
        answer = _failed(str(broken))
    except MemoryError:
        answer = _failed("The solve needed more memory than it may use.", "Raise MESHWRIGHT_SOLVE_MEMORY_GIB.")
    _say(out, answer)


def solve(request: Request, out: IO[str]) -> dict[str, Any]:
    """The answer to a request; a plan that does not pass the independent check is refused."""

    def on_progress(progress: Progress) -> None:
        _say(out, {"kind": "progress", **jsonable(progress)})

    found = plan(request.problem, request.options, on_progress=on_progress)
    if isinstance(found, NoPlan):
        return {"kind": "no_plan", "no_plan": jsonable(found)}
    if broken := check_plan(found, request.problem):
        return _failed("The plan that was found breaks a rule and was refused: " + " ".join(broken))
    return {"kind": "plan", "plan": jsonable(found)}


def _read(line: bytes) -> Request:
    message = json.loads(line)
    fitted = message.get("fitted")
    problem = PlanningProblem(
        snapshot=load(ClusterSnapshot, message["snapshot"]),
        architecture=load(Architecture, message["architecture"]),
        workload=load(TrainingWorkload, message["workload"]),
        fitted=None if fitted is None else load(FittedParameters, fitted),
        routing=load(tuple[ExpertLoads, ...], message.get("routing", [])),
        keep_expert_order=message.get("keep_expert_order", False),
    )
    return Request(problem, load(SearchOptions, message["options"]), message["memory_limit_bytes"])


def _own_output() -> IO[str]:
    """The real standard output, for us alone: whatever libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


def _die_with_parent() -> None:
    # The bare descriptor: a reader blocked inside sys.stdin would hold its lock while the interpreter ends.
    while os.read(0, 1024):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _failed(problem: str, remedy: str = "") -> dict[str, Any]:
    return {"kind": "failed", "error": {"problem": problem, "remedy": remedy}}


def _say(out: IO[str], message: dict[str, Any]) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
