"""A framework that nobody ships, as its user describes it."""

from __future__ import annotations

from typing import Any, Final

from app.documents.framework import FrameworkDescription
from cluster_models.training.frameworks import Framework

DESCRIBED: Final[dict[str, Any]] = {
    "name": "ours",
    "like": "megatron-core-0.12",
    "gradient_precision": "bf16",
    "blocking_transfers": True,
    "logit_bytes": 12.0,
}
FILE: Final = "".join(f"{name}: {value}\n" for name, value in DESCRIBED.items()).replace("True", "true")


def described() -> Framework:
    """The value of the description."""
    return FrameworkDescription.model_validate(DESCRIBED).to_framework()
