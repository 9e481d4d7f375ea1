"""Portfolios: several plans of training asked for as one, each solved as a job of its own, read as one answer."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session, undefer

from app.db.portfolio_tables import PortfolioRow
from app.db.status import OPEN_STATUSES, PlanStatus
from app.db.tables import PlanRow
from app.documents.reading import read_document
from app.serialization import canonical, load
from app.services.errors import NotFound
from app.services.field_paths import errors_under
from app.services.idempotency import KeyedRequest, once
from app.services.idempotency import keyed as keyed_request
from app.services.pagination import Page, newest_first
from app.services.planning import plans, turns
from app.services.planning.planning_problems import check_problem, make_problem, search_options
from app.services.planning.requests import PlanRequest
from app.services.rows import delete_where, row_by_id
from cluster_models.training.workload import TrainingWorkload
from solver.answer.portfolio import Member, Proof, joint_proof, proofs

MOST_MEMBERS: Final = 16
"""Plans that may be asked for as one."""
_USELESS: Final = (PlanStatus.CANCELLED, PlanStatus.FAILED)


@dataclass(frozen=True, slots=True)
class Variant:
    """A member that is wanted: what is different in its request, as a merge patch (RFC 7396)."""

    name: str
    field: str
    """Where it stands in the request."""
    change: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A plan of a portfolio that is still kept; ``proof`` with the help of the others."""

    name: str
    plan_id: str
    status: PlanStatus
    most_gpus: int | None
    gpus: int | None
    step_s: float | None
    tokens_per_s: float | None
    proof: Proof
    best: str | None
    """Name of the member that has the best plan this one may use."""


