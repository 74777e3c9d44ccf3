"""Files of records, each with the line it starts on: JSON, XML, and tables with named columns.

JSON is read as a stream of objects: a list of them, or one after another. XML is read as a tree whose nodes know
their line; entities and external references are refused, as an attack. Tables are read row by row: CSV and TSV,
Parquet, and the folders of Hugging Face's `datasets`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from fedrel.data.problems import Problems
from fedrel.data.text_files import files_in, lines, stem
from fedrel.errors import UserError, nearest

_ROWS = 1024  # that are taken out of a column file at once
_LARGEST = 1 << 24  # characters of a cell; Python's own limit is too low for long documents


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


class Node(Element):
    """An element, and the line that it begins on."""

    line: int = 0
    file: Path

    def error(self, problem: str, hint: str = "") -> UserError:
        """What is wrong with the element."""
        return UserError(problem, file=self.file, line=self.line, hint=hint)

    def required(self, name: str) -> str:
        """An attribute that must be there."""
        value = self.get(name)
        if value is None:
            raise self.error(f"expected <{self.tag}> to have the attribute `{name}`")
        return value

    def children(self, tag: str) -> list[Node]:
        """The elements of this tag directly in it."""
        return [child for child in self if isinstance(child, Node) and child.tag == tag]

    def words(self, tag: str) -> str:
        """The text of the first element of this tag directly in it, empty if there is none."""
        return next((child.text or "" for child in self.children(tag)), "")


def read_xml(path: Path, root: str) -> Node:
    """The tree of a file, whose outermost element must have this tag."""
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import DefusedXMLParser

    def node(tag: str, attributes: dict[str, Any]) -> Node:
        made = Node(tag, attributes)
        made.line, made.file = parser.parser.CurrentLineNumber, path
        return made

    parser = DefusedXMLParser(target=TreeBuilder(element_factory=node))
    line = 0
    try:
        for number, text in lines(path):
            line = number
            parser.feed(f"{text}\n")
        tree: Node = parser.close()
    except ParseError as error:
        raise UserError(f"broken XML: {error}", file=path, line=error.position[0]) from error
    except DefusedXmlException as error:
        problem = f"{type(error).__name__}: entities and external references are not read"
        raise UserError(problem, file=path, line=line, hint="remove the DOCTYPE's entities") from error
    if tree.tag != root:
        raise tree.error(f"expected <{root}> as the outermost element, found <{tree.tag}>")
    return tree


def csv_rows(path: Path, required: Sequence[str], problems: Problems) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a CSV file by the names in its first line, with the number of the line that each begins on.

    Commas, tabs or semicolons separate the cells: whichever the first line has most of. Cells may be quoted, and a
    quoted one may have line ends in it.
    """
    numbered = lines(path)
    first = next((line for _, line in numbered if line.strip()), "")
    mark = max(",\t;", key=first.count)
    header = next(csv.reader([first], delimiter=mark), [])
    check_columns(header, required, path)
    if repeated := [name for name in header if name and header.count(name) > 1]:
        raise UserError(f"two columns are called {repeated[0]!r}", file=path, line=1)
    last = 1

    def text() -> Iterator[str]:
        nonlocal last
        for number, line in numbered:
            last = number
            yield f"{line}\n"

    csv.field_size_limit(_LARGEST)
    cells = csv.reader(text(), delimiter=mark, strict=True)
    while True:
        begun = last + 1
        try:
            row = next(cells)
        except StopIteration:
            return
        except csv.Error as error:
            hint = 'a quote inside a cell is written twice ("")'
            with problems:
                raise UserError(f"broken CSV: {error}", file=path, line=begun, hint=hint) from error
            continue
        if len(row) == len(header):
            yield begun, dict(zip(header, row, strict=True))
        elif row:
            problem = f"expected {len(header)} cells, as in the first line, found {len(row)}"
            hint = "put a cell with the separator in it into quotes"
            with problems:
                raise UserError(problem, file=path, line=begun, hint=hint)


def check_columns(found: Sequence[str], required: Sequence[str], path: Path) -> None:
    """Raise a `UserError` for the first column that is not there."""
    if not found:
        raise UserError("is empty: expected a first line with the names of its columns", file=path)
    for name in required:
        if name not in found:
            problem = f"no column is called {name!r}, found {', '.join(map(repr, found))}"
            hint = f"name the columns in [data.columns], with `fedrel convert` by --column; {nearest(name, found)}"
            raise UserError(problem, file=path, line=1, hint=hint)


def parquet_rows(
    path: Path, required: Sequence[str], usual: Sequence[str] = ()
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a Parquet file, or of all in a folder, counted from 1."""
    parquet = _arrow("pyarrow.parquet")
    for file in _files(path, ".parquet"):
        with _readable(file, parquet.ParquetFile) as opened:
            schema = opened.schema_arrow
            found = [*required, *(name for name in usual if name in schema.names)]
            yield from _batches(opened.iter_batches(_ROWS), schema, found, file)


def dataset_rows(
    path: Path, required: Sequence[str], usual: Sequence[str] = ()
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a folder that `datasets` saved (`save_to_disk`), counted from 1 in each of its Arrow files."""
    ipc = _arrow("pyarrow.ipc")
    for file in _files(path, ".arrow"):
        with file.open("rb") as raw, _readable(raw, ipc.open_stream, file) as opened:
            found = [*required, *(name for name in usual if name in opened.schema.names)]
            yield from _batches(opened, opened.schema, found, file)


def _batches(
    batches: Any, schema: Any, required: Sequence[str], file: Path
) -> Iterator[tuple[int, dict[str, Any]]]:
    roots = list(dict.fromkeys(name.partition(".")[0] for name in required))
    check_columns(schema.names, roots, file)
    labels = _class_labels(schema)
    number = 0
    try:
        for batch in batches:
            for row in batch.select(roots).to_pylist():
                number += 1
                values = {name: _inside(row, name) for name in required}
                for name in labels.keys() & values.keys():
                    if isinstance(values[name], int) and 0 <= values[name] < len(labels[name]):
                        values[name] = labels[name][values[name]]
                yield number, values
    except (OSError, ValueError) as error:  # pyarrow's own errors are one or the other
        raise UserError(f"cannot read after row {number}: {error}", file=file) from error


def _inside(row: Mapping[str, Any], name: str) -> Any:
    """The value of a column, or of a field in it: `h.name`."""
    value: Any = row
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _class_labels(schema: Any) -> dict[str, list[str]]:
    """The names behind the numbers of `datasets`' class labels, by column."""
    try:
        about = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {name: one["names"] for name, one in about.items() if one.get("_type") == "ClassLabel"}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _files(path: Path, suffix: str) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = [file for file in files_in(path) if file.suffix == suffix and not stem(file).startswith("cache-")]
    if not found:
        raise UserError(f"expected {suffix} files in it, found none", file=path, hint="check the path")
    return found


def _readable(source: Any, opened: Callable[[Any], Any], file: Path | None = None) -> Any:
    try:
        return opened(source)
    except FileNotFoundError as error:
        raise UserError("no such file", file=source, hint="check the path") from error
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read: {error}", file=file or source) from error


def _arrow(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        problem = "reading Parquet and Arrow files needs pyarrow, which is not installed"
        raise UserError(problem, hint="run `pip install fedrel[arrow]`") from error
