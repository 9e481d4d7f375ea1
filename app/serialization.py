"""Domain values as JSON values without loss, for the database and the solver's child process.

They are ours alone and carry SI values under the names of the dataclasses; what users read and write
stands in ``app.documents``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from copy import deepcopy
from functools import cache, reduce
from operator import getitem
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from cluster_models.cluster.measurements import Sample
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster
from cluster_models.serving.engines import DEFAULT_ENGINE, ServingEngine, serving_engines
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK, Framework, frameworks

T = TypeVar("T")

ID_LENGTH: Final = 16
"""Hexadecimal digits of a snapshot's name: 64 bits, so that a billion snapshots collide with chance 3 %."""


def jsonable(value: object) -> Any:
    """``value``, a frozen domain value, as dictionaries, lists, texts and numbers; infinities are kept."""
    return to_jsonable_python(value, inf_nan_mode="constants")


def load(kind: type[T], plain: object) -> T:
    """The value of type ``kind`` that ``jsonable`` made ``plain`` of; its own checks run again.

    An older Meshwright wrote no facts of frameworks and serving engines that came later: they are those of the
    generation that it is, or is like.
    """
    adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]  # classes are hashable
    try:
        return adapter.validate_python(plain)
    except ValidationError as error:
        return adapter.validate_python(_with_later_facts(plain, error))


def _with_later_facts(plain: object, error: ValidationError) -> object:
    """``plain`` with the facts of frameworks and engines that it lacks; raises ``error`` where it lacks another."""
    completed = deepcopy(plain)
    for missing in error.errors(include_url=False, include_input=False):
        *path, fact = missing["loc"]
        described = reduce(getitem, path, completed)  # type: ignore[arg-type]  # containers of JSON
        if missing["type"] != "missing" or not isinstance(described, dict) or "name" not in described:
            raise error
        known: Framework | ServingEngine
        if path[-1:] == ["engine"] and fact in ServingEngine.__slots__:
            known = serving_engines().get(described["name"], DEFAULT_ENGINE)
        elif fact in Framework.__slots__:
            known = frameworks().get(described["like"] or described["name"], DEFAULT_FRAMEWORK)
        else:
            raise error
        described[fact] = jsonable(getattr(known, str(fact)))
    return completed


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def canonical(value: object) -> str:
    """``value`` as JSON with sorted keys: equal values give equal text."""
    return json.dumps(jsonable(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def snapshot_id(cluster: Cluster, samples: Sequence[Sample]) -> str:
    """The name of a snapshot, derived from its content; the order of samples does not matter."""
    digest = hashlib.sha256(canonical(cluster).encode())
    for line in sorted(canonical(sample) for sample in samples):
        digest.update(b"\n" + line.encode())
    return digest.hexdigest()[:ID_LENGTH]


def make_snapshot(cluster: Cluster, samples: Sequence[Sample]) -> ClusterSnapshot:
    """The snapshot of a cluster with what was measured, its samples in a fixed order."""
    ordered = tuple(sorted(samples, key=canonical))
    return ClusterSnapshot(id=snapshot_id(cluster, ordered), cluster=cluster, samples=ordered)
