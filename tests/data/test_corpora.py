"""Where data are missing, it is said how to get them."""

from __future__ import annotations

import hashlib
import lzma
from pathlib import Path

import pytest

from fedrel.config.check import check
from fedrel.config.config_sections import DocumentData
from fedrel.data.corpora import PublishedCorpus, corpora, corpus_of, no_such_file
from fedrel.data.load import dataset
from fedrel.errors import UserError

CONTENT = b"what was published\n"


def published(**files: str) -> PublishedCorpus:
    return PublishedCorpus("zorb", "Zorb (made up)", "jsonl", "https://example.org", "none", "zorb", files)


def test_files_are_known_by_their_content_however_they_are_compressed(tmp_path: Path) -> None:
    (tmp_path / "zorb").mkdir()
    corpus = published(a=hashlib.sha256(CONTENT).hexdigest(), b="")
    assert corpus.described(tmp_path)["state"] == "missing"
    (tmp_path / "zorb" / "a.xz").write_bytes(lzma.compress(CONTENT))
    assert corpus.problems(tmp_path) == ["missing: zorb/b"]
    assert corpus.described(tmp_path)["state"] == "in part"
    (tmp_path / "zorb" / "b").write_bytes(b"x")
    assert corpus.described(tmp_path)["state"] == "present"
    (tmp_path / "zorb" / "a.xz").write_bytes(lzma.compress(CONTENT + b"!"))
    assert corpus.problems(tmp_path) == [f"differs from what was published: {tmp_path / 'zorb' / 'a.xz'}"]


def test_a_missing_file_names_the_variable_the_source_and_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = {"root": tmp_path / "chr", "pool": ["dev.pubtator.xz"]}
    with pytest.raises(UserError) as caught:
        dataset(check(DocumentData, section, "test"))
    hint = caught.value.hint
    assert caught.value.problem == "no such file"
    assert "set FEDREL_DATA" in hint and "http://www.nactem.ac.uk/CHR/" in hint and "docs/data.md" in hint
    assert "start from the config's folder" in no_such_file(tmp_path / "own.jsonl").hint
    monkeypatch.setenv("FEDREL_DATA", str(tmp_path))
    assert "FEDREL_DATA, which is set" in no_such_file(tmp_path / "own.jsonl").hint


def test_every_corpus_says_what_a_user_needs() -> None:
    for corpus in corpora().values():
        assert corpus.title and corpus.source and corpus.licence and corpus.files
        assert all(not digest or len(digest) == 64 for digest in corpus.files.values())


def test_the_real_corpora_are_those_that_were_published(real_data: Path) -> None:
    states = {name: corpus.described(real_data) for name, corpus in corpora().items()}
    differ = [problem for one in states.values() for problem in one["problems"] if "differs" in problem]
    assert differ == []
    assert states["cdr"]["state"] == states["ppi"]["state"] == "present"


def test_a_file_within_an_archive_is_of_the_archives_corpus() -> None:
    found = corpus_of(Path("/data/gad_euadr/REdata.zip/GAD/1/train.tsv"))
    assert found is not None and found.name == "gad"
    assert corpus_of(Path("/data/gad_euadr/REdata.zipped/train.tsv")) is None
