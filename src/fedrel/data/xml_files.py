"""XML files as trees whose nodes know their line. Entities and external references are refused, as an attack."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from fedrel.data.text_files import lines
from fedrel.errors import UserError


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
