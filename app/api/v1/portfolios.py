"""Portfolios: several plans asked for as one, solved by all workers, read as one answer."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from app.access.admission import refuse_full_queue
from app.answers.portfolios import PortfolioAnswer, PortfolioSummary
from app.api.v1.answers import PageAnswer, address, page_answer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import (
    Cursor,
    ExpectedTag,
    IdempotencyKey,
    Limit,
    PortfolioPath,
    ServiceDep,
    content_tag,
    tagged,
)
from app.db.engine import transaction
from app.documents.reading import Count, Document, Text
from app.services import idempotency
from app.services.planning import portfolios
from app.services.planning.portfolios import MOST_MEMBERS, Variant
from app.services.planning.requests import PlanRequest
from app.services.preconditions import check_tag
from cluster_models.errors import InvalidInput

router = APIRouter(tags=["plans"], route_class=BodyRoute)


class VariantDocument(Document):
    """A plan that differs."""

    name: Text = Field(max_length=100, description="Its name in the portfolio.", examples=["tensor 8"])
    change: dict[str, Any] = Field(
        description="The difference to the plan's request, as a merge patch (RFC 7396): null takes a field out.",
        examples=[{"workload": {"pinned": {"tensor": 8}}}],
    )


class PortfolioRequest(Document):
    """Several plans that are wanted."""

    plan: PlanRequest = Field(description="Request that all have in common.")
    gpus: Annotated[list[Count], Field(max_length=MOST_MEMBERS)] = Field(
        default_factory=list,
        description="A plan for each of these numbers of GPUs at most: throughput against GPUs.",
        examples=[[8, 16, 32, 64]],
    )
    variants: Annotated[list[VariantDocument], Field(max_length=MOST_MEMBERS)] = Field(
        default_factory=list, description="Plans that differ otherwise: pins, objectives, seeds.", examples=[[]]
    )

    def to_variants(self) -> tuple[Variant, ...]:
        """Every plan that is wanted; raises ``InvalidInput``."""
        made = [
            Variant(portfolios.name_of(gpus), f"gpus[{index}]", {"workload": {"max_gpus": gpus}})
            for index, gpus in enumerate(self.gpus)
        ]
        made += [
            Variant(each.name, f"variants[{index}].change", each.change) for index, each in enumerate(self.variants)
        ]
        if not 2 <= len(made) <= MOST_MEMBERS:
            problem, remedy = "are too few or too many plans", f"name 2 to {MOST_MEMBERS} under gpus and variants"
            raise InvalidInput("variants", len(made), problem, remedy)
        names = [each.name for each in made]
        for index, each in enumerate(made):
            if each.name in names[:index]:
                field = each.field.removesuffix(".change")
                raise InvalidInput(field, each.name, "is there twice", "give each plan another name")
        return tuple(made)


@router.post("/portfolios", status_code=202)
def create_portfolio(
    request: Request,
    document: PortfolioRequest,
    service: ServiceDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> PortfolioSummary:
    """Ask for up to 16 plans of training at once, all or none: each waits for its turn as any plan does."""
    settings = service.settings
    with transaction(service.sessions) as session:
        portfolio_id = portfolios.create_portfolio(
            session,
            request=document.plan,
            variants=document.to_variants(),
            default_limit_s=settings.default_time_limit_s,
            max_limit_s=settings.max_time_limit_s,
            keyed=idempotency.keyed("portfolio", idempotency_key, document),
        )
        refuse_full_queue(request, session)
        head = portfolios.get_head(session, portfolio_id=portfolio_id)
    for plan_id in head.waiting:
        service.queue_plan(plan_id)
    response.headers["Location"] = address("portfolios", portfolio_id)
    return PortfolioSummary.from_value(head)


@router.get("/portfolios")
def list_portfolios(
    request: Request, service: ServiceDep, limit: Limit = 50, cursor: Cursor = None
) -> PageAnswer[PortfolioSummary]:
    """Portfolios, newest first, without what came out."""
    with service.read_sessions() as session:
        page = portfolios.list_portfolios(session, limit=limit, cursor=cursor)
    return page_answer(request, page, PortfolioSummary.from_value)


@router.get("/portfolios/{portfolio}")
def get_portfolio(portfolio: PortfolioPath, service: ServiceDep, response: Response) -> PortfolioAnswer:
    """A portfolio with what came out so far and one proof for all; plans in full have addresses of their own."""
    with service.read_sessions() as session:
        return tagged(
            response, PortfolioAnswer.from_value(portfolios.get_portfolio(session, portfolio_id=portfolio))
        )


@router.post("/portfolios/{portfolio}/cancel")
def cancel_portfolio(portfolio: PortfolioPath, service: ServiceDep) -> PortfolioSummary:
    """Call off the plans that wait or run; those that have ended stay as they are."""
    with transaction(service.sessions) as session:
        return PortfolioSummary.from_value(portfolios.cancel_portfolio(session, portfolio_id=portfolio))


@router.delete("/portfolios/{portfolio}", status_code=204)
def delete_portfolio(portfolio: PortfolioPath, service: ServiceDep, expected: ExpectedTag) -> None:
    """Forget a portfolio; its plans stay."""
    with transaction(service.sessions) as session:
        current = PortfolioAnswer.from_value(portfolios.get_portfolio(session, portfolio_id=portfolio))
        check_tag("portfolio", portfolio, expected=expected, current=content_tag(current))
        portfolios.delete_portfolio(session, portfolio_id=portfolio)
