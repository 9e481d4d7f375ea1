"""Which splits of layers Megatron-Core 0.12 can be told, as arithmetic on their number."""

from __future__ import annotations

from cluster_models.training.frameworks import Framework


def is_told(framework: Framework, layers: int, pipeline: int, virtual: int) -> bool:
    """Whether Megatron-Core 0.12, which has no layouts, has arguments for some split of the layers.

    As many everywhere; one less in the first stage, the last or both; own numbers for the first and the last rank.
    """
    if framework.megatron_core != 12:
        return True
    stages = pipeline * virtual
    less = any((layers + ends) % stages == 0 and (layers + ends) // stages > 1 for ends in (1, 2))
    return layers % stages == 0 or (
        pipeline > 1 and (less or (layers % virtual == 0 and layers // virtual >= pipeline))
    )
