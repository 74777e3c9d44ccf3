"""TOML files as typed sections: one base class, one reader, one check that names the key that is wrong, one writer.

Configs of runs and the files of coordinators and sites are all read by this module.
"""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError, core_schema

from fedrel.errors import UserError, nearest

Tree = dict[str, Any]
WIDTH = 100  # characters of a comment in a written file
Settings = Sequence[str] | Mapping[str, Any]
"""Changes to a config: `key.path=value` each, or values by key."""


class Section(BaseModel):
    """A table of a TOML file: its fields are the keys, their docstrings what they mean. Other keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    def absolute(self, folder: Path, data: Path) -> Self:
        """The section with absolute paths: those of data files start from `data`, all others from `folder`.

        A section that has paths overrides this; any other passes it on to the sections in it.
        """
        inner = {name: value.absolute(folder, data) for name, value in self if isinstance(value, Section)}
        return self.model_copy(update=inner)


Kind = TypeVar("Kind", bound=Section)


@dataclass(frozen=True)
class Kinds:
    """Marks a field whose section comes in several kinds, each with its own keys.

    `key` is the key that names the kind, as `corpus` does in `[data]`; `find` gives the class of a kind by name, or
    raises a `UserError`; `names` lists the known ones; `default` is the kind where none is named. Instead of a
    section, its kind alone may be given: `extractor = "pcnn"`.
    """

    key: str
    find: Callable[[str], type[Section]]
    names: Callable[[], Iterable[str]]
    default: str | None = None

    @classmethod
    def of(cls, key: str, kinds: Mapping[str, type[Section]], default: str | None = None) -> Kinds:
        """A closed list of kinds."""

        def find(name: str) -> type[Section]:
            if name not in kinds:
                raise UserError(f"no {key} is called {name!r}", hint=nearest(name, kinds))
            return kinds[name]

        return cls(key, find, lambda: kinds, default)

    def chosen(self, value: Any) -> type[Section] | None:
        """The class of the kind that a section of a tree names, or None where it names none."""
        named = value.get(self.key, self.default) if isinstance(value, Mapping) else value
        return self.find(named) if isinstance(named, str) else None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._validate, serialization=core_schema.simple_ser_schema("any")
        )

    def _validate(self, value: Any) -> Section:
        if isinstance(value, Section):
            return value
        kind = self.chosen(value)
        if kind is None:
            raise PydanticCustomError("no_kind", "names no kind")
        return kind.model_validate({self.key: value} if isinstance(value, str) else value)


def check(kind: type[Kind], tree: Mapping[str, Any], origin: str | Path) -> Kind:
    """The tree as a section of this kind; the first mistake in it is reported with its key, and a hint."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        raise _first_mistake(kind, tree, origin, error) from error
    except UserError as error:
        raise UserError(error.problem, file=error.file or origin, line=error.line, hint=error.hint) from error


def read_toml(path: Path, kind: type[Section], *, _seen: tuple[Path, ...] = ()) -> Tree:
    """A file's tree, laid over that of the file it `extends`, if any; `kind` is the class that it is checked as."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        hint = "check the path, and that you may read the file"
        raise UserError(f"cannot read: {error.strerror}", file=path, hint=hint) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        hint = "write keys as rounds = 3, texts in quotes and sections as [training]"
        raise UserError(f"is not TOML: {error}", file=path, hint=hint) from error
    base = tree.pop("extends", None)
    if base is None:
        return tree
    if not isinstance(base, str) or path.resolve() in _seen:
        problem = "`extends` must name another config file, in a chain that ends"
        raise UserError(problem, file=path, hint='write extends = "other.toml"')
    below = read_toml(path.parent / base, kind, _seen=(*_seen, path.resolve()))
    return _overlaid(below, tree, {name: mark.key for name, mark in _marks(kind)})


def apply_settings(tree: Tree, settings: Settings) -> None:
    """Change keys of a tree."""
    flat = settings if isinstance(settings, Mapping) else parse_settings(settings)
    for key, value in flat.items():
        *path, last = key.split(".")
        section = tree
        for part in path:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                problem = f"cannot set {key!r}: {part!r} is not a section"
                raise UserError(problem, hint="name a key in its section, as training.rounds=3")
        section[last] = value


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Values by key, from `training.rounds=3` and the like.

    >>> parse_settings(["training.rounds=3", "method=lazy-mil"])
    {'training.rounds': 3, 'method': 'lazy-mil'}
    """
    flat = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise UserError(f"cannot read the setting {setting!r}", hint="write it as key.path=value")
        flat[key] = parse_value(text)
    return flat


