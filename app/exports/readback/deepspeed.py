"""Read the files as DeepSpeed's launcher and configuration would."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from app.exports.claims import Claims
from app.exports.contract import Files, unreadable
from app.exports.readback.shell import HOSTS_SAY
from app.exports.readback.words import file_named, numbers, one, same
from cluster_models.training.framework_choices import ShardedExchange
from cluster_models.training.workload import WHOLE_OFFLOAD, Sharding

DEEPSPEED_SAYS: Final = HOSTS_SAY | {
    "gpus",
    "first_host",
    "tensor",
    "pipeline",
    "data",
    "context",
    "expert",
    "micro_batch",
    "global_batch",
    "sharding",
    "shards_gradients",
    "optimizer_offload",
    "offload_to_disks",
    "offload_parameters",
    "sharded_exchange",
}
_SHARDED_GRADIENTS: Final = 2
_EXCHANGES: Final = {
    (False, False): ShardedExchange.PLAIN,
    (True, False): ShardedExchange.WEIGHTS,
    (False, True): ShardedExchange.GRADIENTS,
    (True, True): ShardedExchange.BOTH,
}
_STAGES: Final = {
    0: Sharding.NONE,
    1: Sharding.OPTIMIZER,
    _SHARDED_GRADIENTS: Sharding.OPTIMIZER,
    3: Sharding.PARAMETERS,
}


def read_deepspeed(files: Files) -> Claims:
    """Hosts and GPUs by the launcher's filter, batch sizes by the configuration's product rule."""
    script = file_named(files, "deepspeed.sh")
    slots = {}
    for line in file_named(files, "hostfile").splitlines():
        host, count = one(r"^(\S+) slots=(\d+)$", line, "hostfile")
        slots[host] = int(count)
    parts = [part.partition(":") for part in one(r"--include (\S+) ", script, "--include")[0].split("@")]
    gpus = {host: numbers(listed, "--include") for host, _, listed in parts}
    for host, listed in gpus.items():
        if host not in slots or max(listed) + 1 != slots[host] or len(set(listed)) < len(listed):
            raise unreadable("exports.--include", (host, listed), "names GPUs that the host list does not have")
    size = same((len(listed) for listed in gpus.values()), "--include")
    if len(parts) != len(gpus) or set(slots) != set(gpus):
        raise unreadable("exports.hostfile", list(slots), "is not the list of hosts included")
    world = size * len(gpus)
    settings = json.loads(file_named(files, "ds_config.json"))
    tensor = _whole(settings.get("tensor_parallel", {"autotp_size": 1}), "autotp_size")
    micro, steps = (
        _whole(settings, name) for name in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    )
    batch = _whole(settings, "train_batch_size")
    if world % tensor or batch != micro * steps * (world // tensor):
        raise unreadable("exports.train_batch_size", batch, f"is not {micro} x {steps} x {world} / {tensor}")
    zero = settings["zero_optimization"]
    stage, offloaded = zero["stage"], zero.get("offload_optimizer", {"device": "none"})
    return Claims(
        world=world,
        hosts=tuple(slots),
        first_host=one(r"--master_addr (\S+) ", script, "--master_addr")[0],
        gpus_per_host=size,
        gpus=tuple(gpus[host] for host in slots),
        tensor=tensor,
        pipeline=1,
        data=world // tensor,
        context=1,
        expert=1,
        expert_tensor=1,
        micro_batch=micro,
        global_batch=batch,
        sharding=_STAGES[stage],
        shards_gradients=stage == _SHARDED_GRADIENTS,
        optimizer_offload=WHOLE_OFFLOAD if offloaded["device"] in ("cpu", "nvme") else 0,
        offload_to_disks=offloaded["device"] == "nvme",
        sharded_exchange=_EXCHANGES[
            zero.get("zero_quantized_weights", False), zero.get("zero_quantized_gradients", False)
        ],
        offload_parameters=_follows(zero, offloaded["device"]),
    )


def _follows(zero: Mapping[str, Any], device: str) -> bool:
    """Whether parameters go where states go."""
    parameters = zero.get("offload_param", {"device": "none"})["device"]
    if parameters not in ("none", device):
        raise unreadable("exports.offload_param", parameters, f"is not the device of the states, {device}")
    return bool(parameters != "none")


def _whole(settings: Mapping[str, Any], name: str) -> int:
    value = settings.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise unreadable(f"exports.{name}", value, "is not a whole number above 0")
    return value
