"""What MkDocs does not do by itself: pages from outside docs/, the API reference, and no request to another host.

`mkdocs.yml` names this file under `hooks`. Three words of its `nav` stand for lists made here: `RESULTS`,
`REFERENCE` and `DECISIONS`. A module, a decision or a folder of results is on the site without being listed.
"""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fedrel"
MOVED = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)#\s]+)")
MARKED = re.compile(r"^```(\w+) (?:output|slow)$", re.MULTILINE)  # words for the tests
NAMED = re.compile(r"^```(\w+)\n# file: (\S+)\n+", re.MULTILINE)
FETCHED = {  # the elements whose addresses a browser fetches without being asked
    **dict.fromkeys(("script", "img", "iframe", "source", "video", "audio", "embed"), "src"),
    **{"link": "href", "object": "data"},
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the lists of the navigation."""
    lists = {
        "DECISIONS": ["decisions/README.md", *(f"decisions/{page.name}" for page in _decisions())],
        "REFERENCE": [{name: f"reference/{name}.md"} for name in _packages()],
        "RESULTS": ["results.md", *(uri for uri in _outside().values() if uri.startswith("results/"))],
    }
    config.nav = _filled(config.nav, lists)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand elsewhere, and one page of reference for each package."""
    for path, uri in _outside().items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    for name, modules in _packages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=_reference(name, modules)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links and code blocks that are right in the repository into ones that are right on the site."""
    if page.file.abs_src_path is None:
        return markdown
    start = Path(page.file.abs_src_path).parent
    here = Path(page.file.src_uri).parent

    def on_site(link: re.Match[str]) -> str:
        target = (start / link[1]).resolve()
        uri = _uri(target)
        return link[1] if uri is None else os.path.relpath(uri, here)

    markdown = LINK.sub(on_site, NAMED.sub(r'```\1 title="\2"\n', MARKED.sub(r"```\1", markdown)))
    if page.file.src_uri == "decisions/README.md":
        markdown += "\n" + "".join(f"- [{_title(one)}]({one.name})\n" for one in _decisions())
    return markdown


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse to build pages that would ask another host for something."""
    found = [
        f"{path.relative_to(config.site_dir)}: {address}"
        for path in sorted(Path(config.site_dir).rglob("*"))
        if path.suffix in {".html", ".css"}
        for address in foreign_addresses(path.read_text(encoding="utf-8"), css=path.suffix == ".css")
    ]
    if found:
        raise PluginError("pages fetch from other hosts:\n" + "\n".join(found))


def foreign_addresses(text: str, *, css: bool = False) -> list[str]:
    """The addresses on other hosts that a page or a style sheet makes a browser fetch."""
    if css:
        addresses = re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")\s]+)", text)
    else:
        parser = _Fetched()
        parser.feed(text)
        addresses = parser.addresses
    return [address for address in addresses if urlsplit(address).netloc]


class _Fetched(HTMLParser):
    """Collects the addresses that a browser fetches by itself; a link to click on is not among them."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the address of an element that fetches one."""
        address = dict(attrs).get(FETCHED.get(tag, ""))
        if address:
            self.addresses.append(address)


def _decisions() -> list[Path]:
    return sorted((ROOT / "docs" / "decisions").glob("0*.md"))


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def _outside() -> dict[Path, str]:
    """The files from outside docs/ that are on the site, and where they stand there."""
    results = sorted((ROOT / "results").glob("*/README.md"))
    pictures = sorted((ROOT / "results").glob("*/*.svg"))
    return {ROOT / name: uri for name, uri in MOVED.items()} | {
        path: path.relative_to(ROOT).as_posix() for path in (*results, *pictures)
    }


def _uri(target: Path) -> str | None:
    """Where a file of the repository stands on the site; None for one that is not there."""
    if target in (outside := _outside()):
        return outside[target]
    return target.relative_to(ROOT / "docs").as_posix() if target.is_relative_to(ROOT / "docs") else None


def _packages() -> dict[str, list[str]]:
    """The modules of each package, private ones left out; the root's own modules are those of `fedrel`."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if any(part.startswith("_") for part in parts[:-1]) or parts[-1] in {"__main__"}:
            continue
        if parts[-1] == "__init__":
            parts = parts[:-1]
            found.setdefault(".".join(parts[:2]), []).append(".".join(parts))
        elif not parts[-1].startswith("_"):
            found.setdefault(".".join(parts[: min(2, len(parts) - 1)]), []).append(".".join(parts))
    return found


def _reference(name: str, modules: list[str]) -> str:
    """The page of a package: what it is for, then each module's docstring, and what is public in it."""
    own = f"# {name}\n\n::: {name}\n    options: {{show_root_heading: false, members: false}}\n\n"
    return own + "\n".join(f"::: {module}\n" for module in modules if module != name)


def _filled(entry: Any, lists: dict[str, list[Any]]) -> Any:
    """A part of the navigation with the words that stand for lists replaced by them."""
    if isinstance(entry, dict):
        return {title: _filled(below, lists) for title, below in entry.items()}
    if isinstance(entry, list):
        return [_filled(one, lists) for one in entry]
    return lists.get(entry, entry)
