from __future__ import annotations

import logging
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fedrel.data.cache import cached, digest
from fedrel.data.sentences import Instance, SentenceCorpus
from fedrel.data.store import TRAIN
from fedrel.errors import UserError
from fedrel.files import cache_folder


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


def test_built_once(source: Source, tmp_path: Path) -> None:
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


def test_a_damaged_corpus_is_built_again(source: Source, tmp_path: Path) -> None:
    corpus = get(source, tmp_path)
    (corpus.folder / "text.bin").unlink()
    assert get(source, tmp_path).text_of(0) == "Ada left Bo"
    assert source.reads == 2


def test_a_missing_file_is_named(source: Source, tmp_path: Path) -> None:
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
