"""``meshwright predict`` with a workload of serving."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import typer

from app.cli.endings import Ending, complain
from app.cli.files import (
    check_writable,
    naming,
    read_architecture,
    read_calibration,
    read_serving_configuration,
    read_snapshot,
    write_text,
)
from app.cli.planning.remote_planning import remote_serving_prediction
from app.cli.planning.serving_options import ServingOptions
from app.cli.planning.serving_view import serving_view
from app.cli.planning.serving_workload import served_workload
from app.cli.planning.workload_kinds import kind_of, refuse_training_options
from app.cli.server import chosen_server
from app.cli.terminal import console, print_text
from app.services.planning.serving_predictions import predict_serving_configuration


def predicted_as_serving(
    cluster: str,
    model: str,
    workload: str,
    configuration: str,
    serving: ServingOptions,
    *,
    training: Mapping[str, object],
    as_json: bool,
    output: Path | None,
) -> bool:
    """Whether the workload is of serving, having predicted and handed out if so.

    Ends with code 3 where a worker does not hold its weights and a request; raises ``InvalidInput`` for an option
    given that only ``training`` has.
    """
    if kind_of(workload) != "serving":
        return False
    refuse_training_options(training)
    check_writable(output)
    load = served_workload(workload, serving)
    if chosen_server().address is None:
        snapshot, architecture = read_snapshot(cluster), read_architecture(model)
        pools = read_serving_configuration(configuration)
        fitted = None if serving.calibration is None else read_calibration(serving.calibration)
        with naming(f"{workload}, {configuration}"):
            found = predict_serving_configuration(
                snapshot, architecture, workload=load, configuration=pools, fitted=fitted
            )
    else:
        found = remote_serving_prediction(cluster, (model, load), configuration, serving.calibration)
    text = found.model_dump_json(indent=2)
    if output is not None:
        write_text(output, text + "\n")
    if as_json:
        print_text(text)
    else:
        console().print(serving_view(found))
    if not found.fits:
        complain("meshwright: the configuration does not fit: a worker's weights leave no room for one request")
        raise typer.Exit(Ending.NO_PLAN)
    return True