def parse_value(text: str) -> Any:
    """A value as TOML has it, or the text itself if it is not TOML.

    >>> parse_value("[1, 2]"), parse_value("lazy-mil")
    ([1, 2], 'lazy-mil')
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def documented_toml(section: Section) -> str:
    """A section and those in it as TOML: every key with its value, and above it, as a comment, what it means.

    It reads back as the same section. A key without a value is a comment.
    """
    return "\n\n".join("\n".join(part) for part in _parts(section)) + "\n"


def _parts(section: Section, place: str = "") -> Iterator[list[str]]:
    """The lines of a section's own keys, then those of each table in it; `place` is its name, with a dot."""
    import tomli_w

    plain, tables = _divided(section)
    about = (type(section).__doc__ or "").split("\n\n")[0]
    title = [*_comment(about), f"[{place[:-1]}]"] if place else []
    yield [*title, *_key_lines(section, plain)]
    for name, value in tables.items():
        if isinstance(value, Section):
            yield from _parts(value, f"{place}{name}.")
        elif value:
            yield [*_described(section, name), *tomli_w.dumps({name: value}).strip().split("\n")]


def _overlaid(below: Tree, above: Mapping[str, Any], kinds: Mapping[str, str]) -> Tree:
    """Key by key what is above; a section of another kind, which has other keys, replaces the one below it."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if isinstance(value, dict) and isinstance(under, dict):
            tag = kinds.get(key, "")
            if not tag or value.get(tag, under.get(tag)) == under.get(tag):
                value = _overlaid(under, value, {})  # noqa: PLW2901
        merged[key] = value
    return merged


def _first_mistake(
    kind: type[Section], tree: Mapping[str, Any], origin: str | Path, error: ValidationError
) -> UserError:
    first = error.errors()[0]
    where = _path_in(tree, first["loc"], missing=first["type"] == "missing")
    key = ".".join(map(str, where))
    if first["type"] == "no_kind":
        mark = next(mark for name, mark in _marks(kind) if name == where[-1])
        *names, last = map(repr, mark.names())
        hint = f"say {', '.join(names)} or {last}" if names else f"say {last}"
        return UserError(f"{key}.{mark.key} is missing", file=origin, hint=hint)
    if first["type"] == "extra_forbidden":
        known = _section_at(kind, tree, where[:-1]).model_fields
        return UserError(f"unknown key {key!r}", file=origin, hint=nearest(str(where[-1]), known))
    problem = (f"{key}: " if key else "") + first["msg"].removeprefix("Value error, ")
    if first["type"] != "value_error" and isinstance(first["input"], int | float | str):
        problem += f", found {first['input']!r}"
    return UserError(problem, file=origin, hint=_meaning(kind, tree, where))


def _meaning(kind: type[Section], tree: Mapping[str, Any], where: Sequence[int | str]) -> str:
    """What the key at this place of the tree means; empty where that is not documented."""
    field = _section_at(kind, tree, where[:-1]).model_fields.get(str(where[-1])) if where else None
    about = " ".join((field.description or "").split()) if field else ""
    return f"{where[-1]}: {about}" if about else ""


def _path_in(tree: Any, location: Sequence[int | str], missing: bool) -> list[int | str]:
    """The part of an error's location that is in the tree: pydantic adds the names of a union's members."""
    path: list[int | str] = []
    for number, part in enumerate(location):
        inside = isinstance(tree, Mapping) and part in tree
        if inside or (isinstance(part, int) and isinstance(tree, Sequence) and part < len(tree)):
            tree = tree[part]
            path.append(part)
        elif missing and number == len(location) - 1:
            path.append(part)
    return path


def _section_at(kind: type[Section], tree: Any, where: Sequence[int | str]) -> type[Section]:
    """The class of the section at this place of the tree."""
    for part in where:
        tree, marks = tree[part], dict(_marks(kind))
        if part in marks:
            kind = marks[str(part)].chosen(tree) or kind
        elif part in kind.model_fields:
            kind = _section_in(kind.model_fields[str(part)].annotation) or kind
    return kind


def _section_in(annotation: Any) -> type[Section] | None:
    """The class of section that a type is made of: `Section | None`, `tuple[Section, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(_section_in, get_args(annotation))), None)


def _marks(kind: type[Section]) -> Iterator[tuple[str, Kinds]]:
    """The fields that come in kinds."""
    for name, field in kind.model_fields.items():
        for mark in field.metadata:
            if isinstance(mark, Kinds):
                yield name, mark


def _divided(section: Section) -> tuple[Tree, Tree]:
    """A section's keys with plain values, and those that are tables: TOML has the plain ones first."""
    tree = section.model_dump(mode="json")
    tables = {name: value for name, value in section if isinstance(value, Section | dict)}
    return {name: value for name, value in tree.items() if name not in tables}, tables


def _key_lines(section: Section, values: Tree) -> list[str]:
    """A line for each key, below what the key means; TOML writes plain values and lists as JSON does."""
    lines: list[str] = []
    for name, value in values.items():
        lines += _described(section, name)
        written = json.dumps(value, ensure_ascii=False)
        lines.append(f"# {name} is not set" if value is None else f"{name} = {written}")
    return lines


def _described(section: Section, name: str) -> Iterator[str]:
    return _comment(type(section).model_fields[name].description or "")


def _comment(text: str) -> Iterator[str]:
    for line in textwrap.wrap(" ".join(text.split()), WIDTH - 2):
        yield f"# {line}"
