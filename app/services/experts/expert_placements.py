"""Placements of experts for requests: what they name is looked up, and one is worked on at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from sqlalchemy.orm import Session

from app.documents.routing import check_set
from app.experts.answer import PlacementAnswer, answer_of
from app.experts.links import Given
from app.experts.placing import propose
from app.experts.rebalancing import (
    RebalanceAnswer,
    RebalanceFields,
    RebalanceRequest,
    Rebalancing,
    prepared_rebalancing,
    rebalanced,
)
from app.experts.request import LinkFields, PlacementRequest, Prepared, prepared
from app.services.clusters import clusters, snapshots
from app.services.errors import NotFound
from app.services.experts import routing
from app.services.field_paths import errors_under
from app.services.planning import models
from app.services.planning.requests import RoutingReference
from app.services.subprocesses import in_subprocess
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.routing.counts import RoutedWorkload

LIMIT_S: Final = 300.0


class NamesModel(Protocol):
    """A request that may name a model."""

    @property
    def model(self) -> str | dict[str, Any] | None:
        """Its name, or the model in full."""


def prepare(session: Session, *, request: PlacementRequest, form: str | None = None) -> Prepared:
    """Look up what a request names; raises ``InvalidInput`` for all that is wrong with it.

    ``form``: the format of files that are wanted.
    """
    workloads = workloads_of(session, reference=request.routing)
    return prepared(request, workloads, given_of(session, fields=request), form=form)


def place(asked: Prepared) -> PlacementAnswer:
    """The placement, which takes seconds; raises ``NotReady`` while others are waited for."""
    return in_subprocess(_placed, asked, limit_s=LIMIT_S, what="slots", command="meshwright experts place")


def _placed(asked: Prepared) -> PlacementAnswer:
    return answer_of(propose(asked.workloads, asked.ask), asked)


def prepare_rebalancing(session: Session, *, request: RebalanceRequest) -> Rebalancing:
    """Look up what a request names; raises ``InvalidInput`` for all that is wrong with it."""
    workloads = workloads_of(session, reference=request.routing)
    return rebalancing_of(session, fields=request, workloads=workloads)


def rebalancing_of(
    session: Session,
    *,
    fields: RebalanceFields,
    workloads: Sequence[RoutedWorkload],
    model: Architecture | None = None,
) -> Rebalancing:
    """The same for workloads at hand; ``model`` is what runs where the fields say nothing of it."""
    given = given_of(session, fields=fields)
    if given.model is None and given.rule is None:
        given = replace(given, model=model)
    return prepared_rebalancing(fields, workloads, given)


def find_moves(asked: Rebalancing) -> RebalanceAnswer:
    """The moves, which take seconds; raises ``NotReady`` while others are waited for."""
    return in_subprocess(rebalanced, asked, limit_s=LIMIT_S, what="moves", command="meshwright experts rebalance")


def workloads_of(session: Session, *, reference: RoutingReference) -> tuple[RoutedWorkload, ...]:
    """The workloads that a request means, stored or in full."""
    if isinstance(reference, str):
        return routing.resolve_routing(session, name=reference)
    with errors_under("routing"):
        found = reference.to_workloads()
        check_set(found)
    return found


def given_of(session: Session, *, fields: LinkFields) -> Given:
    """Model, router and links of a request, looked up."""
    if fields.router is not None and fields.model is not None:
        raise InvalidInput("router", "", "conflicts with a model, which has one", "give one of them")
    return Given(
        model=model_of(session, fields=fields),
        rule=None if fields.router is None else fields.router.to_rule(),
        cluster=None if fields.cluster is None else _cluster(session, fields.cluster),
        between_gbit_per_s=fields.between_nodes_gbit_per_s_per_gpu,
        inside_gbit_per_s=fields.inside_node_gbit_per_s_per_gpu,
        gpu=fields.gpu_kind,
        tokens=fields.tokens_per_gpu,
    )


def model_of(session: Session, *, fields: NamesModel) -> Architecture | None:
    """The model that a request names, if it does."""
    if fields.model is None:
        return None
    with errors_under("model"):
        return models.resolve_model(session, model=fields.model)


def _cluster(session: Session, reference: str) -> ClusterSnapshot:
    try:
        stored = clusters.get_cluster(session, reference=reference)
    except NotFound as error:
        remedy = "GET /api/v1/clusters lists them"
        raise InvalidInput("cluster", reference, "there is no stored cluster of this name", remedy) from error
    return snapshots.current_snapshot(session, stored=stored)
