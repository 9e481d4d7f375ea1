"""The formats that a plan leaves in: by whom they are for, with their options, and why some do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from app.exports.contract import Export, Family, View, refusals, why_not
from app.exports.options import DEFAULTS, option_text, options_of
from app.exports.registry import EXPORTS
from cluster_models.training.plan import Plan

MOST_PREVIEW: Final = 20_000
"""Characters of a file that the page shows."""
_FAMILIES: Final = {
    Family.TRAINING: ("Training", "Start training with every rank where the plan puts it."),
    Family.KUBERNETES: ("Kubernetes", "Manifests that pin every pod to its host."),
    Family.INFERENCE: ("Inference engines", "Serve the model cut as the plan cuts it."),
    Family.DATA: ("For people and programs", "The plan to read, to print and to look into."),
}
_OPTIONS: Final = {
    "job": ("Job name", "Small letters, digits and dashes."),
    "image": ("Container image", ""),
    "command": ("Command", "The script that every rank runs, with its arguments."),
    "checkpoint": ("Checkpoints", "The folder that training loads from and saves to; scripts ask for it if empty."),
    "port": ("Port", "Where ranks meet, on the first host."),
    "namespace": ("Namespace", "Of Kubernetes."),
    "queue": ("Queue", "Of Kueue or Volcano."),
    "topology_label": ("Topology label", "The node label whose one value must hold the whole job; may be empty."),
    "gpu_resource": ("GPU resource", "Name that the device plug-in gives a GPU."),
    "rdma_resource": (
        "RDMA resource",
        "Name that a device plug-in gives a network device; empty: none is asked for.",
    ),
    "rdma_count": ("RDMA devices", "How many of these a pod takes."),
    "host_network": ("Host network", "Whether pods use the network of their host: yes or no."),
    "ipc_lock": ("IPC_LOCK", "Whether pods with RDMA or the host network may lock memory: yes or no."),
    "shared_memory": ("Shared memory", "Size of /dev/shm, such as 64Gi; empty: half of the host's memory."),
    "cpus_per_gpu": ("Cores per GPU", "Cores that Slurm gives each rank; 0: as it does by itself."),
    "cpu_bind": ("CPU binding", "How Slurm binds tasks to cores."),
    "model_path": ("Model path", "The weights to serve."),
    "report": ("Report as", "Id of the plan whose measured steps the script reports in the end; empty: none."),
    "draft_path": ("Draft path", "The weights that draft, where the model does not draft for itself."),
}
_LAUNCHED: Final = ("command", "checkpoint", "port")
_CORES: Final = ("cpus_per_gpu", "cpu_bind")
_DEVICES: Final = ("gpu_resource", "rdma_resource", "rdma_count", "ipc_lock", "shared_memory")
_ON_HOST: Final = ("job", "image", *_LAUNCHED, "namespace", *_DEVICES)
_POD: Final = (*_ON_HOST, "host_network")
_MAY_BE_EMPTY: Final = frozenset(name for name in DEFAULTS.__slots__ if getattr(DEFAULTS, name) == "")
TAKEN: Final[Mapping[str, tuple[str, ...]]] = {
    "deepspeed": ("command", "port"),
    "torchrun": _LAUNCHED,
    "torchrun-nodes": _LAUNCHED,
    "openmpi": _LAUNCHED,
    "slurm": ("job", *_LAUNCHED, *_CORES, "report"),
    "slurm-hostfile": ("job", *_LAUNCHED, *_CORES, "report"),
    "jobset": _POD,
    "kueue": (*_ON_HOST, "queue", "topology_label"),
    "volcano": (*_POD, "queue"),
    "lws": _POD,
    "trainjob": _ON_HOST,
    "vllm": ("model_path", "port"),
    "sglang": ("model_path", "port"),
    "trtllm": ("model_path",),
}
"""Options that a format takes; formats that are not here take none."""


@dataclass(frozen=True, slots=True)
class ExportLine:
    """One format that can take the plan; ``takes`` are the labels of its options."""

    words: str
    file_name: str
    address: str
    takes: str
    preview: str = ""
    """Query of the page that shows the file; empty where the page shows it anyway."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A file as it would be downloaded; of several in one, each after its name."""

    file_name: str
    address: str
    text: str
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Unfit:
    """One format that cannot, and why."""

    words: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ExportFamily:
    """Formats of one kind."""

    title: str
    words: str
    fits: tuple[ExportLine, ...]
    unfit: tuple[Unfit, ...]


