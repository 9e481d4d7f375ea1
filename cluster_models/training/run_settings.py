"""Settings of a framework that the planner may choose for a run (docs/run_settings.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from cluster_models.training.framework_choices import CudaGraphs, ExpertDispatch, FreeSetting, Overlap

if TYPE_CHECKING:
    from cluster_models.training.frameworks import Framework

VALUES: Final[Mapping[FreeSetting, tuple[Any, ...]]] = MappingProxyType(
    {
        FreeSetting.OVERLAP_TENSOR: (True, False),
        FreeSetting.EXPERT_OVERLAP: (True, False),
        FreeSetting.CUDA_GRAPHS: (CudaGraphs.FULL, CudaGraphs.PARTIAL, CudaGraphs.NONE),
        FreeSetting.EXPERT_DISPATCH: tuple(ExpertDispatch),
    }
)
"""All values of each setting.  Of overlapped tensor ranks and graphs none is slower than one behind it, and the
last takes the least memory."""
SPEND_MEMORY: Final = frozenset({FreeSetting.OVERLAP_TENSOR, FreeSetting.CUDA_GRAPHS})
"""Settings that trade memory for time alone."""
_INSTANCES_SINCE: Final = 10
_OVERLAPS: Final = {
    FreeSetting.OVERLAP_TENSOR: Overlap.TENSOR,
    FreeSetting.EXPERT_OVERLAP: Overlap.EXPERTS,
}


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Facts of ``Framework`` that the planner chose for a run; ``None``: as the framework has it."""

    overlap_tensor: bool | None = None
    expert_overlap: bool | None = None
    cuda_graphs: CudaGraphs | None = None
    expert_dispatch: ExpertDispatch | None = None

    @property
    def chosen(self) -> dict[FreeSetting, Any]:
        """The settings that were chosen."""
        found = {FreeSetting(each.name): getattr(self, each.name) for each in fields(self)}
        return {setting: value for setting, value in found.items() if value is not None}

    @property
    def code(self) -> int:
        """A number for these settings, 0 for none."""
        code = 0
        for setting, values in VALUES.items():
            value = getattr(self, setting)
            code = code * (len(values) + 1) + (0 if value is None else 1 + values.index(value))
        return code

    def under(self, framework: Framework) -> Framework:
        """``framework`` as it runs with these settings."""
        return replace(framework, **self.chosen) if self.chosen else framework

    def __str__(self) -> str:
        if not self.chosen:
            return "as the framework"
        return "+".join(f"{setting}:{value}".casefold() for setting, value in self.chosen.items())


AS_FRAMEWORK: Final = RunSettings()


@cache
def settings_of(code: int) -> RunSettings:
    """The settings whose number is ``code``."""
    found: dict[str, Any] = {}
    for setting, values in reversed(tuple(VALUES.items())):
        code, place = divmod(code, len(values) + 1)
        found[setting] = values[place - 1] if place else None
    return RunSettings(**found)


@cache
def leaner(code: int, framework: Framework) -> tuple[int, ...]:
    """Codes of settings that take less memory and no less time, the one that takes the least first."""
    settings, known = settings_of(code), switches(framework)
    spends = {each: value for each, value in settings.chosen.items() if each in SPEND_MEMORY}
    behind = [dict.fromkeys((value, known[each][-1])) for each, value in spends.items()]
    found = (replace(settings, **dict(zip(spends, values, strict=True))).code for values in product(*behind))
    return tuple(each for each in found if each != code)[::-1]


def has_instances(framework: Framework) -> bool:
    """Whether a run says how often optimizer states are kept (``--num-distributed-optimizer-instances``)."""
    return framework.megatron_core >= _INSTANCES_SINCE


def switches(framework: Framework) -> Mapping[FreeSetting, tuple[Any, ...]]:
    """The values of each setting between which a run under ``framework`` can choose, of several at least."""
    has: dict[FreeSetting, set[Any]] = {
        FreeSetting.CUDA_GRAPHS: {*framework.graph_captures, framework.cuda_graphs},
        FreeSetting.EXPERT_DISPATCH: {*framework.expert_dispatches, framework.expert_dispatch},
    }
    has |= {each: {True, False} for each, overlap in _OVERLAPS.items() if overlap in framework.overlaps}
    known = {each: tuple(value for value in VALUES[each] if value in has.get(each, ())) for each in VALUES}
    return {each: values for each, values in known.items() if len(values) > 1}
