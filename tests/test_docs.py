"""The documentation is true: its code runs, and its tables name what exists, no more and no less.

In `docs/*.md`, blocks marked `bash` and `python` run in order, those of one page in one folder. A block of any
language whose first line is `# file: NAME` is written to that file instead. A block marked `text output` is
what the block before it prints. `python slow` runs with the slow tests. Anything else (`sh`, `text`, `toml`)
is only shown. The fast tests train for a few rounds where a page says more; the slow ones run the page as it is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

import fedrel
from fedrel.config.config_sections import ColumnNames, DifferentialPrivacy, DocumentData, FileData, WorldData
from fedrel.config.schema import Config
from fedrel.extractors.document import DocumentSection
from fedrel.extractors.pcnn import PCNNSection
from fedrel.extractors.transformer import TransformerSection
from fedrel.methods.by_name import describe, methods
from fedrel.runs.train import run
from tests.conftest import tiny

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
FENCED = re.compile(r"^```(?P<mark>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# file: (\S+)\n")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
ROUNDS = re.compile(r"(\brounds\W{1,4})(\d+)")
FEW_ROUNDS = 4
IN_A_CLONE = {"adding-a-method.md"}  # pages whose reader works in the source tree


@dataclass(frozen=True)
class Block:
    """A fenced block, and where it stands, for a failure's message."""

    mark: str
    code: str
    place: str


def blocks(page: Path, rounds: int | None = None) -> Iterator[Block]:
    """The blocks of a page, in which no run has more than so many rounds."""
    text = page.read_text(encoding="utf-8")
    if rounds is not None:
        text = ROUNDS.sub(lambda found: f"{found[1]}{min(rounds, int(found[2]))}", text)
    for found in FENCED.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(found["mark"].strip(), found["code"], f"{page.name}:{line}")


def perform(block: Block, folder: Path, **variables: str) -> str | None:
    """Write a block's file, or run the block and return what it printed; None for one that is only shown."""
    if named := FILE.match(block.code):
        path = folder / named[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.code, encoding="utf-8")
        return None
    commands = {
        "bash": ["bash", "-euo", "pipefail", "-c", block.code],
        "python": [sys.executable, "-c", block.code],
    }
    if (language := block.mark.removesuffix(" slow")) not in commands:
        return None
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = ours | {
        # In a clone, the clone's own package.
        "PYTHONPATH": os.pathsep.join([str(folder / "src"), os.environ.get("PYTHONPATH", "")]).rstrip(
            os.pathsep
        ),
        "COLUMNS": "120",
        **variables,
    }
    done = subprocess.run(
        commands[language], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{block.place}:\n{block.code}\n{done.stdout}{done.stderr}"
    return done.stdout


LONG = [page for page in PAGES if [*blocks(page)] != [*blocks(page, FEW_ROUNDS)]]
MARKS = {
    "documents.md": [pytest.mark.slow]
}  # `tests/test_documents.py` has the same commands on a smaller encoder


@pytest.mark.programs
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name, marks=MARKS.get(page.name, [])) for page in PAGES]
)
def test_the_code_of_a_page_runs(page, tmp_path):
    run_page(page, tmp_path, FEW_ROUNDS)


@pytest.mark.slow
@pytest.mark.parametrize("page", LONG, ids=lambda page: page.name)
def test_the_code_of_a_page_runs_as_it_stands(page, tmp_path):
    run_page(page, tmp_path)


def run_page(page: Path, tmp_path: Path, rounds: int | None = None) -> None:
    variables = {}
    if page.name in IN_A_CLONE:
        variables["FEDREL_KERNELS"] = "off"  # or they would be compiled for the clone, too
        for part in ("src", "presets", "tests/methods", "tests/quick_python"):
            shutil.copytree(
                ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("test_*", "__pycache__")
            )
        for part in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py"):
            shutil.copy(ROOT / part, tmp_path / part)
    printed = None
    for block in blocks(page, rounds):
        if block.mark == "text output":
            assert printed == block.code, block.place
        elif not block.mark.endswith(" slow"):
            printed = perform(block, tmp_path, **variables)


@pytest.mark.programs
def test_the_python_of_the_readme_runs(tmp_path):
    (block,) = (one for one in blocks(ROOT / "README.md", 1) if one.mark == "python")
    assert perform(block, tmp_path) is not None


@pytest.mark.slow
def test_the_python_of_the_readme_finds_what_it_says(tmp_path):
    (block,) = (one for one in blocks(ROOT / "README.md") if one.mark == "python")
    assert perform(block, tmp_path).startswith("Ada Quill born_in Troutmere 0.")


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_is_short_and_stands_on_its_page(example):
    code = example.read_text(encoding="utf-8")
    assert len(code.splitlines()) < 60
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    assert f"```python\n# file: {example.name}\n{code}```\n" in page, "copy the file's new code to the page"


