"""Runs to measure next, as a table for ``meshwright calibrate`` in which their measurements are missing."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, Field

from app.documents.configuration import ConfigurationDocument
from app.documents.framework import SETTINGS, settings_of
from app.documents.training_runs import SHARDINGS
from cluster_models.calibration.training_run import TrainingRun
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.model.catalogue import catalogue_model
from cluster_models.training.workload import Sharding
from cluster_models.units import GBIT, GIB
from solver.fitting.experiments import Experiments

_SHARDING: Final = {Sharding.NONE: "0", Sharding.OPTIMIZER: "1", Sharding.GRADIENTS: "2", Sharding.PARAMETERS: "3"}
assert set(_SHARDING.values()) <= set(SHARDINGS)


class ExperimentDocument(BaseModel):
    """A run to measure."""

    id: str = Field(description="Its id in the table.", examples=["e1"])
    configuration: ConfigurationDocument = Field(description="What the framework is told.")
    gpus: int = Field(description="GPUs that it takes.", examples=[16])
    predicted_step_s: float = Field(description="Step as predicted now.", examples=[29.3])
    predicted_memory_gib: float = Field(description="Peak memory of the fullest GPU.", examples=[41.8])
    error_fraction: float = Field(
        description="Typical error of steps of competitive configurations once this run and those above are "
        "measured, as far as parameters make it.",
        examples=[0.055],
    )


class ExperimentsDocument(BaseModel):
    """Runs to measure next, the most telling first."""

    runs: list[ExperimentDocument] = Field(description="The runs.")
    error_fraction: float = Field(description="That error without any of them.", examples=[0.36])
    configurations: int = Field(description="Configurations looked at that fit the memory.", examples=[400])
    competitive: int = Field(
        description="Those at most half as slow again as the fastest, whose error counts.", examples=[76]
    )
    table: str = Field(
        description="The runs as CSV for a calibration: fill in iter_time_s, and mem_gib_per_gpu if you can.",
        examples=["id,model,gpu,framework,..."],
    )

    @classmethod
    def from_experiments(cls, experiments: Experiments) -> ExperimentsDocument:
        """The document of what was chosen."""
        return cls(
            runs=[
                ExperimentDocument(
                    id=f"e{number}",
                    configuration=ConfigurationDocument.from_value(each.run.configuration),
                    gpus=each.run.configuration.degrees.gpus,
                    predicted_step_s=each.step_s,
                    predicted_memory_gib=each.memory_bytes / GIB,
                    error_fraction=each.error,
                )
                for number, each in enumerate(experiments.runs, start=1)
            ],
            error_fraction=experiments.error,
            configurations=experiments.configurations,
            competitive=experiments.competitive,
            table=runs_table([each.run for each in experiments.runs]),
        )


def runs_table(runs: Sequence[TrainingRun]) -> str:
    """The CSV table of ``runs``: only ``iter_time_s`` and ``mem_gib_per_gpu`` are left to fill in."""
    lines = [_cells(f"e{number}", run) for number, run in enumerate(runs, start=1)]
    columns = list(dict.fromkeys(column for line in lines for column in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _cells(name: str, run: TrainingRun) -> dict[str, object]:
    configuration, degrees, workload = run.configuration, run.configuration.degrees, run.workload
    settings = settings_of(workload.framework)
    stated = {each.name: getattr(settings, each.name) for each in SETTINGS}
    return {
        "id": name,
        **_model_cells(run.architecture),
        "gpu": run.gpu.name,
        "framework": workload.framework.name,
        "num_gpus": degrees.gpus,
        "seq_len": workload.sequence_length,
        "micro_batch": configuration.micro_batch,
        "global_batch": workload.global_batch,
        "tp": degrees.tensor,
        "pp": degrees.pipeline,
        "cp": degrees.context,
        "ep": degrees.expert,
        "etp": degrees.expert_tensor,
        "vpp": degrees.virtual_pipeline,
        "dp": degrees.data,
        "zero": _SHARDING[configuration.sharding],
        "precision": str(workload.precision),
        "recompute": configuration.recomputation,
        "offload_percent": configuration.optimizer_offload or "",
        **{column: _cell(value) for column, value in stated.items() if value is not None},
        "gpus_per_node": run.gpus_per_node,
        "gpus_per_domain": run.gpus_per_domain,
        "network_gbits_per_gpu": f"{run.network_bytes_per_s / GBIT:g}",
        "iter_time_s": "",
        "mem_gib_per_gpu": "",
    }


def _cell(value: object) -> object:
    return int(value) if isinstance(value, bool) else value


def _model_cells(model: Architecture) -> dict[str, object]:
    """The name of the catalogue, or the sizes."""
    try:
        if catalogue_model(model.name) == model:
            return {"model": model.name}
    except InvalidInput:
        pass
    sizes: dict[str, object] = {
        "model_name": model.name,
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "vocab": model.vocabulary,
        "kv_heads": model.kv_heads,
        "head_size": model.head_size,
        "ffn_hidden": model.mlp_hidden,
        "gated_mlp": int(model.gated_mlp),
        "tied_embeddings": int(model.tied_embeddings),
    }
    if (experts := model.experts) is not None:
        sizes |= {
            "experts": experts.count,
            "topk": experts.active,
            "moe_ffn_hidden": experts.hidden,
            "shared_expert_ffn": experts.shared_hidden,
            "moe_layers": sum(model.sparse_pattern),
        }
    return sizes
