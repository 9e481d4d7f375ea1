"""Serving configurations given in full, priced on a cluster."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.documents.serving import ServingConfigurationDocument, ServingWorkloadDocument
from app.documents.serving_prediction import ServingPredictionDocument
from app.services.field_paths import errors_under
from app.services.planning import models
from app.services.planning.planning_problems import fitted_of, requested_snapshot
from app.services.planning.requests import ServingPredictionRequest
from app.services.planning.stored_counts import with_stored_counts
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidConfiguration
from cluster_models.model.architecture import Architecture
from cluster_models.serving.checks import check_serving
from solver.serving.cases import ServingCase
from solver.serving.cluster_links import chosen_nodes, worker_links
from solver.serving.predict import predict_serving
from solver.serving.replay import replayed


def predict_serving_configuration(
    snapshot: ClusterSnapshot,
    architecture: Architecture,
    *,
    workload: ServingWorkloadDocument,
    configuration: ServingConfigurationDocument,
    fitted: FittedParameters | None = None,
) -> ServingPredictionDocument:
    """The prediction, on the first nodes that hold the configuration, with their links and the rates of ``fitted``.

    Raises ``InvalidInput`` with fields as they are called in the documents.
    """
    load, pools = workload.to_workload(), configuration.to_configuration()
    check_serving(architecture, load, pools)
    nodes = chosen_nodes(snapshot, pools)
    links, transfer = worker_links(snapshot, nodes, pools)
    case = ServingCase(
        architecture=architecture,
        gpu=gpu_kind(nodes[0].gpu_kind),
        power_caps_watts=(workload.gpu_power_cap_watts, workload.gpu_power_cap_watts),
        links=links,
        workload=load,
        configuration=pools,
        transfer_bytes_per_s=transfer,
        own=None if fitted is None else fitted.own_rates(load.engine.name),
    )
    found, replay = predict_serving(case), replayed([case], [1.0])
    names = [node.name for node in nodes]
    return ServingPredictionDocument.of(found, nodes=names, gpus=pools.gpus, replay=replay)


def requested_serving_prediction(
    session: Session, *, request: ServingPredictionRequest
) -> ServingPredictionDocument:
    """The prediction that a request asks for; raises ``InvalidInput`` with fields as they are in the request."""
    with errors_under("model"):
        architecture = models.resolve_model(session, model=request.model)
    fitted = fitted_of(session, request.calibration)
    snapshot = requested_snapshot(session, request)
    try:
        return predict_serving_configuration(
            snapshot,
            architecture,
            workload=with_stored_counts(session, request.workload),
            configuration=request.configuration,
            fitted=fitted,
        )
    except InvalidConfiguration:
        with errors_under("configuration"):
            raise
