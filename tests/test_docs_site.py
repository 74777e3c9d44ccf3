"""The site's build refuses pages that ask another host for something, and mends links between its sources."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("mkdocs")
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def hooks():
    spec = spec_from_file_location("hooks", ROOT / "docs" / "_site" / "hooks.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        '<p><img alt="x" src="http://pictures.example/x.png"></p>',
    ],
)
def test_an_address_on_another_host_is_found(hooks, text):
    assert len(hooks.foreign_addresses(text)) == 1


def test_own_files_and_links_to_click_on_are_no_requests(hooks):
    text = (
        '<script src="../x.js"></script><a href="https://example.org">x</a><img src="data:image/png;base64,">'
    )
    assert hooks.foreign_addresses(text) == []


def test_style_sheets_are_searched_too(hooks):
    text = (
        "@import 'https://a.example/x.css'; p {background: url(x.png)} a {background: url(\"//b.example/y\")}"
    )
    assert hooks.foreign_addresses(text, css=True) == ["https://a.example/x.css", "//b.example/y"]


@pytest.mark.parametrize(
    ("page", "uri", "link", "expected"),
    [
        ("README.md", "index.md", "docs/tutorial.md", "tutorial.md"),
        ("docs/noise.md", "noise.md", "../results/feded-table3/README.md", "results/feded-table3/README.md"),
        ("docs/decisions/README.md", "decisions/x.md", "../../CONTRIBUTING.md", "../contributing.md"),
        ("docs/noise.md", "noise.md", "https://example.org/x", "https://example.org/x"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(hooks, page, uri, link, expected):
    file = SimpleNamespace(abs_src_path=str(ROOT / page), src_uri=uri)
    made = hooks.on_page_markdown(f"[x]({link})", SimpleNamespace(file=file), None, None)
    assert made == f"[x]({expected})"


def test_code_blocks_have_their_language_and_the_name_of_their_file(hooks):
    page = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(ROOT / "docs/x.md"), src_uri="x.md"))
    text = "```text output\n1\n```\n\n```toml\n# file: a.toml\n\nx = 1\n```\n"
    made = '```text\n1\n```\n\n```toml title="a.toml"\nx = 1\n```\n'
    assert hooks.on_page_markdown(text, page, None, None) == made


def test_every_public_module_is_in_the_reference(hooks):
    listed = {module for modules in hooks._packages().values() for module in modules}
    assert {"fedrel", "fedrel.errors", "fedrel.methods.fedavg", "fedrel.data.readers"} <= listed
    assert not any(module.rpartition(".")[2].startswith("_") for module in listed)
