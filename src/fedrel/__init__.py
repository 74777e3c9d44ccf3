"""Relation extraction across institutions that may not share text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedrel.api import Comparison, RunResult, compare, run
    from fedrel.config.schema import Config
    from fedrel.config.sources import load_config
    from fedrel.errors import UserError
    from fedrel.federation.method import Method
    from fedrel.inference.model import load_model

    __version__: str

__all__ = [
    "Comparison",
    "Config",
    "Method",
    "RunResult",
    "UserError",
    "__version__",
    "compare",
    "load_config",
    "load_model",
    "run",
]

_HOME = {
    "Comparison": "fedrel.api",
    "Config": "fedrel.config.schema",
    "Method": "fedrel.federation.method",
    "RunResult": "fedrel.api",
    "UserError": "fedrel.errors",
    "compare": "fedrel.api",
    "load_config": "fedrel.config.sources",
    "load_model": "fedrel.inference.model",
    "run": "fedrel.api",
}


def __getattr__(name: str) -> Any:
    """Import what is public when it is first used, so that `import fedrel` alone is quick."""
    if name == "__version__":
        from importlib.metadata import version

        return version("fedrel")
    if name not in _HOME:
        raise AttributeError(f"module 'fedrel' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
