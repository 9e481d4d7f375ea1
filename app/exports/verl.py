"""A joint plan of reinforcement learning as a veRL launch.

Keys are those of ``verl/trainer/config/_generated_ppo_megatron_trainer.yaml`` and, for nodes apart, of
``verl/experimental/one_step_off_policy/config`` at veRL b178a3cd (January 2026); layers of the first and last stage
as in its ``examples/grpo_trainer/run_deepseek671b_math_megatron_80gb.sh``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from app.exports.contract import unsupported
from app.exports.recomputation import recomputation_settings
from app.presentation.configuration import chosen_words
from cluster_models.reinforcement.plan import ReinforcementPlan
from cluster_models.reinforcement.workload import Arrangement
from cluster_models.training.mixed_lengths import Packing
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import Sharding

NAME: Final = "verl"
FILE_NAME: Final = "verl.sh"
DESCRIPTION: Final = "veRL launch of trainer and rollout engine, with what it cannot say as comments"
_ACTOR: Final = "actor_rollout_ref.actor"
_ROLLOUT: Final = "actor_rollout_ref.rollout"
_ENGINES: Final = ("vllm", "sglang", "trtllm")


def render_verl(plan: ReinforcementPlan) -> str:
    """The launch script; raises ``InvalidConfiguration`` where veRL cannot do what was planned."""
    _refuse(plan)
    colocated = plan.arrangement is Arrangement.COLOCATED
    module = "verl.trainer.main_ppo" if colocated else "verl.experimental.one_step_off_policy.main_ppo"
    config = "ppo_megatron_trainer.yaml" if colocated else "one_step_off_ppo_megatron_trainer.yaml"
    settings = [f"{name}={_written(value)}" for name, value in settings_of(plan).items()]
    lines = [
        "#!/usr/bin/env bash",
        "# Set MODEL_PATH, TRAIN_FILES and VAL_FILES; more arguments are handed on.  First start Ray on the nodes.",
        f"# trainer: {' '.join(plan.training_nodes)}",
        f"# engine:  {' '.join(plan.rollout_nodes)}",
        *(f"# not expressed: {each}" for each in _unsaid(plan)),
        "set -euo pipefail",
        f"exec python3 -m {module} --config-path=config --config-name='{config}' \\",
        '    data.train_files="$TRAIN_FILES" data.val_files="$VAL_FILES" \\',
        '    actor_rollout_ref.model.path="$MODEL_PATH" \\',
        *_paths(plan),
        *(f"    {each} \\" for each in settings),
        '    "$@"',
    ]
    return "\n".join(lines) + "\n"


def _paths(plan: ReinforcementPlan) -> Iterator[str]:
    """Checkpoints of models beside the policy."""
    if plan.workload.training.roles.critic:
        yield '    critic.model.path="$CRITIC_MODEL_PATH" \\'
    if plan.workload.training.roles.reward_model:
        yield '    reward_model.model.path="$REWARD_MODEL_PATH" \\'


def settings_of(plan: ReinforcementPlan) -> dict[str, object]:
    """Settings of veRL by key."""
    workload, training = plan.workload, plan.training
    longest = (workload.prompt_tokens.tokens[-1], workload.response_tokens.tokens[-1])
    found: dict[str, object] = {
        "algorithm.adv_estimator": "gae" if workload.training.roles.critic else "grpo",
        "data.train_batch_size": workload.prompts,
        "data.max_prompt_length": round(longest[0]),
        "data.max_response_length": round(longest[1]),
        f"{_ACTOR}.strategy": "megatron",
        f"{_ACTOR}.ppo_epochs": workload.training.roles.epochs,
        f"{_ACTOR}.ppo_mini_batch_size": workload.prompts // workload.updates,
        f"{_ACTOR}.use_kl_loss": workload.training.method.has_reference,
        **_megatron(plan),
        **_roles(plan),
        **_rollout(plan),
        "trainer.nnodes": len(plan.training_nodes),
        "trainer.n_gpus_per_node": training.placement.gpus_per_node,
    }
    if plan.arrangement is Arrangement.SEPARATE:
        gpus = sum(replica.worker.gpus for replica in plan.serving.replicas)
        found |= {
            "actor_rollout_ref.hybrid_engine": False,
            "rollout.nnodes": len(plan.rollout_nodes),
            "rollout.n_gpus_per_node": gpus // len(plan.rollout_nodes),
        }
    return found


def _megatron(plan: ReinforcementPlan) -> dict[str, object]:
    configuration, update = plan.training.configuration, plan.workload.training
    degrees, place = configuration.degrees, f"{_ACTOR}.megatron"
    virtual = degrees.virtual_pipeline
    offloads = plan.memory is not None and plan.memory.offloaded_bytes > 0
    found: dict[str, object] = {
        f"{place}.tensor_model_parallel_size": degrees.tensor,
        f"{place}.pipeline_model_parallel_size": degrees.pipeline,
        f"{place}.virtual_pipeline_model_parallel_size": virtual if virtual > 1 else None,
        f"{place}.context_parallel_size": degrees.context,
        f"{place}.expert_model_parallel_size": degrees.expert,
        f"{place}.expert_tensor_parallel_size": degrees.expert_tensor if plan.architecture.experts else None,
        f"{place}.use_distributed_optimizer": configuration.sharding is not Sharding.NONE,
        **{f"{place}.{part}_offload": offloads for part in ("param", "grad", "optimizer")},
        **{
            f"{place}.override_transformer_config.recompute_{name}": value
            if isinstance(value, str)
            else list(value)
            for name, value in recomputation_settings(configuration).items()
        },
    }
    packed = update.lengths is not None and update.lengths.packing is Packing.WHOLE
    found[f"{_ACTOR}.use_dynamic_bsz"] = packed
    if packed:
        tokens = configuration.micro_batch * update.sequence_length // degrees.context
        found[f"{_ACTOR}.ppo_max_token_len_per_gpu"] = tokens
    else:
        found[f"{_ACTOR}.ppo_micro_batch_size_per_gpu"] = configuration.micro_batch
        found[f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu"] = configuration.micro_batch
        found["actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"] = configuration.micro_batch
    layers = [sum(column) for column in zip(*configuration.stage_layers, strict=True)]
    if len(set(layers)) > 1:
        for end, number in (("first", layers[0]), ("last", layers[-1])):
            found[f"+{place}.override_transformer_config.num_layers_in_{end}_pipeline_stage"] = number
    return found


def _roles(plan: ReinforcementPlan) -> dict[str, object]:
    """Critic and reward model, cut as the policy is; mini-batches and epochs of the critic follow the actor's."""
    actor, roles = _megatron(plan), plan.workload.training.roles
    found: dict[str, object] = {}
    if roles.critic:
        found |= {name.replace(_ACTOR, "critic", 1): value for name, value in actor.items() if _ACTOR in name}
        found["critic.enable"] = True
    if roles.reward_model:
        sizes = {name: value for name, value in actor.items() if name.endswith("_size") and ".megatron." in name}
        found |= {name.replace(_ACTOR, "reward_model", 1): value for name, value in sizes.items()}
        found |= {"reward_model.enable": True, "reward_model.use_reward_loop": False}
    return found


