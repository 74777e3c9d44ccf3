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
    return "\n\n".join("\n".join(part) for part in _parts(config)) + "\n"


def _parts(section: Section, place: str = "") -> Iterator[list[str]]:
    """The lines of a section's own keys, then those of each table in it; `place` is its name, with a dot."""
    plain, tables = _divided(section)
    about = (type(section).__doc__ or "").split("\n\n")[0]
    yield [
        *(_comment(about) if place else []),
        *([f"[{place[:-1]}]"] if place else []),
        *_lines(section, plain),
    ]
    for name, value in tables.items():
        if isinstance(value, Section):
            yield from _parts(value, f"{place}{name}.")
        elif value:
            table = tomli_w.dumps({name: value}).strip().split("\n")
            yield [*_described(section, name), *table]


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
