"""A config as TOML with documentation: every key with its value, and above it what it means."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

import tomli_w

from fedrel.config.check import Section
from fedrel.config.schema import Config

WIDTH = 100  # characters of a comment's line


def documented_toml(config: Config) -> str:
    """The config with all its keys, which reads back as the same config. A key without a value is a comment."""
    plain, tables = _divided(config)
    parts = [_lines(config, plain)]
    for name, value in tables.items():
        if isinstance(value, Section):
            inner, _ = _divided(value)
            about = (type(value).__doc__ or "").split("\n\n")[0]
            parts.append([*_comment(about), f"[{name}]", *_lines(value, inner)])
        elif value:
            parts.append([*_described(config, name), *tomli_w.dumps({name: value}).strip().split("\n")])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _divided(section: Section) -> tuple[dict[str, Any], dict[str, Any]]:
    """A section's keys with plain values, and those that are tables: TOML has the plain ones first."""
    tree = section.model_dump(mode="json")
    tables = {name: value for name, value in section if isinstance(value, Section | dict)}
    return {name: value for name, value in tree.items() if name not in tables}, tables


def _lines(section: Section, values: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for name, value in values.items():
        lines += _described(section, name)
        lines.append(f"# {name} is not set" if value is None else f"{name} = {_value(value)}")
    return lines


def _value(value: Any) -> str:
    """A plain value or a list as TOML, which writes these as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def _described(section: Section, name: str) -> Iterator[str]:
    return _comment(type(section).model_fields[name].description or "")


def _comment(text: str) -> Iterator[str]:
    for line in textwrap.wrap(" ".join(text.split()), WIDTH - 2):
        yield f"# {line}"
