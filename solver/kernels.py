"""Compilation of the solver's inner loops, and a cache of compiled code that knows all their sources."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

import numba
from numba.core import caching

_Function = TypeVar("_Function", bound=Callable[..., object])


def kernel(function: _Function) -> _Function:
    """Compile ``function`` at its first call, to run without Python's global lock, and keep the code on disk."""
    return cast("_Function", numba.njit(function, cache=True, nogil=True))


def inlined(function: _Function) -> _Function:
    """Compile ``function`` into each kernel that calls it, where a call would cost more than what it does."""
    return cast("_Function", numba.njit(function, cache=True, nogil=True, inline="always"))


def relaxed(*freedoms: str) -> Callable[[_Function], _Function]:
    """A kernel whose sums the compiler may rearrange: ``freedoms`` are LLVM's names of fast-math flags."""

    def compiled(function: _Function) -> _Function:
        return cast("_Function", numba.njit(function, cache=True, nogil=True, fastmath=set(freedoms)))

    return compiled


@cache
def source_digest() -> bytes:
    """SHA-256 of all files of compiled loops: as long as it is the same, compiled code is up to date."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("compiled*.py")):
        digest.update(file.read_bytes())
    return digest.digest()


class _StampedByAllSources:
    """Adds all kernels to the stamp of cached code; Numba's own is of the function's file alone.

    By that alone a caller would keep a callee of another file as it was before an update, and plans would differ
    from the source.
    """

    def get_source_stamp(self) -> tuple[bytes, object]:
        return source_digest(), super().get_source_stamp()  # type: ignore[misc]


class ConfiguredFolder(_StampedByAllSources, caching.UserProvidedCacheLocator):
    """Compiled code where ``NUMBA_CACHE_DIR`` says."""


class SourceFolder(_StampedByAllSources, caching.InTreeCacheLocator):
    """Compiled code beside its source."""


class UserFolder(_StampedByAllSources, caching.UserWideCacheLocator):
    """Compiled code in the user's cache, where the source's folder cannot be written."""


numba.config.CACHE_LOCATOR_CLASSES = ",".join(  # type: ignore[attr-defined]
    f"{each.__module__}.{each.__qualname__}" for each in (ConfiguredFolder, SourceFolder, UserFolder)
)