def _rollout(plan: ReinforcementPlan) -> dict[str, object]:
    replica, engine = plan.serving.replicas[0], plan.workload.rollout.engine
    fraction = plan.serving.models[0].workload.memory_fraction or engine.memory_fraction
    return {
        f"{_ROLLOUT}.name": engine.family,
        f"{_ROLLOUT}.n": plan.workload.samples,
        f"{_ROLLOUT}.tensor_model_parallel_size": replica.worker.tensor,
        f"{_ROLLOUT}.pipeline_model_parallel_size": replica.worker.pipeline,
        f"{_ROLLOUT}.data_parallel_size": replica.worker.attention_data,
        f"{_ROLLOUT}.expert_parallel_size": replica.worker.expert,
        f"{_ROLLOUT}.gpu_memory_utilization": fraction,
        f"{_ROLLOUT}.max_num_seqs": replica.sequence_limit,
        f"{_ROLLOUT}.max_num_batched_tokens": replica.token_limit,
        f"{_ROLLOUT}.enable_prefix_caching": True,
        f"{_ROLLOUT}.free_cache_engine": plan.arrangement is Arrangement.COLOCATED,
        **_drafts(plan),
    }


def _drafts(plan: ReinforcementPlan) -> dict[str, object]:
    """Drafts by the policy's own layers of multi-token prediction, which vLLM takes from its checkpoint."""
    drafts = plan.workload.rollout.speculation
    if drafts is None or not _drafts_itself(plan):
        return {}
    place = "actor_rollout_ref.model.mtp"
    switches = {f"{place}.{name}": True for name in ("enable", "enable_rollout")}
    return switches | {f"{place}.method": "mtp", f"{place}.num_speculative_tokens": drafts.draft_tokens}


