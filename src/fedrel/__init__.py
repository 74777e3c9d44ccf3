"""Relation extraction across institutions that may not share text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedrel.config.load import load_config
    from fedrel.inference.model import load_model
    from fedrel.runs.train import run


__all__ = ["load_config", "load_model", "run"]

_HOME = {
    "load_config": "fedrel.config.load",
    "load_model": "fedrel.inference.model",
    "run": "fedrel.runs.train",
}


def __getattr__(name: str) -> Any:
    """Import the public functions when they are first asked for: `import fedrel` stays light."""
    if name not in _HOME:
        raise AttributeError(f"module 'fedrel' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
