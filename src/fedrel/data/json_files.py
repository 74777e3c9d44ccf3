"""JSON files as a stream of objects: a list of them, or one after another, each with the line it starts on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrel.data.text_files import lines
from fedrel.errors import UserError


@dataclass(frozen=True, slots=True)
class JSONObject:
    """An object of a file, its number and its line; what is wrong with it is an error that names both."""

    fields: dict[str, Any]
    file: Path
    line: int
    number: int

    def error(self, problem: str, hint: str = "") -> UserError:
        """What is wrong with the object."""
        return UserError(f"object {self.number}: {problem}", file=self.file, line=self.line, hint=hint)

    def get(self, key: str, kind: type[Any], *, default: Any = ...) -> Any:
        """The value under a key, which must be of this kind; with a default, the key may be absent."""
        value = self.fields.get(key, default)
        if value is default and default is not ...:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(f"expected `{key}` to be {NAMES[kind]}, found {shown(value)}")
        return value

    def strings(self, key: str) -> list[str]:
        """The list of strings under a key, with something in it."""
        found: list[Any] = self.get(key, list)
        if not any(isinstance(one, str) and one.strip() for one in found) or not all(
            isinstance(one, str) for one in found
        ):
            raise self.error(f"expected `{key}` to be a list of strings, found {shown(found)}")
        return found


NAMES: dict[type[Any], str] = {str: "a string", dict: "an object", list: "a list", int: "a whole number"}


def shown(value: object) -> str:
    """A value in an error, cut short where it is long."""
    if value is ...:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def json_text(path: Path) -> str:
    """The text of a JSON file; half a surrogate pair, which is no character, is refused where it is read."""
    return "\n".join(line for _, line in lines(path))


def objects(path: Path, what: str = "object") -> Iterator[JSONObject]:
    """The objects of a file one by one; `what` is the word for one of them in errors."""
    content = json_text(path)
    if content.lstrip().startswith("[") and not content.rstrip().endswith("]"):
        raise UserError(f"the list of {what}s has no end: the file is cut short", file=path)
    escapes = "\\ud" in content.lower()
    decoder, number, place, line = json.JSONDecoder(), 0, 0, 1
    while True:
        start = place
        while place < len(content) and (content[place].isspace() or content[place] in "[,]"):
            place += 1
        line += content.count("\n", start, place)
        if place == len(content):
            return
        number += 1
        try:
            fields, end = decoder.raw_decode(content, place)
            if escapes:
                check_characters(fields)
        except (ValueError, RecursionError) as error:
            raise UserError(f"broken JSON in {what} {number}: {error}", file=path, line=line) from error
        if not isinstance(fields, dict):
            raise UserError("expected a list of JSON objects", file=path, line=line)
        yield JSONObject(fields, path, line, number)
        line += content.count("\n", place, end)
        place = end


def check_characters(fields: object) -> None:
    """Raise a `ValueError` for half a surrogate pair (`\\ud800`), which is no character."""
    json.dumps(fields, ensure_ascii=False).encode()
