"""Inner kernels as parts of the kernels that call them: machine code is made of whole kernels alone.

Numba makes machine code of each function with all that it calls, of what is called innermost once for each function
on the way to it: half of a compiler's time went into code that Python cannot call and kernels do not.
"""
# mypy: disallow-untyped-calls=False

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import codegen
from numba.core.compiler import Compiler


class PartLibrary(codegen.JITCodeLibrary):
    """Code of an inner kernel for its callers to link, without an address of its own."""

    def _optimize_final_module(self) -> None:
        """Do what inlines calls, so that callers link less; they optimise the rest."""
        level = self._codegen._opt_level  # noqa: SLF001
        passes, builder = self._codegen._module_pass_manager(  # noqa: SLF001
            loop_vectorize=False, slp_vectorize=False, opt=level, cost="cheap"
        )
        passes.run(self._final_module, builder)

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        """The library as it is kept on disk."""
        return self.name, "part", self._final_module.as_bitcode()


class PartCompiler(Compiler):
    """Compiles a function into a part."""

    def compile_extra(self, func: Callable[..., object]) -> Any:
        """The parts that ``func`` has for one signature."""
        self.state.library = PartLibrary(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)


def _read_parts() -> None:
    """Let Numba read parts from its cache beside libraries of its own."""
    others: Any = codegen.JITCodeLibrary._unserialize  # noqa: SLF001

    def read(generator: Any, state: tuple[str, str, Any]) -> Any:
        name, kind, bitcode = state
        if kind != "part":
            return others(generator, state)
        library: Any = PartLibrary(generator, name)
        library._final_module = codegen.ll.parse_bitcode(bitcode)  # type: ignore[attr-defined]  # noqa: SLF001
        library._finalize_final_module()  # noqa: SLF001
        return library

    codegen.JITCodeLibrary._unserialize = staticmethod(read)  # type: ignore[method-assign]  # noqa: SLF001


def _set_environments_late() -> None:
    """Tell a part its environment (constants that are no numbers) once the kernel that has it has addresses."""
    told: Any = codegen.JITCPUCodegen.set_env
    waiting = dict[str, Any]()

    def set_env(generator: Any, name: str, environment: Any) -> None:
        waiting[name] = environment
        for known in list(waiting):
            if generator._engine.get_global_value_address(known):  # noqa: SLF001
                told(generator, known, waiting.pop(known))

    codegen.JITCPUCodegen.set_env = set_env  # type: ignore[method-assign]


_read_parts()
_set_environments_late()
