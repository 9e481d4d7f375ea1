"""Options of Megatron-LM for the layers of a pipeline stage: by a layout, or by the arguments there were before.

The layout string as in ``megatron/core/transformer/pipeline_parallel_layer_layout.py``; the arguments before as
``get_num_layers_to_build`` of ``transformer_block.py`` (0.12) reads them.
"""

from __future__ import annotations

from app.exports.contract import unsupported
from app.exports.megatron_flags import Flag
from app.exports.megatron_releases import generation_with, has, release_name
from cluster_models.training.frameworks import Framework
from cluster_models.training.layer_splits import ANY_SINCE, LayerSplit, Rows, can_launch, split_of
from cluster_models.training.plan import Configuration

_LAYOUT = "--pipeline-model-parallel-layout"


def layer_flags(
    configuration: Configuration, prediction_layers: int, framework: Framework, release: int
) -> list[Flag]:
    """The arguments; raises ``InvalidConfiguration`` where the release has no option for such a split."""
    rows, virtual = configuration.stage_layers, configuration.degrees.virtual_pipeline
    if split_of(rows) is LayerSplit.EVEN:
        return [Flag("--num-layers-per-virtual-pipeline-stage", rows[0][0])] * (virtual > 1)
    if has(release, _LAYOUT):
        return [Flag(_LAYOUT, pipeline_layout(configuration, prediction_layers))]
    if not can_launch(framework, rows):
        raise unsupported(
            release_name(release),
            "stage_layers",
            rows,
            f"layouts came with 0.{ANY_SINCE}, before there is one number for the first rank, one for the last and "
            "one for all between",
            f"plan with framework {generation_with(ANY_SINCE)}, or with even stages",
        )
    return _ends(rows) if split_of(rows) is LayerSplit.ENDS else _less_ends(rows)


def pipeline_layout(configuration: Configuration, prediction_layers: int = 0) -> str:
    """The layout string: E embedding, t decoder layer, L loss, | between stages; virtual stage by stage.

    Multi-token prediction layers (m) stand before the loss.
    """
    counts = [count for row in configuration.stage_layers for count in row]
    stages = ["" if count == 0 else "t" if count == 1 else f"t*{count}" for count in counts]
    stages[0] = "E" + stages[0]
    end = "m" * prediction_layers + "L"
    stages[-1] = f"{stages[-1]},{end}" if stages[-1] else end
    return "|".join(stages)


def _ends(rows: Rows) -> list[Flag]:
    """Layers of the first and the last rank in all of their virtual stages together.

    The first is said even where it is like those between: the layers of virtual stages are numbered wrongly
    without.  The last of two ranks has what the first leaves.
    """
    row, virtual = rows[0], len(rows)
    flags = [Flag("--decoder-first-pipeline-num-layers", row[0] * virtual)]
    if row[1:-1] and row[-1] != row[1]:
        flags.append(Flag("--decoder-last-pipeline-num-layers", row[-1] * virtual))
    return flags + _virtual(virtual)


def _less_ends(rows: Rows) -> list[Flag]:
    most = max(map(max, rows))
    flags = [Flag("--account-for-embedding-in-pipeline-split")] * (rows[0][0] < most)
    flags += [Flag("--account-for-loss-in-pipeline-split")] * (rows[-1][-1] < most)
    return flags + _virtual(len(rows))


def _virtual(virtual: int) -> list[Flag]:
    return [Flag("--num-virtual-stages-per-pipeline-rank", virtual)] * (virtual > 1)
