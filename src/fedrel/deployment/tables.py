"""TOML files as checked models: the first thing wrong is said with its file, its key and the nearest one."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from fedrel.errors import UserError, nearest

Kind = TypeVar("Kind", bound="Table")


class Table(BaseModel):
    """A table of a TOML file: its fields are the keys, and there are no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_tree(path: Path) -> dict[str, Any]:
    """A TOML file as it is."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", file=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"is not TOML: {error}", file=path) from error


def check(kind: type[Kind], tree: Mapping[str, Any], path: Path) -> Kind:
    """The tree as a model, or what is wrong with it."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        where = [str(part) for part in first["loc"]]
        key = ".".join(where)
        if first["type"] != "extra_forbidden":
            problem = f"{key}: {first['msg'].removeprefix('Value error, ')}" if key else first["msg"]
            raise UserError(problem, file=path) from error
        remedy = nearest(where[-1], _keys(kind, where[:-1]))
        raise UserError(f"unknown key {key!r}", file=path, remedy=remedy) from error


def _keys(kind: type[BaseModel], where: list[str]) -> list[str]:
    """The keys that may stand in a table within a table."""
    for part in where:
        annotation = kind.model_fields[part].annotation
        inner = [one for one in (annotation, *get_args(annotation)) if isinstance(one, type)]
        kind = next(one for one in inner if issubclass(one, BaseModel))
    return list(kind.model_fields)
