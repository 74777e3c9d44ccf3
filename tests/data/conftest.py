"""Small corpora for the tests of the data layer, and the formats that documents come in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from fedrel.data.annotations import Document
from fedrel.data.documents import DocumentCorpus
from fedrel.data.sentences import Instance, Mention, SentenceCorpus
from tests.conftest import REAL_DATA

PUBTATOR = """\
11|t|Zorbine eases glomitis but brings on hot-head.
11|a|Ten dwarves took zorbine. Their preglomitis left them. Hot-head and blue ears stayed.
11	0	7	Zorbine	Chemical	D01
11	14	22	glomitis	Disease	D90
11	37	45	hot-head	Disease	D91
11	64	71	zorbine	Chemical	D01
11	82	90	glomitis	Disease	D90
11	102	124	Hot-head and blue ears	Disease	D91|D92	Hot-head|blue ears
11	0	1	Z	Chemical	-1
11	CID	D01	D91

12|t|Nothing but warbleine here.
12|a|
12	12	21	warbleine	Chemical	D02
"""

# Two entities in two sentences: Ada twice, Bo once; the hand-worked graph of the entropy tests.
DOCRED = """[
{"title": "Ada", "sents": [["Ada", "met", "Bo", "."], ["Ada", "left", "."]],
 "vertexSet": [
  [{"name": "Ada", "sent_id": 0, "pos": [0, 1], "type": "PER"},
   {"name": "Ada", "sent_id": 1, "pos": [0, 1], "type": "PER"}],
  [{"name": "Bo", "sent_id": 0, "pos": [2, 3], "type": "PER"}]],
 "labels": [{"h": 0, "t": 1, "r": "P1", "evidence": [0]}, {"h": 0, "t": 1, "r": "P2", "evidence": [0, 1]}]}
]"""


def eog_entity(identity: str, kind: str, mentions: Sequence[tuple[str, int, int, int]]) -> list[str]:
    """The six columns of an entity with mentions (name, first token, token after, sentence)."""
    names, firsts, afters, sentences = zip(*mentions, strict=True)
    places = (":".join(map(str, column)) for column in (firsts, afters, sentences))
    return [identity, "|".join(names), kind, *places]


def eog_line(identity: str, text: str, pairs: Iterable[tuple[str, list[str], list[str]]]) -> str:
    """A document whose pairs are (label, head's columns, tail's columns)."""
    columns = [[label, "L2R", "CROSS", "0-1", "0-1", *head, *tail] for label, head, tail in pairs]
    return "\t".join([identity, text, *(column for pair in columns for column in pair)])


def instance(
    text: str,
    head: str,
    tail: str,
    relation: str = "NA",
    source: str = "",
    expresses: bool | None = None,
) -> Instance:
    """A sentence whose entities' ids are their names in capitals."""
    places = [(name, text.index(name), text.index(name) + len(name)) for name in (head, tail)]
    first, second = (Mention(name.upper(), name, start, end) for name, start, end in places)
    return Instance(text, first, second, relation, source, expresses)


@pytest.fixture
def make_instance() -> Callable[..., Instance]:
    return instance


@pytest.fixture
def make_corpus(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., SentenceCorpus]:
    def make(
        instances: Iterable[Instance], splits: Iterable[int] | None = None, relations: Sequence[str] = ()
    ) -> SentenceCorpus:
        instances = list(instances)
        chosen = list(splits) if splits is not None else [0] * len(instances)
        folder = tmp_path_factory.mktemp("corpus") / "columns"
        return SentenceCorpus.build(
            zip(chosen, instances, strict=True), folder, relations or SentenceCorpus.relations_of(instances)
        )

    return make


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(content: str, name: str = "corpus.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode())
        return path

    return write


@pytest.fixture
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., DocumentCorpus]:
    def make(documents: Iterable[Document], splits: Iterable[int] | None = None) -> DocumentCorpus:
        documents = list(documents)
        chosen = list(splits) if splits is not None else [0] * len(documents)
        folder = tmp_path_factory.mktemp("documents") / "columns"
        return DocumentCorpus.build(
            zip(chosen, documents, strict=True), folder, DocumentCorpus.relations_of(documents)
        )

    return make


@pytest.fixture
def real_data() -> Path:
    """The folder of real corpora, where there is one."""
    if not REAL_DATA:
        pytest.skip("FEDREL_DATA does not name a folder of real corpora")
    return Path(REAL_DATA)
