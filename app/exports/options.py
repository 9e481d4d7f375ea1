"""Options of a launcher beside the plan, with a default for everything."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from cluster_models.errors import InvalidInput

_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_QUANTITY: Final = re.compile(r"[1-9][0-9]{0,8}(Ki|Mi|Gi|Ti)?")
_MAY_BE_EMPTY: Final = ("checkpoint", "topology_label", "rdma_resource", "report")


@dataclass(frozen=True, slots=True)
class Options:
    """Settings that a plan does not hold and a launcher needs; each has a default, easy to find and replace.

    ``job`` names the job (a DNS label), ``image`` is the container image, ``command`` the Python script that every
    rank runs and its arguments, word by word, ``checkpoint`` where it loads and saves checkpoints (empty: files ask
    for it when they start), ``port`` the rendezvous port of the first host.  ``namespace``, ``queue``: of
    Kubernetes and Kueue; ``topology_label``: the node label whose one value must hold the whole job (empty = none);
    ``gpu_resource``: what the device plug-in calls a GPU; ``rdma_resource``: what one calls a network device (empty
    = none is asked), ``rdma_count`` of which a pod takes; ``host_network``: pods use the network of their host;
    ``ipc_lock``: with one of these two, pods may lock memory; ``shared_memory``: size of /dev/shm (empty = half of
    the host's).  ``cpus_per_gpu``: cores that Slurm gives each rank (0 = as it does), ``cpu_bind``: how it binds
    them.  ``model_path``: the weights that an engine serves, ``draft_path`` those that draft for it where the model
    does not draft for itself.  ``report``: id of the plan or running plan whose measured steps the script reports
    when the run has ended (empty = it does not).
    """

    job: str = "meshwright"
    image: str = "train:1"
    command: tuple[str, ...] = ("pretrain_gpt.py",)
    checkpoint: str = ""
    port: int = 29500
    namespace: str = "default"
    queue: str = "train"
    topology_label: str = ""
    gpu_resource: str = "nvidia.com/gpu"
    rdma_resource: str = ""
    rdma_count: int = 1
    host_network: bool = False
    ipc_lock: bool = True
    shared_memory: str = ""
    cpus_per_gpu: int = 0
    cpu_bind: str = "none"
    model_path: str = "/models/model"
    draft_path: str = "/models/draft"
    report: str = ""

    def __post_init__(self) -> None:
        for name in ("job", "namespace", "queue"):
            if not _LABEL.fullmatch(getattr(self, name)):
                raise InvalidInput(
                    f"options.{name}",
                    getattr(self, name),
                    "is not a DNS label",
                    "use a-z, 0-9 and dashes, at most 63",
                )
        for name in ("image", "gpu_resource", "cpu_bind", "model_path", "draft_path", *_MAY_BE_EMPTY):
            value = getattr(self, name)
            if not _WORD.fullmatch(value.removeprefix("/")) and (value or name not in _MAY_BE_EMPTY):
                raise InvalidInput(
                    f"options.{name}", value, "is not one plain word", "use letters, digits and . _ / : @ -"
                )
        if self.shared_memory and not _QUANTITY.fullmatch(self.shared_memory):
            raise InvalidInput("options.shared_memory", self.shared_memory, "is not a size", "write it like 64Gi")
        if self.rdma_resource == self.gpu_resource:
            raise InvalidInput("options.rdma_resource", self.rdma_resource, "is the resource of the GPUs")
        for name, least, most in (("port", 1, 65_535), ("rdma_count", 1, 1_000), ("cpus_per_gpu", 0, 10_000)):
            if not least <= getattr(self, name) <= most:
                raise InvalidInput(f"options.{name}", getattr(self, name), f"must lie in {least}..{most}")
        if not self.command or any("\n" in word or "\0" in word for word in self.command):
            raise InvalidInput("options.command", self.command, "must be one line of at least one word")


DEFAULTS: Final = Options()


def options_of(given: Mapping[str, str]) -> Options:
    """Options from texts (``--set image=...``); raises ``InvalidInput`` naming the option."""
    known = [field.name for field in fields(Options)]
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name not in known:
            raise InvalidInput(f"options.{name}", text, "unknown option", f"use one of {', '.join(known)}")
        try:
            values[name] = _read(text, type(getattr(DEFAULTS, name)))
        except ValueError as error:
            raise InvalidInput(f"options.{name}", text, f"cannot be read: {error}") from error
    return Options(**values)


def option_text(name: str, options: Options = DEFAULTS) -> str:
    """An option as ``options_of`` reads it."""
    value = getattr(options, name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _read(text: str, kind: type) -> Any:
    if kind is bool:
        if text not in {"yes", "no"}:
            raise ValueError("write yes or no")
        return text == "yes"
    if kind is int:
        return int(text)
    return tuple(shlex.split(text)) if kind is tuple else text
