"""A page as a strict reader sees it: elements, attributes and texts, by the standard library's parser."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Reads a page into flat lists; an element that is closed out of order is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self.figures: list[dict[str, Any]] = []
        self.cells: list[str] = []  # texts of td and th
        self.values: list[float] = []  # of <data>
        self.captions: list[str] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.elements.append((tag, attributes))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "data":
            self.values.append(float(attributes["value"]))
        if tag in ("td", "th"):
            self.cells.append("")
        if tag == "script" and attributes.get("type") != "application/json":
            self.scripts.append("")
        if tag == "caption":
            self.captions.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["script"]:
            if self.elements[-1][1].get("type") == "application/json":
                self.figures.append(json.loads(data))
            else:
                self.scripts[-1] += data
        elif self._open[-1:] != ["style"]:
            self.words += data
            if "td" in self._open or "th" in self._open:
                self.cells[-1] += data
            if "caption" in self._open:
                self.captions[-1] += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]
