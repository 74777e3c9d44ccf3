"""From a data section to a corpus, which is built once and then found in the cache."""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fedrel.config.sources import load_config
from fedrel.data.documents import DocumentCorpus
from fedrel.data.load import cached, dataset, digest, load_files, open_corpus
from fedrel.data.relations import RelationMap
from fedrel.data.sentences import Instance, SentenceCorpus
from fedrel.data.store import DEV, TRAIN
from fedrel.errors import UserError
from fedrel.files import cache_folder
from tests.data.conftest import DOCRED, PUBTATOR

Write = Callable[..., Path]
DOCUMENTS = {"extractor": "document", "evaluation": {"task": "documents"}}
CDR = {"pair_types": [["Chemical", "Disease"]]}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDREL_CACHE", str(tmp_path / "cache"))


def test_built_once(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(PUBTATOR)
    first = load_files([(TRAIN, path)], "pubtator", options=CDR)
    monkeypatch.setattr(DocumentCorpus, "build", None)
    moved = path.rename(path.with_name("moved.txt"))
    assert load_files([(TRAIN, moved)], "pubtator", options=CDR).fingerprint == first.fingerprint


def test_other_options_splits_files_or_rules_are_another_corpus(write: Write) -> None:
    path, tree = write(PUBTATOR), write("D000010\tC10", "tree.tsv")
    corpora = [
        load_files([(TRAIN, path)], "pubtator"),
        load_files([(TRAIN, path)], "pubtator", options=CDR),
        load_files([(DEV, path)], "pubtator"),
        load_files([(TRAIN, path), (DEV, path)], "pubtator"),
        load_files([(TRAIN, path)], "pubtator", relations=RelationMap(["CID", "other"])),
        load_files([(TRAIN, path)], "pubtator", mesh=tree),
        load_files([(TRAIN, path)], "pubtator", not_include=[write("1\tx", "eog.data")]),
        load_files(
            [(TRAIN, write(PUBTATOR.replace("Nothing but", "Nothing but".upper()), "other.txt"))], "pubtator"
        ),
    ]
    assert len({corpus.folder for corpus in corpora}) == len(corpora)


def test_a_damaged_corpus_is_built_again(write: Write) -> None:
    files = [(TRAIN, write(PUBTATOR))]
    (load_files(files, "pubtator").folder / "text.bin").unlink()
    assert load_files(files, "pubtator").view(0).id == "11"


def test_relations_are_the_training_files_own(write: Write) -> None:
    train, dev = write(DOCRED, "train.json"), write(DOCRED.replace("P2", "P3"), "dev.json")
    assert list(load_files([(DEV, dev)], "docred").relations) == ["NA", "P1", "P3"]
    with pytest.raises(UserError, match=r"dev\.json:2: the relation 'P3' is not in the relation map"):
        load_files([(TRAIN, train), (DEV, dev)], "docred")


def test_files_among_the_options_count_by_what_is_in_them(write: Write) -> None:
    path, info = write(DOCRED), write('{"P1": "met", "P2": "knows"}', "rel_info.json")
    assert list(load_files([(TRAIN, path)], "docred", options={"rel_info": info}).relations) == [
        "NA",
        "knows",
        "met",
    ]
    info.write_text('{"P1": "met", "P2": "saw"}')
    assert list(load_files([(TRAIN, path)], "docred", options={"rel_info": info}).relations) == [
        "NA",
        "met",
        "saw",
    ]


def test_what_was_dealt_with_is_logged(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        corpus = load_files([(TRAIN, write(PUBTATOR))], "pubtator")
    assert "1 mentions without a knowledge base id" in caplog.text
    assert "1 tokens cut in two" in caplog.text
    assert corpus.counts()["split_tokens"] == 1


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.txt: no such file"):
        load_files([(TRAIN, tmp_path / "gone.txt")], "pubtator")


def test_a_document_of_20_000_tokens(write: Write) -> None:
    """A long one, with its mentions far apart, beside one of the usual size."""
    words = ["Zorbine"] + ["gloomy"] * 19_998 + ["frost"]
    text = " ".join(words)
    rows = [("Zorbine", 0, "D1"), ("frost", len(text) - 5, "D9"), ("gloomy", 70_000 // 7 * 7 + 8, "D8")]
    lines = [
        f"9|t|{text}",
        *(f"9\t{at}\t{at + len(name)}\t{name}\tT\t{identity}" for name, at, identity in rows),
    ]
    corpus = load_files([(TRAIN, write("\n".join([*lines, "9\tCID\tD1\tD9", PUBTATOR])))], "pubtator")
    view = corpus.view(0)
    assert len(view.words) == 20_000
    assert view.mention_tokens.tolist() == [[0, 1], [10_001, 10_002], [19_999, 20_000]]
    assert corpus.view(1).id == "11"


LINE = (
    '{"text": "Ada left Bo", "h": {"name": "Ada", "pos": [0, 3]}, '
    '"t": {"name": "Bo", "pos": [9, 11]}, "relation": "left"}\n'
)


FILES = {
    "train.jsonl": LINE,
    "test.jsonl": LINE.replace("Ada", "Eve").replace("Bo", "Cy"),
    "relations.json": '{"NA": 0, "left": 1}',
    "gad.tsv": "@GENE$ and @DISEASE$\t1\n",
    "a.txt": PUBTATOR,
    "a.json": DOCRED,
    "rel_info.json": '{"P1": "met", "P2": "knows"}',
    "tree.tsv": "D000010\tC10",
    "eog.data": "1\tx",
    "map.json": '{"NA": 0, "CID": 1}',
}


JSONL = {"train": ["train.jsonl"], "dev": ["test.jsonl"], "test": ["test.jsonl"]}


OPENNRE = {"format": "opennre", "source_field": "paper", "relations": "relations.json"}


PUBTATOR_FILES = {"train": ["a.txt"], "dev": ["a.txt"], "test": ["a.txt"]}


DOCRED_FILES = {"train": ["a.json"], "dev": ["a.json"], "test": ["a.json"]}


GAD_FILES = {"train": ["gad.tsv"], "dev": ["gad.tsv"], "test": ["gad.tsv"]}


FILTERED = {
    "pair_types": [("Chemical", "Disease")],
    "directions": "annotated",
    "relations": "map.json",
    "mesh": "tree.tsv",
    "not_include": ["eog.data"],
}


# Folder and fingerprint (its first digits) as the code before the common store wrote them: users have such caches.
@pytest.mark.parametrize(
    ("section", "folder", "fingerprint"),
    [
        ({"corpus": "files", **JSONL}, "corpus-93a656fbb7e382b264b72c167f09adc1", "5a7043d7f8c82951"),
        (
            {"corpus": "files", **JSONL, **OPENNRE},
            "corpus-f44874d016ab856e440aab151adbc60c",
            "5a7043d7f8c82951",
        ),
        (
            {"corpus": "files", "format": "gad", **GAD_FILES},
            "corpus-3e409aa4a593b9bcf631d2b7b0daea6f",
            "b5f094ad8a5d7e57",
        ),
        (
            {"corpus": "world", "sentences": 1000},
            "corpus-6be3567c19face5aeac3772ffa2f44f6",
            "8a0f961d986ec9e8",
        ),
        (
            {"corpus": "documents", **PUBTATOR_FILES},
            "documents-9b3efdd705951f0907095032af220ac1",
            "cbfa1c7de57fba4b",
        ),
        (
            {"corpus": "documents", **PUBTATOR_FILES, **FILTERED},
            "documents-cb44cf4840431c6f29b8cb453ddd0971",
            "c6a1ef2a0947b8eb",
        ),
        (
            {"corpus": "documents", **PUBTATOR_FILES, **FILTERED, "id_separator": ""},
            "documents-b45a1808d4c94bab97099a63b12bfec7",
            "573eff46717cbb49",
        ),
        (
            {
                "corpus": "documents",
                "format": "docred",
                "rel_info": "rel_info.json",
                **DOCRED_FILES,
            },
            "documents-3c88ae1e6b0d337f5721192449c47ad6",
            "803ec437b54a0ed8",
        ),
    ],
)
def test_fingerprints_are_those_of_earlier_versions(
    section: dict[str, object], folder: str, fingerprint: str, tmp_path: Path
) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content.encode())
    root = {} if section["corpus"] == "world" else {"root": str(tmp_path)}
    rest = DOCUMENTS if section["corpus"] == "documents" else {}
    corpus = dataset(load_config({"data": section | root, **rest}).data).corpus
    assert corpus.folder.name == folder
    assert corpus.fingerprint.startswith(fingerprint)
    assert open_corpus(corpus.folder).unit == corpus.unit


class Source:
    """Counts how often it is read."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.reads = instance, 0

    def __call__(self) -> Iterator[tuple[int, Instance]]:
        self.reads += 1
        yield TRAIN, self.instance


@pytest.fixture
def source(make_instance: Callable[..., Instance], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.setenv("FEDREL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "train.txt").write_text("Ada left Bo")
    return Source(make_instance("Ada left Bo", "Ada", "Bo"))


def get(
    source: Source, folder: Path, reader: str = "jsonl", relations: Sequence[str] = ("NA",)
) -> SentenceCorpus:
    key = [{"reader": reader}, [digest(folder / "train.txt")], list(relations)]
    return cached(SentenceCorpus, key, relations, source)


def test_a_key_is_built_once(source: Source, tmp_path: Path) -> None:
    first, again = get(source, tmp_path), get(source, tmp_path)
    assert source.reads == 1 and first.fingerprint == again.fingerprint
    assert first.folder.parent == tmp_path / "cache"


def test_other_contents_options_or_relations_are_another_corpus(source: Source, tmp_path: Path) -> None:
    get(source, tmp_path)
    get(source, tmp_path, "opennre")
    get(source, tmp_path, relations=("NA", "x"))
    assert source.reads == 3
    (tmp_path / "train.txt").write_text("Ada met Bo")
    get(source, tmp_path)
    assert source.reads == 4


def test_a_folder_is_known_by_its_files_and_names(source: Source, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "one.txt").write_text("one")

    def reads() -> int:
        cached(SentenceCorpus, [digest(folder)], ["NA"], source)
        return source.reads

    assert reads() == reads() == 1
    (folder / "two.txt").write_text("two")
    assert reads() == reads() == 2
    (folder / "deep" / "one.txt").write_text("One")
    assert reads() == 3
    (folder / "two.txt").rename(folder / "three.txt")
    assert reads() == 4
    folder = folder.rename(tmp_path / "other notes")  # a reader may take the folder's name for a hospital's
    assert reads() == 5


def test_a_path_through_an_archive_is_known_by_the_member(source: Source, tmp_path: Path) -> None:
    def reads(**members: str) -> int:
        with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        cached(SentenceCorpus, [digest(tmp_path / "data.zip" / "train")], ["NA"], source)
        return source.reads

    assert reads(train="one") == reads(train="one", test="two") == 1
    assert reads(train="two") == 2
    with pytest.raises(UserError, match="no file 'train' in the archive"):
        reads(test="one")
    (tmp_path / "data.zip").write_text("no archive")
    with pytest.raises(UserError, match=r"data\.zip/train: cannot read: File is not a zip file"):
        cached(SentenceCorpus, [digest(tmp_path / "data.zip" / "train")], ["NA"], source)


def test_relations_of_the_files_themselves_are_asked_for_once(source: Source, tmp_path: Path) -> None:
    asked: list[None] = []

    def relations() -> list[str]:
        asked.append(None)
        return ["NA", "x"]

    for _ in range(2):
        corpus = cached(SentenceCorpus, [digest(tmp_path / "train.txt")], relations, source)
        assert list(corpus.relations) == ["NA", "x"]
    assert len(asked) == source.reads == 1


def test_a_damaged_corpus_of_a_key_is_built_again(source: Source, tmp_path: Path) -> None:
    corpus = get(source, tmp_path)
    (corpus.folder / "text.bin").unlink()
    assert get(source, tmp_path).text_of(0) == "Ada left Bo"
    assert source.reads == 2


def test_a_missing_file_has_no_digest(source: Source, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.txt: no such file"):
        digest(tmp_path / "gone.txt")


def test_without_a_writable_folder_a_temporary_one_serves(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDREL_CACHE", str(tmp_path / "file" / "cache"))
    with caplog.at_level(logging.WARNING):
        assert len(get(source, tmp_path)) == 1
    assert "cannot keep corpora" in caplog.text
    assert cache_folder() == cache_folder()


def test_the_user_cache_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FEDREL_CACHE", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "fedrel"