@dataclass(frozen=True, slots=True)
class OptionField:
    """One option of the form; ``value`` is what stands in it."""

    name: str
    label: str
    hint: str
    value: str


@dataclass(frozen=True, slots=True)
class Exports:
    """All formats, and the options of those that fit."""

    families: tuple[ExportFamily, ...]
    fields: tuple[OptionField, ...]
    preview: Preview | None = None


def given_options(query: Mapping[str, str]) -> dict[str, str]:
    """The options in an address that differ from their defaults."""
    defaults = _defaults()
    return {
        name: query[name].strip()
        for name in _OPTIONS
        if name in query
        and query[name].strip() != defaults[name]
        and (query[name].strip() or name in _MAY_BE_EMPTY)
    }


def exports_of(plan_id: str, plan: Plan, typed: Mapping[str, str], valid: Mapping[str, str]) -> Exports:
    """Every format; ``typed`` stands in the form, and links carry the ``valid`` ones of it."""
    found: dict[Family, tuple[list[ExportLine], list[Unfit]]] = {family: ([], []) for family in _FAMILIES}
    for (name, export), error in zip(EXPORTS.items(), refusals(EXPORTS.values(), plan), strict=True):
        fits, unfit = found[export.family]
        if error is None:
            fits.append(_line(plan_id, export, {key: valid[key] for key in TAKEN.get(name, ()) if key in valid}))
        else:
            remedy = error.remedy[:1].upper() + error.remedy[1:]
            unfit.append(Unfit(export.description, ended(error.problem), ended(remedy)))
    families = tuple(
        ExportFamily(*_FAMILIES[family], tuple(fits), tuple(unfit)) for family, (fits, unfit) in found.items()
    )
    unfit_names = {unfit.words for family in families for unfit in family.unfit}
    in_use = {key for name, keys in TAKEN.items() if EXPORTS[name].description not in unfit_names for key in keys}
    texts = _defaults() | dict(typed)
    fields = [OptionField(name, *_OPTIONS[name], texts[name]) for name in _OPTIONS if name in in_use]
    return Exports(families, tuple(fields))


def preview_of(plan_id: str, plan: Plan, name: str, valid: Mapping[str, str]) -> Preview | None:
    """The file of format ``name`` with the ``valid`` options; ``None`` where there is none of the plan."""
    export = EXPORTS.get(name)
    if export is None or why_not(export, plan) is not None:
        return None
    taken = {key: valid[key] for key in TAKEN.get(name, ()) if key in valid}
    files = export.files(plan, options_of(taken))
    text = "\n".join(f"# {file.name}\n{file.text}" for file in files) if len(files) > 1 else files[0].text
    return Preview(
        export.file_name, _line(plan_id, export, taken).address, text[:MOST_PREVIEW], len(text) > MOST_PREVIEW
    )


def option_fields(typed: Mapping[str, str]) -> tuple[OptionField, ...]:
    """Every option of a launch that a training job can take, with what was typed."""
    texts = _defaults() | dict(typed)
    taken = {name for keys in TAKEN.values() for name in keys} - {"model_path"}
    return tuple(OptionField(name, *_OPTIONS[name], texts[name]) for name in _OPTIONS if name in taken)


def option_field(name: str, typed: Mapping[str, str]) -> OptionField:
    """One option of the form, with what was typed."""
    return OptionField(name, *_OPTIONS[name], typed.get(name, option_text(name)))


def option_label(name: str) -> str:
    """Name of an option on the page."""
    return _OPTIONS.get(name, (name, ""))[0]


def _defaults() -> dict[str, str]:
    return {name: option_text(name) for name in _OPTIONS}


def _line(plan_id: str, export: Export | View, options: Mapping[str, str]) -> ExportLine:
    address = f"/api/v1/plans/{plan_id}/exports/{export.name}"
    if options:
        address += "?" + urlencode([("set", f"{name}={text}") for name, text in options.items()])
    takes = ", ".join(in_a_sentence(option_label(name)) for name in TAKEN.get(export.name, ()))
    preview = urlencode({**options, "preview": export.name})
    return ExportLine(export.description, export.file_name, address, takes, preview)


def ended(text: str) -> str:
    """The text as a sentence."""
    return text + ("" if text.endswith(".") or not text else ".")


def in_a_sentence(label: str) -> str:
    """The label of an option within a sentence: names of all capitals stay."""
    return label if label[:2].isupper() else label[:1].lower() + label[1:]
