"""Every monitoring system whose reports are understood."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from app.documents.reading import close_name
from app.events.alertmanager import ALERTMANAGER
from app.events.aws_health import AWS_HEALTH
from app.events.dcgm import DCGM
from app.events.kubernetes import KUBERNETES
from app.events.nvsentinel import NVSENTINEL
from app.events.plain import PLAIN
from app.events.reading import Adapter
from app.events.slurm import SLURM
from cluster_models.errors import InvalidInput

ADAPTERS: Final[Mapping[str, Adapter]] = MappingProxyType(
    {adapter.name: adapter for adapter in (PLAIN, ALERTMANAGER, KUBERNETES, SLURM, DCGM, AWS_HEALTH, NVSENTINEL)}
)


def adapter_named(name: str) -> Adapter:
    """The adapter of that name; raises ``InvalidInput``."""
    if name not in ADAPTERS:
        raise InvalidInput(
            "adapter", name, "is not a format of reports that we read", close_name(name, list(ADAPTERS))
        )
    return ADAPTERS[name]
