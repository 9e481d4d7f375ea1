"""Compilation of the solver's inner loops, and a cache of compiled code that knows all their sources."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import caching, types
from numba.core.typing.templates import builtin_registry
from numba.np import arrayobj

_Function = TypeVar("_Function", bound=Callable[..., object])


def _compiled(function: _Function, **options: object) -> _Function:
    """``function``, compiled at its first call; no C program calls it and no variable of a kernel holds it."""
    # not among the arguments of Numba's stubs
    doors: dict[str, Any] = {"no_cfunc_wrapper": True, **options}
    compiled = numba.njit(function, nogil=True, **doors)
    compiled.get_call_template = _by_kind(compiled.get_call_template)
    return cast("_Function", compiled)


def _by_kind(template: Callable[..., Any]) -> Callable[..., Any]:
    """``template`` for kinds of arguments: Numba would compile anew for each ``0`` and ``True`` of a call."""
    kind_of: Callable[[Any], Any] = types.unliteral

    def of_kinds(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return template(tuple(map(kind_of, arguments)), {name: kind_of(kind) for name, kind in named.items()})

    return of_kinds


def kernel(function: _Function) -> _Function:
    """Compile ``function`` at its first call, to run without Python's global lock, and keep the code on disk."""
    return _compiled(function, cache=True)


def inner(function: _Function) -> _Function:
    """A kernel that only kernels call: Python would crash.

    To take apart the arrays that Python may pass costs the compiler as much as most functions do.
    """
    return _compiled(function, cache=True, no_cpython_wrapper=True)


def enclosed(function: _Function) -> _Function:
    """An inner kernel that calls what the function around it was given; its code is kept with its callers."""
    return _compiled(function, error_model="numpy", no_cpython_wrapper=True)


def inlined(function: _Function) -> _Function:
    """Compile ``function`` into each kernel that calls it, where a call would cost more than what it does."""
    return _compiled(function, cache=True, inline="always")


def relaxed(*freedoms: str) -> Callable[[_Function], _Function]:
    """A kernel whose sums the compiler may rearrange: ``freedoms`` are LLVM's names of fast-math flags."""
    return partial(_compiled, cache=True, fastmath=set(freedoms))


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


def _one_message_for_sizes() -> None:
    """Say that arrays differ in size without their sizes: Numba's message would compile its strings everywhere.

    That is four seconds in each process that compiles a loop with ``a[:] = b``.
    """
    for template in builtin_registry.functions:
        if getattr(template, "_overload_func", None) is arrayobj.ol_raise_with_shape_context_cpu:
            template._overload_func = staticmethod(arrayobj.ol_raise_with_shape_context_generic)  # noqa: SLF001


_one_message_for_sizes()
