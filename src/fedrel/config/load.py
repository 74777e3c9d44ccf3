"""An experiment as one TOML file: every choice a field, every field documented, no unknown key let through."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
)

from fedrel.config.schema import _KINDS, _TAGS, Config, PCNNSection
from fedrel.errors import UserError, nearest


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def load_config(path: Path, settings: Sequence[str] = ()) -> Config:
    """Read a config file; paths in it become absolute."""
    tree = _read(path, seen=())
    for setting in settings:
        apply_setting(tree, setting)
    return resolve_paths(parse(tree, str(path)), path.parent)


def parse(tree: Mapping[str, Any], origin: str) -> Config:
    """Check a config tree; the first thing wrong is said with its key and, for a wrong key, the nearest one."""
    try:
        return Config.model_validate(tree)
    except UserError as error:
        raise UserError(error.problem, file=origin, hint=error.hint) from error
    except ValidationError as error:
        first = error.errors()[0]
        # The discriminator of a union stands in the location, but not in the file.
        tags = {tag for kinds in _KINDS.values() for tag in kinds}
        where = [str(part) for part in first["loc"] if part not in tags]
        key = ".".join(where)
        if first["type"] in ("union_tag_not_found", "union_tag_invalid"):
            tag, kinds = _TAGS[where[0]]
            found = tree[where[0]].get(tag) if isinstance(tree[where[0]], Mapping) else tree[where[0]]
            problem = f"{where[0]}.{tag} is {'missing' if found is None else f'{found!r}'}"
            raise UserError(problem, file=origin, hint=f"say {kinds}") from error
        if first["type"] != "extra_forbidden":
            problem = (f"{key}: " if key else "") + first["msg"].removeprefix("Value error, ")
            if first["type"] != "value_error" and isinstance(first["input"], int | float | str):
                problem += f", found {first['input']!r}"
            raise UserError(problem, file=origin) from error
        known = _fields_at(tree, where[:-1])
        raise UserError(f"unknown key {key!r}", file=origin, hint=nearest(where[-1], known)) from error


def with_settings(config: Config, settings: Sequence[str]) -> Config:
    """The config with `key.path=value` settings applied."""
    tree = config.model_dump(mode="json", exclude_none=True)
    for setting in settings:
        apply_setting(tree, setting)
    return parse(tree, "--set")


def apply_setting(tree: dict[str, Any], setting: str) -> None:
    """Apply `training.lr=0.1` to a tree; the value is read as TOML, and as a string if it is not that."""
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise UserError(f"cannot read the setting {setting!r}", hint="write it as key.path=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *path, last = key.split(".")
    for part in path:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise UserError(f"{part!r} in the setting {setting!r} is not a section")
    tree[last] = value


def resolve_paths(config: Config, folder: Path) -> Config:
    """Make the config's paths absolute: relative to FEDREL_DATA where that is set, else to its own folder."""
    base = Path(os.environ.get("FEDREL_DATA") or folder).absolute()
    changes: dict[str, Any] = {"data": config.data.under(base)}
    if config.partition.file is not None:
        changes["partition"] = config.partition.model_copy(
            update={"file": folder.absolute() / config.partition.file}
        )
    extractor = config.extractor
    if isinstance(extractor, PCNNSection) and extractor.vectors not in ("corpus", "glove"):
        changes["extractor"] = extractor.model_copy(update={"vectors": str(base / extractor.vectors)})
    if not isinstance(extractor, PCNNSection) and (folder / extractor.encoder / "config.json").is_file():
        changes["extractor"] = extractor.model_copy(
            update={"encoder": str((folder / extractor.encoder).absolute())}
        )
    return config.model_copy(update=changes)


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    """A file's tree, laid over that of the file it `extends`, if any."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", file=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"is not TOML: {error}", file=path) from error
    base = tree.pop("extends", None)
    if base is None:
        return tree
    if not isinstance(base, str) or path.resolve() in seen:
        raise UserError("`extends` must name another config file, in a chain that ends", file=path)
    return _overlaid(_read(path.parent / base, (*seen, path.resolve())), tree)


def _overlaid(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Key by key what stands above; data or an extractor of another kind, which has other keys, stands alone."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if isinstance(value, dict) and isinstance(under, dict):
            tag, _ = _TAGS.get(key, (None, ""))
            same = tag is None or value.get(tag, under.get(tag)) == under.get(tag)
            value = _overlaid(under, value) if same else value  # noqa: PLW2901
        merged[key] = value
    return merged


def _fields_at(tree: Mapping[str, Any], where: Sequence[str]) -> list[str]:
    """The names that may stand in a section."""
    model: type[BaseModel] = Config
    for part in where:
        if part in _KINDS:
            kinds = list(_KINDS[part].values())
            model = _KINDS[part].get(tree.get(part, {}).get(_TAGS[part][0]), kinds[0])
        else:
            annotation = model.model_fields[part].annotation
            assert isinstance(annotation, type) and issubclass(annotation, BaseModel)
            model = annotation
    return list(model.model_fields)


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
        hint = nearest(where[-1], _keys(kind, where[:-1]))
        raise UserError(f"unknown key {key!r}", file=path, hint=hint) from error


def _keys(kind: type[BaseModel], where: list[str]) -> list[str]:
    """The keys that may stand in a table within a table."""
    for part in where:
        annotation = kind.model_fields[part].annotation
        inner = [one for one in (annotation, *get_args(annotation)) if isinstance(one, type)]
        kind = next(one for one in inner if issubclass(one, BaseModel))
    return list(kind.model_fields)
