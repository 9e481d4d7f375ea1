"""``meshwright compare``: read the plan and its contenders, price them, and show them side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.cli.endings import Failed, complain
from app.cli.files import (
    is_path,
    naming,
    read_architecture,
    read_calibration,
    read_plan,
    read_snapshot,
    read_text,
    read_workload,
)
from app.cli.planning.comparison_view import comparison_view
from app.cli.planning.planning import ProblemFiles, deliver, read_problem, searched
from app.cli.planning.routed import Routed
from app.cli.terminal import console
from app.comparing.documents import ComparisonDocument
from app.comparing.launch_arguments import has_launch_arguments
from app.comparing.shorthand import is_shorthand
from app.comparing.standings import (
    MOST_CONTENDERS,
    Contender,
    configuration_in,
    priced,
    priced_again,
    standings,
)
from app.documents.configuration import ConfigurationDocument
from app.documents.plan import plan_from_text
from app.documents.reading import parse_text, read_document
from app.presentation.comparison import comparison_report
from app.presentation.decision import Budget
from cluster_models.errors import InvalidInput, SolverFailed
from cluster_models.training.plan import NoPlan, Plan
from solver.problem import PlanningProblem, SearchOptions


@dataclass(frozen=True, slots=True)
class ComparedFiles:
    """The plan to compare with, and the files of the problem that it was made for, as named on the command line."""

    plan: str | None
    cluster: str | None
    model: str | None
    workload: str | None
    framework: str | None
    calibration: str | None
    routed: Routed


def run_compare(
    others: Sequence[str], *, files: ComparedFiles, gpus: int | None, budget: Budget, as_json: bool
) -> None:
    """Print how each of ``others`` stands to the plan."""
    if len(others) > MOST_CONTENDERS:
        raise InvalidInput("OTHERS", len(others), f"are more than {MOST_CONTENDERS}", "compare fewer at once")
    given = [_Given.read(each) for each in others]
    only_plans = all(each.plan is not None for each in given)
    plan, problem = _plan_and_problem(files, only_plans=only_plans, as_json=as_json)
    try:
        found = standings(plan, _contenders(given, plan, problem, gpus))
    except SolverFailed as error:
        raise Failed(str(error)) from error
    if as_json:
        sys.stdout.write(ComparisonDocument.make(plan, found, budget).model_dump_json(indent=2) + "\n")
        sys.stdout.flush()
    else:
        console().print(comparison_view(comparison_report(plan, found, budget)))


@dataclass(frozen=True, slots=True)
class _Given:
    """One argument: a plan, a configuration, or text that says one once the plan is known."""

    name: str
    text: str
    plan: Plan | None = None
    document: ConfigurationDocument | None = None

    @classmethod
    def read(cls, argument: str) -> _Given:
        """Read the contender that an argument names; raises ``InvalidInput`` where it names none."""
        if not is_path(argument):
            if is_shorthand(argument) or has_launch_arguments(argument):
                return cls(argument, argument)
            raise InvalidInput(
                "OTHERS",
                argument,
                "is neither a file nor degrees",
                "name a launch script, a configuration or a plan, or write 'tp8 pp4 dp2 mb1'",
            )
        text = read_text(argument)
        with naming(argument):
            if text.lstrip().startswith("{") and '"result"' in text:
                return cls(argument, text, plan=plan_from_text(text))
            if has_launch_arguments(text):
                return cls(argument, text)
            data = parse_text(text, what="configuration")
            if isinstance(data, str):
                return cls(argument, data)
            return cls(argument, text, document=read_document(ConfigurationDocument, data, what="configuration"))


def _plan_and_problem(
    files: ComparedFiles, *, only_plans: bool, as_json: bool
) -> tuple[Plan, PlanningProblem | None]:
    """The plan to compare with, and the problem that others are priced for; ``None`` where nothing is priced."""
    if files.plan is None:
        missing = [name for name in ("cluster", "model", "workload") if getattr(files, name) is None]
        if missing:
            raise InvalidInput(
                f"--{missing[0]}", None, "is missing", "give --plan PLAN_JSON, or cluster, model and workload"
            )
        problem = read_problem(
            ProblemFiles(
                cluster=files.cluster or "",
                model=files.model or "",
                workload=files.workload or "",
                framework=files.framework,
                calibration=files.calibration,
                routed=files.routed,
            )
        )
        found, cancelled = searched(problem, SearchOptions())
        if cancelled:
            raise KeyboardInterrupt
        if isinstance(found, NoPlan):
            deliver(found, as_json=as_json, output=None)
        assert isinstance(found, Plan), "where nothing fits the command ended"
        return found, problem
    plan = read_plan(files.plan)
    if files.cluster is None:
        if only_plans:
            return plan, None
        raise InvalidInput("--cluster", None, "is missing", "give the cluster file that the plan was made from")
    problem = _problem_of(plan, files, files.cluster)
    return _on_problem(plan, problem, files.plan), problem


def _problem_of(plan: Plan, files: ComparedFiles, cluster: str) -> PlanningProblem:
    """The plan's problem, on the cluster in a file, with the model and workload that are named."""
    architecture = plan.architecture if files.model is None else read_architecture(files.model)
    fitted = None if files.calibration is None else read_calibration(files.calibration)
    workload = plan.workload
    if files.workload is not None:
        workload = read_workload(files.workload, framework_file=files.framework, fitted=fitted)
    if architecture is None or workload is None:
        raise InvalidInput(
            "--plan", files.plan, "does not say its model and workload", "give --model and --workload"
        )
    return PlanningProblem(
        snapshot=read_snapshot(cluster),
        architecture=architecture,
        workload=workload,
        fitted=fitted,
        routing=files.routed.loads(architecture),
        keep_expert_order=files.routed.keep_order,
    )


def _on_problem(plan: Plan, problem: PlanningProblem, path: str) -> Plan:
    """``plan`` as it is, or priced again where it was made for another cluster, workload or calibration."""
    made_from, source = plan.provenance, "" if problem.fitted is None else problem.fitted.source
    asked = problem.workload if plan.workload is None else replace(problem.workload, choice=plan.workload.choice)
    if asked.choose_power_caps and plan.workload is not None:
        asked = replace(asked, gpu_power_cap_watts=plan.workload.gpu_power_cap_watts, choose_power_caps=False)
    unlike = {
        "cluster": made_from.snapshot_id != problem.snapshot.id,
        "workload": plan.workload != asked,  # which of plans as good was taken changes no price
        "calibration": made_from.calibration != source,
    }
    if not any(unlike.values()):
        return plan
    names = ", ".join(name for name, differs in unlike.items() if differs)
    complain(f"meshwright: {path} was made for another {names}; it is priced again on these files")
    with naming(path):
        return replace(priced_again(problem, plan), alternatives=plan.alternatives)


def _contenders(
    given: Sequence[_Given], plan: Plan, problem: PlanningProblem | None, gpus: int | None
) -> list[Contender]:
    found = []
    for each in given:
        with naming(each.name):
            its = each.plan
            if its is None:
                assert problem is not None
                document = each.document or configuration_in(each.text, plan, gpus=gpus)
                its = priced(problem, document, plan)
        found.append(Contender(each.name, its))
    return found
