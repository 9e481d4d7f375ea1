"""The catalogue against the totals that the models' publishers state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.errors import InvalidModel
from cluster_models.model.catalogue import catalogue_model, catalogue_models
from cluster_models.model.huggingface import architecture_from_config
from tests.cluster_models.published_hybrids import MODELS

# Trained weights in the published checkpoints (model cards; without the rotary buffers that some files carry).
CHECKPOINT_PARAMETERS = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
    "olmoe-1b-7b": 6_919_161_856,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "gpt2-xl": 1_557_611_200,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
}

# Rounded totals, in 10^9: arXiv 2104.04473 table 1, arXiv 2204.06745, and model cards.
ROUNDED_PARAMETERS = {
    "megatron-gpt-1.7b": 1.7,
    "megatron-gpt-3.6b": 3.6,
    "megatron-gpt-7.5b": 7.5,
    "megatron-gpt-18b": 18.4,
    "megatron-gpt-39b": 39.1,
    "megatron-gpt-76b": 76.1,
    "megatron-gpt-145b": 145.6,
    "megatron-gpt-310b": 310.1,
    "megatron-gpt-530b": 529.6,
    "megatron-gpt-1t": 1008.0,
    "gpt3-175b": 174.6,
    "gpt-neox-20b": 20.6,
    "mixtral-8x22b": 140.6,
    "qwen2.5-32b": 32.8,
    "deepseek-v2": 235.7,
    "llama-4-scout": 107.8,
    "bloom-176b": 176.2,
    "llama-4-maverick": 400.7,
    "kimi-k2": 1026.4,
    "minimax-m2": 228.7,
}

# Active parameters in 10^9 as published, embedding included.
ACTIVE_PARAMETERS = {
    "mixtral-8x7b": 12.9,
    "mixtral-8x22b": 39.2,
    "qwen3-235b-a22b": 22.2,
    "olmoe-1b-7b": 1.3,
    "kimi-k2": 32.9,
    "llama-4-maverick": 17.2,
}


@pytest.mark.parametrize(("name", "parameters"), CHECKPOINT_PARAMETERS.items())
def test_parameters_equal_the_published_checkpoint(name: str, parameters: int) -> None:
    """Every single weight of the checkpoint is accounted for."""
    assert catalogue_model(name).parameters() == parameters


@pytest.mark.parametrize(("name", "billions"), ROUNDED_PARAMETERS.items())
def test_parameters_round_to_the_published_total(name: str, billions: float) -> None:
    """Models known by a rounded total agree to its last digit."""
    assert catalogue_model(name).parameters() == pytest.approx(billions * 1e9, abs=0.0501e9)


@pytest.mark.parametrize(("name", "billions"), ACTIVE_PARAMETERS.items())
def test_active_parameters_round_to_the_published_figure(name: str, billions: float) -> None:
    """A token meets the published number of weights."""
    assert catalogue_model(name).active_parameters() == pytest.approx(billions * 1e9, abs=0.0501e9)


def test_every_entry_is_checked_against_a_published_total() -> None:
    """No model enters the catalogue without a total to check it by."""
    files = set(MODELS) & set(catalogue_models())
    assert set(catalogue_models()) == set(CHECKPOINT_PARAMETERS) | set(ROUNDED_PARAMETERS) | files


@pytest.mark.parametrize("name", sorted(set(MODELS) & set(catalogue_models())))
def test_entries_equal_the_files_that_they_come_from(name: str) -> None:
    """Field by field; the files here leave the longest sequence out."""
    read = architecture_from_config(MODELS[name].config, name=name)
    own = catalogue_model(name)
    assert replace(own, source=read.source, max_sequence=None) == replace(read, max_sequence=None)


def test_every_entry_names_its_source_and_longest_sequence() -> None:
    """Figures without a source do not ship."""
    for name, model in catalogue_models().items():
        assert model.name == name == name.lower()
        assert model.source
        assert model.max_sequence


def test_names_are_found_in_any_case() -> None:
    """Llama-3-70B and llama-3-70b are one model."""
    assert catalogue_model(" Llama-3-70B ") is catalogue_model("llama-3-70b")


def test_a_near_miss_names_the_closest_models() -> None:
    """A slip in the name is answered with what was probably meant."""
    with pytest.raises(InvalidModel, match=r"closest are llama-3-70b") as refused:
        catalogue_model("llama3-70b")
    assert refused.value.field == "model"


def test_a_far_miss_lists_the_catalogue() -> None:
    """A name like no other is answered with all that there is."""
    with pytest.raises(InvalidModel, match=r"it has llama-2-7b, .*megatron-gpt-1t"):
        catalogue_model("zzz")


def test_the_catalogue_cannot_be_changed() -> None:
    """It is shared by all callers."""
    with pytest.raises(TypeError):
        catalogue_models()["mine"] = catalogue_model("gpt2-xl")  # type: ignore[index]