@dataclass(frozen=True, slots=True)
class PortfolioHead:
    """A portfolio without what came out: its plans by their names, and those that wait or run.

    ``subjects``: models and clusters of plans that are still kept.
    """

    id: str
    plans: Mapping[str, str]
    waiting: tuple[str, ...]
    created_at: datetime
    subjects: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether one of its plans waits or runs."""
        return bool(self.waiting)


@dataclass(frozen=True, slots=True)
class Portfolio:
    """A portfolio with what came out so far."""

    head: PortfolioHead
    members: tuple[MemberRecord, ...]
    joint: Proof | None
    """``None`` where the plans cannot be compared."""
    best: str | None
    """Name of the member whose plan is the best of all."""


def create_portfolio(
    session: Session,
    *,
    request: PlanRequest,
    variants: Sequence[Variant],
    default_limit_s: float,
    max_limit_s: float,
    keyed: KeyedRequest | None = None,
) -> str:
    """Store the plan of every variant of a request, all or none; returns the portfolio's id.

    Raises ``InvalidInput`` with the place of the variant.
    """

    def make() -> str:
        base = request.model_dump(mode="json", exclude_unset=True, by_alias=True)
        members: dict[str, str] = {}
        for variant in variants:
            with errors_under(variant.field):
                wanted = read_document(PlanRequest, _patched(base, variant.change), what="variant")
                options = search_options(wanted.options, default_limit_s=default_limit_s, max_limit_s=max_limit_s)
                plan_id = plans.create_plan(session, problem=make_problem(session, request=wanted), options=options)
            turns.take_turn(session, plan_id=plan_id, background=wanted.background)
            members[variant.name] = plan_id
        return _add(session, members)

    return once(session, keyed, make=make, find=lambda portfolio_id: _row(session, portfolio_id))


def create_curve(session: Session, *, plan_id: str, gpus: Sequence[int]) -> str:
    """Store a stored plan of training again for each of these numbers of GPUs at most; returns the portfolio's id.

    The same numbers again find the portfolio that is there, unless plans of it were deleted, cancelled or failed.
    Raises ``NotReady`` of a plan of another kind, ``InvalidInput`` where nothing can be on so few.
    """
    problem, options = plans.get_problem(session, plan_id=plan_id), plans.get_plan(session, plan_id=plan_id).options

    def make() -> str:
        members: dict[str, str] = {}
        for most in gpus:
            capped = replace(problem, workload=replace(problem.workload, max_gpus=most))
            check_problem(capped)
            name = name_of(most)
            members[name] = plans.create_plan(session, problem=capped, options=options)
            turns.take_turn(session, plan_id=members[name], background=False)
        return _add(session, members)

    def find(portfolio_id: str) -> None:
        ids = get_head(session, portfolio_id=portfolio_id).plans.values()
        query = select(func.count(PlanRow.id)).where(PlanRow.id.in_(ids), PlanRow.status.not_in(_USELESS))
        if session.scalar(query) != len(gpus):
            raise NotFound("portfolio", portfolio_id)

    request = keyed_request("curve", f"{plan_id} {' '.join(map(str, gpus))}")
    return once(session, request, make=make, find=find)


def name_of(gpus: int) -> str:
    """Name of the member that may use so many GPUs."""
    return f"{gpus} GPU{'s' * (gpus > 1)}"


def get_portfolio(session: Session, *, portfolio_id: str) -> Portfolio:
    """The portfolio of that id; raises ``NotFound``."""
    return _record(session, _row(session, portfolio_id))


def get_head(session: Session, *, portfolio_id: str) -> PortfolioHead:
    """The portfolio of that id without what came out; raises ``NotFound``."""
    return _heads(session, [_row(session, portfolio_id)])[0]


def list_portfolios(session: Session, *, limit: int, cursor: str | None = None) -> Page[PortfolioHead]:
    """Portfolios, newest first, without what came out."""
    page = newest_first(session, select(PortfolioRow), PortfolioRow.created_at, lambda row: row, limit, cursor)
    return Page(tuple(_heads(session, page.items)), page.next_cursor)


def cancel_portfolio(session: Session, *, portfolio_id: str) -> PortfolioHead:
    """Call off the plans that wait or run."""
    for plan_id in get_head(session, portfolio_id=portfolio_id).waiting:
        plans.cancel_plan(session, plan_id=plan_id)
    return get_head(session, portfolio_id=portfolio_id)


def delete_portfolio(session: Session, *, portfolio_id: str) -> None:
    """Forget a portfolio; its plans stay."""
    delete_where(session, PortfolioRow, PortfolioRow.id == portfolio_id, "portfolio", portfolio_id)


def _add(session: Session, members: Mapping[str, str]) -> str:
    portfolio_id, told = uuid.uuid4().hex, [{"name": name, "plan": plan} for name, plan in members.items()]
    session.add(PortfolioRow(id=portfolio_id, members={"members": told}, created_at=datetime.now(UTC)))
    session.flush()
    return portfolio_id


def _patched(document: Any, change: Any) -> Any:
    """The document with a merge patch applied (RFC 7396)."""
    if not isinstance(change, Mapping):
        return change
    found = dict(document) if isinstance(document, Mapping) else {}
    for name, value in change.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _patched(found.get(name), value)
    return found


def _heads(session: Session, rows: Sequence[PortfolioRow]) -> list[PortfolioHead]:
    own = [{each["name"]: each["plan"] for each in row.members["members"]} for row in rows]
    ids = {plan_id for each in own for plan_id in each.values()}
    query = select(PlanRow.id, PlanRow.status, PlanRow.model_name, PlanRow.cluster_name).where(PlanRow.id.in_(ids))
    found = {plan.id: plan for plan in session.execute(query)}
    heads = []
    for row, each in zip(rows, own, strict=True):
        kept = [found[plan_id] for plan_id in each.values() if plan_id in found]
        waiting = tuple(plan.id for plan in kept if plan.status in OPEN_STATUSES)
        subjects = tuple(dict.fromkeys(f"{plan.model_name} on {plan.cluster_name}" for plan in kept))
        heads.append(PortfolioHead(row.id, each, waiting, row.created_at, subjects))
    return heads


def _record(session: Session, row: PortfolioRow) -> Portfolio:
    head = _heads(session, [row])[0]
    query = select(PlanRow).where(PlanRow.id.in_(head.plans.values()))
    query = query.options(undefer(PlanRow.problem), undefer(PlanRow.result))
    found = {plan.id: plan for plan in session.scalars(query)}
    names = [name for name, plan_id in head.plans.items() if plan_id in found]
    own = [found[head.plans[name]] for name in names]
    of_plans = list(map(_member, own))
    joint = joint_proof(of_plans)
    members = tuple(
        _shown(name, plan, proof, names) for name, plan, proof in zip(names, own, proofs(of_plans), strict=True)
    )
    return Portfolio(head, members, joint, None if joint is None or joint.source is None else names[joint.source])


def _member(plan: PlanRow) -> Member:
    workload = load(TrainingWorkload, plan.problem["workload"])
    uncapped = plan.problem["workload"] | {"max_gpus": None}
    space = canonical((plan.snapshot_id, plan.problem | {"workload": uncapped}))
    work = canonical((plan.problem["architecture"], workload.tokens_per_step, workload.objective))
    value, bound = None, None
    if plan.status == PlanStatus.SUCCEEDED and plan.result is not None:
        value, bound = plan.result["certificate"]["objective"], plan.result["certificate"]["bound"]
    elif plan.status == PlanStatus.INFEASIBLE:
        bound = math.inf
    most = math.inf if workload.max_gpus is None else workload.max_gpus
    return Member(space, work, most, value, bound)


def _shown(name: str, plan: PlanRow, proof: Proof, names: Sequence[str]) -> MemberRecord:
    result = plan.result if plan.status == PlanStatus.SUCCEEDED else None
    return MemberRecord(
        name=name,
        plan_id=plan.id,
        status=PlanStatus(plan.status),
        most_gpus=plan.problem["workload"]["max_gpus"],
        gpus=None if result is None else len(result["placement"]["ranks"]),
        step_s=None if result is None else result["time"]["step_s"],
        tokens_per_s=None if result is None else result["tokens_per_s"],
        proof=proof,
        best=None if proof.source is None else names[proof.source],
    )


def _row(session: Session, portfolio_id: str) -> PortfolioRow:
    return row_by_id(session, PortfolioRow, portfolio_id, "portfolio")