def _drafts_itself(plan: ReinforcementPlan) -> bool:
    return plan.architecture.prediction_layers > 0 and plan.workload.rollout.engine.family == "vllm"


def _refuse(plan: ReinforcementPlan) -> None:
    configuration, engine = plan.training.configuration, plan.workload.rollout.engine
    if not plan.workload.training.framework.megatron_core:
        remedy = "plan with a framework on Megatron-Core, such as megatron-bridge-26.04"
        framework = plan.workload.training.framework.name
        raise unsupported("veRL", "framework", framework, "is exported as a trainer on Megatron-Core alone", remedy)
    if engine.family not in _ENGINES:
        raise unsupported(
            "veRL", "engine", engine.name, f"it rolls out with {', '.join(_ENGINES)}", "plan with vLLM"
        )
    if plan.arrangement is Arrangement.SEPARATE and not plan.workload.staleness:
        problem = "with an engine on nodes of its own it learns from responses a step old"
        raise unsupported("veRL", "staleness_steps", "0", problem, "plan with staleness_steps: 1, or colocated")
    if configuration.sharding is Sharding.PARAMETERS:
        raise unsupported(
            "veRL", "sharding", str(configuration.sharding), "its Megatron trainer shards the optimizer"
        )
    if configuration.schedule is not PipelineSchedule.ONE_F_ONE_B:
        raise unsupported("veRL", "schedule", str(configuration.schedule), "it knows 1F1B alone")
    layers = [sum(column) for column in zip(*configuration.stage_layers, strict=True)]
    interleaved = configuration.degrees.virtual_pipeline > 1 and len(set(layers)) > 1
    if interleaved or len(set(layers[1:-1])) > 1:
        shown = " ".join(map(str, layers))
        raise unsupported(
            "veRL", "stage_layers", shown, "stages between both ends have equally many, interleaved ones all"
        )


def _unsaid(plan: ReinforcementPlan) -> Iterator[str]:
    """Comments on parts of the plan that have no key."""
    yield "which node plays which part, and ranks on nodes: Ray places them; start it in the order of these nodes"
    if plan.workload.rollout.weights.value != "bf16":
        yield f"rollout weights in {plan.workload.rollout.weights}: set {_ROLLOUT}.quantization as your veRL has it"
    if (drafts := plan.workload.rollout.speculation) is not None and not _drafts_itself(plan):
        yield f"speculation of {drafts.draft_tokens} tokens: keys are for vLLM and policies that predict several"
    if plan.training.configuration.optimizer_offload:
        share = plan.training.configuration.optimizer_offload
        yield f"optimizer states offloaded at {share} %: override_optimizer_config of your Megatron-Core"
    if plan.training.configuration.settings.chosen:
        yield f"settings of Megatron-Core that were chosen ({chosen_words(plan.training.configuration)})"
    unequal = plan.arrangement is Arrangement.SEPARATE and plan.serving.gpus % len(plan.rollout_nodes)
    if unequal:
        yield "the engine's nodes have different numbers of GPUs in use"


def _written(value: object) -> str:
    """A value as Hydra reads it."""
    if isinstance(value, list):
        return f"'[{','.join(map(str, value))}]'"
    if value is None:
        return "null"
    return str(value)
