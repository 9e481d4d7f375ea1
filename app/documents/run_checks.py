"""Contradictions of a measured run with itself and its GPU, noted in the line that describes it."""

from __future__ import annotations

from typing import Final

from app.documents.table_cells import Line
from cluster_models.calibration.training_run import TrainingRun
from cluster_models.errors import MeshwrightError
from cluster_models.model.flops import model_flops_per_token
from cluster_models.units import GIB, TFLOP
from solver.runs import predict_run

MOST_PASSES: Final = 1_000_000
"""Each is simulated: more than any run has had would hold up everybody else."""
FULLEST: Final = 1.05
"""Times the memory that is known of a GPU kind, which is up to a twentieth less than a real card's."""


def check_run(line: Line, run: TrainingRun) -> None:
    """Note what contradicts itself; a run that the model cannot price must not reach the fit."""
    degrees, batch = run.configuration.degrees, run.workload.global_batch
    if batch % (degrees.data * run.configuration.micro_batch):
        each = f"{degrees.data} data ranks x {run.configuration.micro_batch}"
        line.problem("global_batch", f"does not divide by {each} sequences", "check dp and micro_batch")
    if run.architecture.heads % degrees.tensor:
        line.problem("tp", f"does not divide the {run.architecture.heads} heads")
    _check_experts(line, run)
    passes = (
        degrees.pipeline
        * degrees.virtual_pipeline
        * (batch // max(degrees.data * run.configuration.micro_batch, 1))
    )
    if passes > MOST_PASSES:
        what = f"makes {passes:,} passes of micro-batches through chunks of layers, more than {MOST_PASSES:,}"
        line.problem("global_batch", what, "check pp, vpp, dp and micro_batch")
    if line.problems:
        return
    try:
        priced = predict_run(run).step_s
    except MeshwrightError:
        raise
    except (ArithmeticError, ValueError, IndexError) as error:
        line.problem("id", f"cannot be priced: {error}", "check the sizes and degrees of this line")
        return
    if not 0 < priced < float("inf"):
        line.problem("id", "cannot be priced", "check the sizes and degrees of this line")
    _check_rate(line, run)
    _check_peak(line, run)


def _check_experts(line: Line, run: TrainingRun) -> None:
    """Experts and their width divide, and so does a stage by the ranks that hold them all once."""
    degrees = run.configuration.degrees
    stage = degrees.tensor * degrees.context * degrees.data
    experts = run.architecture.experts
    if degrees.expert > 1 and (experts is None or experts.count % degrees.expert):
        line.problem("ep", "does not divide the experts" if experts else "goes with experts only")
    if stage % degrees.expert:
        line.problem("ep", f"does not divide the {stage} ranks of a stage")
    cut = degrees.expert_tensor
    if cut > 1 and (experts is None or experts.hidden % cut):
        line.problem("etp", "does not divide the width of an expert" if experts else "goes with experts only")
    elif cut > run.gpus_per_domain:
        line.problem("etp", f"is more than the {run.gpus_per_domain} GPUs of a domain")
    elif cut > 1 and stage % degrees.expert_block:
        line.problem("etp", f"ep x etp = {degrees.expert_block} does not divide the {stage} ranks of a stage")


def _check_rate(line: Line, run: TrainingRun) -> None:
    """Note a step in which each GPU would do more arithmetic than its data sheet allows."""
    if run.step_s is None:
        return
    workload, peaks = run.workload, run.gpu.peak_flops
    tokens = workload.global_batch * workload.sequence_length / run.configuration.degrees.gpus
    rate = tokens * model_flops_per_token(run.architecture, workload.sequence_length) / run.step_s
    peak = peaks.get(workload.precision, max(peaks.values()))
    if rate > peak:
        what = f"would be {rate / TFLOP:,.0f} TFLOP/s of each {run.gpu.name}, whose peak is {peak / TFLOP:,.0f}"
        line.problem("iter_time_s", what, "give the seconds of a whole step; check global_batch and precision")


def _check_peak(line: Line, run: TrainingRun) -> None:
    """Note a peak that its GPU cannot hold."""
    if run.peak_memory_bytes is not None and run.peak_memory_bytes > FULLEST * run.gpu.memory_bytes:
        what = f"is more than the {run.gpu.memory_bytes / GIB:.1f} GiB of {run.gpu.name}"
        line.problem("mem_gib_per_gpu", what, "give GiB (2^30 bytes) of one GPU")
