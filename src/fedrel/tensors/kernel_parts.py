"""What numba makes of a kernel and of the functions that it calls: one piece of machine code, optimised as a whole.

numba gives machine code to each function that it compiles, and links a copy of each into its callers. Functions
that only kernels call need none of their own. Before optimisation it would even be harmful: a kernel that is
compiled in the same process would call that in place of its own optimised copy, since both have one name. So while
numba compiles a kernel of this package, these functions stay instructions of LLVM, each in a library by itself, and
the kernel links all that it reaches. Compiling also takes about half as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import binding
from numba.core.codegen import JITCodeLibrary
from numba.core.registry import cpu_target

_ENVIRONMENT = (
    "_ZN08NumbaEnv"  # how numba's names of variables begin that refer to a function's Python objects
)


class PartLibrary(JITCodeLibrary):  # type: ignore[misc]
    """A function that is called by compiled functions only: no machine code, and without what it calls itself."""

    _whole: Any = None

    def finalize(self) -> None:
        """Let others link it. All copies share one variable for its environment, which numba sets next."""
        self._raise_if_finalized()
        for library in self._linking_libraries:
            self._reload_init.update(library._reload_init)
        names = [one.name for one in self._final_module.global_variables if one.name.startswith(_ENVIRONMENT)]
        lines = [f'@"{name}" = common global ptr null' for name in names]
        self._codegen._add_module(binding.parse_assembly("\n".join(lines)))
        self._codegen._engine.finalize_object()
        self._finalized = True

    def alone(self) -> Any:
        """The function's own instructions, for a kernel."""
        return super()._get_module_for_linking()

    def _get_module_for_linking(self) -> Any:
        """With all that it calls, for a function that is not a kernel: that links direct callees only."""
        if self._whole is None:
            self._whole = self.alone().clone()
            for library in _reached(self._linking_libraries):
                self._whole.link_in(_instructions(library), preserve=True)
        return self._whole


class KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """A kernel with all parts that it reaches."""

    def finalize(self) -> None:
        """Link what it reaches, then optimise and load it."""
        for library in _reached(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(_instructions(library), preserve=True)
        self._linking_libraries.clear()
        super().finalize()


def choose_library(kind: type[JITCodeLibrary] | None) -> None:
    """Set which kind of library numba makes next; None: its own."""
    codegen = cpu_target.target_context.codegen()
    if kind is None:
        codegen.__dict__.pop("_library_class", None)
    else:
        codegen._library_class = kind


def _reached(libraries: list[Any]) -> Iterator[Any]:
    """Libraries and those that they need, each once and after one that needs it: LLVM leaves out the others."""
    waiting, seen = list(reversed(libraries)), set()
    while waiting:
        library = waiting.pop()
        if library in seen:
            continue
        seen.add(library)
        yield library
        if isinstance(library, PartLibrary):
            waiting += reversed(library._linking_libraries)


def _instructions(library: Any) -> Any:
    return library.alone() if isinstance(library, PartLibrary) else library._get_module_for_linking()
