"""Mutants that no test can kill, or that none need kill, each with the reason."""

from __future__ import annotations

REASONS: dict[tuple[str, str, str], str] = {}
"""By module, and by the line before and after the change."""


def reason_for(module: str, before: str, after: str) -> str:
    """Why a mutant may survive; empty if nobody knows one."""
    return REASONS.get((module.removeprefix("fedrel."), before, after), "")