@pytest.mark.programs
def test_the_notebook_runs(tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(ROOT / "docs" / "notebook.ipynb", as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    shown = [
        output["data"]["text/html"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    ]
    assert len(shown) == 3  # the run, its rounds, the comparison
    assert "lazy-mil, seed 1" in shown[0] and "halfway" in shown[2]


SLOW = [block for page in PAGES for block in blocks(page) if block.mark.endswith(" slow")]


@pytest.mark.slow
@pytest.mark.parametrize("block", SLOW, ids=lambda block: block.place)
def test_a_slow_block_runs(block, tmp_path):
    perform(block, tmp_path)


def links(page: Path) -> list[str]:
    return LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "page",
    [*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "README.md"],
    ids=lambda page: page.name,
)
def test_links_lead_somewhere(page):
    assert [link for link in links(page) if not (page.parent / link).exists()] == []


def tables(page: str) -> dict[str, dict[str, list[str]]]:
    """The tables of a page: by heading, each row's other cells by the code in its first cell."""
    found: dict[str, dict[str, list[str]]] = {}
    heading = ""
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ").replace("`", "")
        elif line.startswith("| `"):
            first, *rest = (cell.strip() for cell in line.strip("|").split(" | "))
            assert first.strip("` ") not in found.setdefault(heading, {}), f"{first} stands twice in {page}"
            found[heading][first.strip("` ")] = [cell.rstrip("| ") for cell in rest]
    return found


def keys_of(model: type[BaseModel]) -> dict[str, str]:
    """A section's keys and their defaults as the page writes them."""
    return {
        name: "required"
        if field.is_required()
        else "none"
        if field.default is None
        else json.dumps(field.default, default=str)
        for name, field in model.model_fields.items()
        if not isinstance(
            field.get_default(call_default_factory=True), BaseModel
        )  # it has a table of its own
    }


def sections() -> dict[str, type[BaseModel]]:
    found: dict[str, type[BaseModel]] = {"Top level": Config}
    for name, field in Config.model_fields.items():
        if name == "data":
            found |= {'[data] with corpus = "world"': WorldData, '[data] with corpus = "files"': FileData}
            found |= {'[data] with corpus = "documents"': DocumentData, "[data.columns]": ColumnNames}
        elif name == "extractor":
            found |= {"[extractor]": PCNNSection, '[extractor] with kind = "transformer"': TransformerSection}
            found['[extractor] with kind = "document"'] = DocumentSection
        elif isinstance(field.default, BaseModel):
            found[f"[{name}]"] = type(field.default)
    found["[privacy.dp]"] = DifferentialPrivacy
    return found


@pytest.mark.parametrize(("heading", "model"), sections().items(), ids=str)
def test_every_config_key_is_documented_with_its_default(heading, model):
    rows = tables("configuration.md")[heading]
    assert {key: default.strip("`") for key, (default, _) in rows.items()} == keys_of(model)
    for key, (_, meaning) in rows.items():
        annotation = model.model_fields[key].annotation
        choices = get_args(annotation) if get_origin(annotation) is Literal else ()
        assert meaning and model.model_fields[key].description, key
        if len(choices) > 1:
            assert [choice for choice in choices if f"`{choice}`" not in meaning] == [], key


def test_every_method_and_its_options_are_documented():
    page = tables("methods.md")
    assert {name: cells[-1] for name, cells in page["The methods at a glance"].items()} == {
        name: describe(name).trained_by for name in methods()
    }
    options = {
        f"{name}.{option}": json.dumps(field.default)
        for name, kind in methods().items()
        for option, field in kind.model_fields.items()
    }
    listed = {key: default.strip("`") for key, (default, _) in page["Options"].items()}
    assert listed == {key: default for key, default in options.items() if not key.endswith(".weighting")} | {
        "NAME.weighting": json.dumps("examples")
    }


def test_every_command_is_documented():
    from typer.main import get_command

    from fedrel.cli.main import app

    assert set(tables("commands.md")["The commands"]) == set(get_command(app).commands)


def test_every_format_is_documented_with_what_it_does():
    from fedrel.data.convert import writers
    from fedrel.data.readers import READERS

    rows = tables("data.md")["Formats"]
    ours = {name: one for name, one in READERS.all().items() if one.__module__.startswith("fedrel.")}
    written = set(writers())
    assert len(rows) >= 15
    assert {name: cells[:4] for name, cells in rows.items()} == {
        name: [one.unit, "yes", "yes", "from and to" if name in written else "from"]
        for name, one in ours.items()
    }


def test_every_published_corpus_is_documented():
    from fedrel.config.sources import load_config, presets
    from fedrel.data.corpora import corpora
    from fedrel.data.load import SITE
    from fedrel.data.text_files import uncompressed

    rows = tables("data.md")["Published corpora"]
    assert {name: (cells[1].strip("`"), cells[3]) for name, cells in rows.items()} == {
        name: (one.format, one.licence) for name, one in corpora().items()
    }
    known = {f"{one.folder}/{file}" for one in corpora().values() for file in one.files}
    known |= {one.folder for one in corpora().values()}  # a reader of a whole folder
    for name in presets():
        if name.startswith("papers/"):
            continue
        data = load_config(name).data
        if data.corpus == "world" or any(SITE in str(path) for path in (*data.pool, *data.train)):
            continue
        for path in (*data.pool, *data.train, *data.dev, *data.test):
            inside = uncompressed(data.root / path).as_posix().partition(".zip/")
            file = inside[0] + (".zip" if inside[1] else "")
            assert any(file.endswith(f"/{one}") for one in known), (name, path)


def test_everything_public_is_documented():
    listed = set(tables("api.md")["Python API"])
    assert listed | {"RunResult", "Comparison"} == set(fedrel.__all__)


DYNAMIC = {  # where keys are data, the word that stands for them
    **{"by_kind": "KIND", "watched": "ROW", "at_sites": "SITE", "versions": "NAME"},
    **{"sizes": "PART", "repeated": "PART", "relations": "PART", "relations.PART": "RELATION"},
    **dict.fromkeys(("dev", "test", "metrics", "dev_metric"), "METRIC"),
}


def paths(value: object, prefix: str = "") -> set[str]:
    """The keys of nested JSON, dotted; a list of objects counts as its objects."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {path for item in value for path in paths(item, prefix)}
    if not isinstance(value, Mapping):
        return {prefix}
    word = DYNAMIC.get(prefix) or DYNAMIC.get(prefix.rpartition(".")[2])
    return {
        path for key, item in value.items() for path in paths(item, f"{prefix}.{word or key}".lstrip("."))
    }


def test_every_file_and_field_of_a_run_folder_is_documented(out):
    page = tables("run-folder.md")
    fedrel.run(tiny(method="lazy-mil", training__rounds=2, evaluation__target_on="test"), out)
    assert set(page["The files"]) == {f"{path.name}{'/' if path.is_dir() else ''}" for path in out.iterdir()}
    line = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    line["refused"] = [{"site": 0, "message": "Update", "reason": "of an honest run there are none"}]
    line |= {"stood_out": None, "began_from": 1, "threshold": 0.4, "clipped": 1}  # none of these
    line |= {"left_out": None, "excluded": None}
    line["privacy"] = {"epsilon": 1.0, "rates": [0.1], "clip": 1.0, "extra": 1e-6}
    assert set(page["metrics.jsonl"]) == paths(line)
    for name in (
        "result.json",
        "state.json",
        "environment.json",
        "data_check.json",
        "case_study.json",
        "pr_curve.json",
    ):
        content = json.loads((out / name).read_text())
        if name == "result.json":
            content |= {"threshold": 0.4, "epsilon": 1.0}
        empty = (
            {key: None for key, value in content.items() if value == {}} if isinstance(content, dict) else {}
        )
        assert set(page[name]) == paths(content | empty if empty else content), name
    model = json.loads((out / "model" / "config.json").read_text())
    assert set(page["model/config.json"]) == set(model)


def test_message_sizes_are_as_the_page_says(out):
    """The formulas of docs/methods.md, "What crosses the boundary", on a run of one round."""
    import numpy as np
    from safetensors.numpy import load_file

    from fedrel.runs.prepare import prepare

    config = tiny(method="lazy-mil", training__rounds=1, extractor__dropout=0.0)
    run(config, out)
    line = json.loads((out / "metrics.jsonl").read_text())
    kinds, ready = line["bytes"]["by_kind"], prepare(config)
    weights = load_file(out / "model" / "weights.safetensors")
    v, n = len(weights["words.weight"]), len(weights["classifier.bias"])
    d, p, f, w, reach = 8, 5, 12, 3, 120
    dense = 2 * (2 * reach + 1) * p + f * w * (d + 2 * p) + f + 3 * f * n + n
    assert sum(array.size for array in weights.values()) == v * d + dense
    corpus, sites = ready.dataset.corpus, ready.site_data.partition
    triples = [np.unique(corpus.triple[sites.rows(site)]) for site in line["active"]]
    won = len(np.unique(np.concatenate(triples)))
    assert kinds["Claims"]["up"] == 12 * sum(map(len, triples))
    assert kinds["Winners"]["down"] == 4 * won
    assert line["examples"] == won
    assert kinds["Model"]["down"] == len(line["active"]) * 4 * (v * d + dense)
    trained = len(line["active"])  # each of the three has won something
    changed = (kinds["Update"]["up"] - trained * (4 * dense + 24)) / (4 + 4 * d)
    assert changed == int(changed) > 0


@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
def test_the_demos_table_is_that_of_its_runs(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    rows = json.loads((ROOT / "results" / "demo" / "comparison.json").read_text(encoding="utf-8"))["rows"]
    shown = 0
    for row in rows:
        values = [row["metrics"]["auc"], row["metrics"]["p_mean"], row["selection_precision"]]
        line = f"| {row['method']} | {' | '.join(f'{value:.3f}' for value in values)} |"
        shown += line in text.replace("**", "")
    assert shown >= 4


def test_every_attack_names_tests_that_exist():
    named = re.findall(
        r"`([\w/]+\.py)::(test_\w+)`", (ROOT / "docs" / "attacks.md").read_text(encoding="utf-8")
    )
    assert len(named) > 40
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), f"{file}::{test}"
