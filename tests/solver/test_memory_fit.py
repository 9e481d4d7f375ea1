"""The parameters of memory from measured peaks: those that made them come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.calibration.fitted import FittedParameters, FittedValue
from cluster_models.calibration.training_run import MemoryCounter, TrainingRun
from cluster_models.model.catalogue import catalogue_model
from cluster_models.training.plan import Configuration, Degrees, RankOrder
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from cluster_models.units import GBIT
from solver.fitting.own_runs import fit_own_memory
from solver.run_memory import predict_counted_memory
from tests.solver.cost_cases import H100


def runs(**truth: float) -> list[TrainingRun]:
    """Runs of one model over degrees and recomputation, with the peaks that ``truth`` makes."""
    gpus = {H100.name: {name: FittedValue(v, v, v, 1) for name, v in truth.items() if name == "runtime_bytes"}}
    workload = TrainingWorkload(sequence_length=4096, global_batch=64)
    others = {name: FittedValue(v, v, v, 1) for name, v in truth.items() if name != "runtime_bytes"}
    fitted = FittedParameters(gpus, {workload.framework.name: others}, "truth")
    found = []
    for tensor, pipeline, recompute in (
        (1, 1, Recompute.FULL),
        (2, 1, Recompute.NONE),
        (4, 1, Recompute.NONE),
        (8, 1, Recompute.NONE),
        (2, 2, Recompute.FULL),
        (4, 4, Recompute.FULL),
        (8, 2, Recompute.FULL),
    ):
        run = TrainingRun(
            name=f"tp{tensor} pp{pipeline} {recompute}",
            architecture=catalogue_model("llama-3-8b"),
            workload=workload,
            configuration=Configuration(
                degrees=Degrees(tensor, pipeline, 16 // tensor // pipeline),
                micro_batch=1,
                recompute=recompute,
                sharding=Sharding.OPTIMIZER,
                rank_order=RankOrder.DATA_BEFORE_PIPELINE,
                stage_layers=((32 // pipeline,) * pipeline,),
            ),
            gpu=H100,
            gpus_per_node=8,
            gpus_per_domain=8,
            network_bytes_per_s=400 * GBIT,
        )
        found.append(replace(run, peak_memory_bytes=predict_counted_memory(run, fitted)))
    return found


def test_a_larger_runtime_is_told_by_peaks() -> None:
    """Peaks with 8 GB of context and libraries: the fitted value is close, and the error shrinks to a tenth."""
    report = fit_own_memory(runs(runtime_bytes=8e9))
    told = {each.unknown.parameter: each.fitted for each in report.unknowns if each.told}
    assert told["runtime_bytes"].value == pytest.approx(8e9, rel=0.25)
    assert told["runtime_bytes"].low <= 8e9 <= told["runtime_bytes"].high
    assert sum(map(abs, report.errors_after)) < 0.25 * sum(map(abs, report.errors_before))


def test_what_a_counter_does_not_count_is_not_told() -> None:
    """Tensors alone say nothing of the runtime, nor of what the allocator loses."""
    counted = [replace(run, memory_counter=MemoryCounter.ALLOCATED) for run in runs()]
    report = fit_own_memory(counted)
    assert not {"runtime_bytes", "fragmentation_share"} & {
        each.unknown.parameter for each in report.unknowns if each.told
    }


def test_runs_without_a_peak_are_left_out() -> None:
    """Nothing measured, nothing fitted."""
    report = fit_own_memory([replace(run, peak_memory_bytes=None) for run in runs()])
    assert report.runs == ()
    assert report.unknowns == ()
