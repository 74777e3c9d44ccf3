"""A reader and a partition from a user's own file, chosen by name in a config."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedrel.config.sources import load_config
from fedrel.data.load import dataset
from fedrel.data.partition import divide
from fedrel.data.sentences import SentenceCorpus
from fedrel.errors import UserError

PLUGIN = '''
import numpy as np

from fedrel.data.annotations import Draft, Mention as Place
from fedrel.data.partition import PartitionKind, grouped, site_names
from fedrel.data.readers import Reader
from fedrel.data.sentences import Instance, Mention


class Arrows(Reader):
    """`Ada left-> Bo`."""

    name = "test-arrows"

    def read(self, path, *, relations=None, source="source"):
        for line in path.read_text().splitlines():
            head, relation, tail = line.replace("->", "").split()
            text = f"{head} {relation} {tail}"
            start = len(text) - len(tail)
            yield Instance(
                text,
                Mention(head, head, 0, len(head)),
                Mention(tail, tail, start, len(text)),
                relation,
                source,
            )


class Lines(Reader):
    """A document of two words a line."""

    name = "test-lines"
    unit = "documents"

    def read(self, path, *, relations=None):
        for number, text in enumerate(path.read_text().splitlines()):
            middle = text.index(" ")
            places = [(0, middle), (middle + 1, len(text))]
            draft = Draft()
            for start, end in places:
                draft.mention(text[start:end], "T", Place(text[start:end], start, end))
            draft.fact(text[:middle], "next", text[middle + 1 :])
            yield draft.document(str(number), text, [places])


class OddAndEven(PartitionKind):
    """Rows by turns."""

    name = "test-by-turns"
    units = ("sentences",)

    def divide(self, section, corpus, rows, seed):
        return grouped(rows, np.arange(len(rows)) % section.sites, site_names(section.sites))
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    (folder / "plugin.py").write_text(PLUGIN)
    (folder / "arrows.txt").write_text("".join(f"a{n} left-> b{n}\n" for n in range(6)))
    (folder / "words.txt").write_text("Ada Bo\nCy Dee\nEve Flo\n")
    return folder


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDREL_CACHE", str(tmp_path / "cache"))


def test_sentences(folder: Path) -> None:
    files = {key: ["arrows.txt"] for key in ("train", "dev", "test")}
    data = {"corpus": "files", "format": "test-arrows", "root": str(folder), "source_field": "here", **files}
    partition = {"kind": "test-by-turns", "sites": 2}
    config = load_config({"data": data, "partition": partition}, plugins=[folder / "plugin.py"])
    found = dataset(config.data)
    assert found.corpus.unit == "sentences" and len(found.train) == 6
    assert list(found.corpus.relations) == ["NA", "left"]
    assert list(found.corpus.require(SentenceCorpus).sources) == ["here"]
    parts = divide(config.partition, found.corpus, found.train, config.seed)
    assert [parts.rows(site).tolist() for site in range(2)] == [[0, 2, 4], [1, 3, 5]]


def test_documents(folder: Path) -> None:
    files = {key: ["words.txt"] for key in ("train", "dev", "test")}
    data = {"corpus": "documents", "format": "test-lines", "root": str(folder), **files}
    chosen = {"extractor": "document", "evaluation": {"task": "documents"}, "data": data}
    found = dataset(load_config(chosen, plugins=[folder / "plugin.py"]).data)
    assert found.corpus.unit == "documents" and len(found.train) == 3
    assert found.corpus.label_counts(found.train).tolist() == [3, 3]
    for change, problem in (
        ({"corpus": "files"}, "the format 'test-lines' has documents: set data.corpus to 'documents'"),
        ({"pair_types": [["A", "B"]]}, "`pair_types` is for bioc, .*pubtator, spert, not for 'test-lines'"),
        ({"format": "test-line"}, "no reader is called 'test-line'\nhint: did you mean 'test-lines'"),
    ):
        with pytest.raises(UserError, match=problem):
            load_config(chosen | {"data": data | change}, plugins=[folder / "plugin.py"])
