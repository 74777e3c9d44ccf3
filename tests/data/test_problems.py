"""One bad annotation costs that annotation, if the user says so; it is counted, listed and limited."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedrel.config.check import check
from fedrel.config.config_sections import DocumentData, FileData
from fedrel.data.load import dataset, load_files
from fedrel.data.problems import LISTED, Problems, Reading, reason
from fedrel.data.store import DEV, TRAIN
from fedrel.errors import UserError
from tests.data.conftest import DOCRED, PUBTATOR

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDREL_CACHE", str(tmp_path / "cache"))


def listed(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "skipped.jsonl").read_text().splitlines()]


def test_the_default_stops_and_its_hint_names_the_option(write: Write) -> None:
    path = write("1\t2\ta\tb\tNA\ta c\n")
    with pytest.raises(UserError) as caught:
        load_files([(TRAIN, path)], "nyt10")
    assert caught.value.line == 1
    assert caught.value.hint.startswith("write it as the sentence does")
    assert caught.value.hint.endswith(
        '; or set data.on_error = "skip" to leave out such records and list them'
    )


def test_the_option_is_named_once_where_records_are_nested(write: Write) -> None:
    path = write(DOCRED.replace('"pos": [2, 3]', '"pos": [2, 9]'))
    with pytest.raises(UserError) as caught:
        load_files([(TRAIN, path)], "docred")
    assert caught.value.hint.count("on_error") == 1


def test_one_mention_that_does_not_fit_costs_that_mention(write: Write) -> None:
    """Ada's second mention is outside its sentence; her first, and what is said of her, are kept."""
    path = write(DOCRED.replace('"sent_id": 1, "pos": [0, 1]', '"sent_id": 1, "pos": [3, 4]'))
    with pytest.raises(UserError, match=r"corpus\.txt:2: .*expected 'Ada' at tokens \[3, 4\)"):
        load_files([(TRAIN, path)], "docred")
    corpus = load_files([(TRAIN, path)], "docred", max_skipped=0.5)
    view = corpus.view(0)
    assert view.mention_names == ["Ada", "Bo"]
    assert view.labels.sum() == 3  # P1 and P2 from Ada to Bo, and NA back
    [one] = listed(corpus.folder)
    assert (one["file"], one["line"]) == (str(path), 2)
    assert one["reason"] == "document … (…): expected … at tokens […, …) of sentence …, found … tokens in it"
    reading = Reading.of(corpus.folder)
    assert (reading.seen, reading.left_out) == (6, 1)  # a document, three mentions, two labels


def test_what_hangs_on_a_skipped_record_is_skipped_as_well(write: Write) -> None:
    """Without its only mention an entity is unknown, so the facts about it go, too."""
    path = write(DOCRED.replace('"name": "Bo"', '"name": "Cy"'))
    corpus = load_files([(TRAIN, path)], "docred", max_skipped=0.6)
    assert [one["problem"].partition(": ")[2][:24] for one in listed(corpus.folder)] == [
        "expected 'Cy' at tokens ",
        "the relation P1 names en",
        "the relation P2 names en",
    ]


def test_lines_of_pubtator_are_skipped_one_by_one(write: Write) -> None:
    content = PUBTATOR.replace("37\t45\thot-head", "37\t46\thot-head").replace("11\t0\t1\tZ", "99\t0\t1\tZ")
    corpus = load_files([(TRAIN, write(content))], "pubtator", max_skipped=0.2)
    assert [one["line"] for one in listed(corpus.folder)] == [9, 5]
    assert corpus.view(0).entity_ids == ["D01", "D90", "D91", "D92"]


def test_too_many_are_refused_with_the_commonest_reason(write: Write) -> None:
    path = write("1\t2\ta\tb\tNA\ta c\n" * 3 + "1\t2\ta\tb\tNA\n" + "1\t2\ta\tb\tNA\ta b\n" * 6)
    with pytest.raises(UserError) as caught:
        load_files([(TRAIN, path)], "nyt10", max_skipped=0.39)
    assert str(caught.value) == (
        "4 of 10 records (40.0%) cannot be read, more than data.max_skipped allows (39.0%); "
        "3 times: the name … is not in the sentence\n"
        'hint: see the first one with data.on_error = "stop"'
    )
    assert len(load_files([(TRAIN, path)], "nyt10", max_skipped=0.4)) == 6
    with pytest.raises(UserError, match="more than"):  # now from the cache
        load_files([(TRAIN, path)], "nyt10", max_skipped=0.1)


def test_skipping_is_another_corpus_than_stopping(write: Write) -> None:
    path = write("1\t2\ta\tb\tNA\ta b\n")
    strict, lenient = (load_files([(TRAIN, path)], "nyt10", max_skipped=limit) for limit in (None, 0.0))
    assert strict.folder != lenient.folder
    assert strict.fingerprint == lenient.fingerprint
    assert Reading.of(strict.folder).left_out == 0


def test_a_relation_that_training_lacks_can_be_skipped(write: Write) -> None:
    train, dev = write("1\t2\ta\tb\tx\ta b\n" * 3, "train.txt"), write("1\t2\ta\tb\ty\ta b\n", "dev.txt")
    corpus = load_files([(TRAIN, train), (DEV, dev)], "nyt10", max_skipped=0.25)
    assert list(corpus.relations) == ["NA", "x"]
    assert listed(corpus.folder)[0]["problem"] == "the relation 'y' is not in the relation map"


def test_from_a_config(write: Write, tmp_path: Path) -> None:
    row = "1\t2\ta{0}\tb\t{1}\ta{0} and b\n"
    content = "".join(row.format(n, "x" if n % 2 else "Other") for n in range(40)) + "broken\n"
    write(content, "all.txt")
    section = {"root": tmp_path, "pool": ["all.txt"], "format": "nyt10", "none_label": "Other"}
    with pytest.raises(UserError, match=r"all\.txt:41: expected 6 columns"):
        dataset(check(FileData, section, "test"))
    with pytest.raises(UserError, match="1 of 41 records"):
        dataset(check(FileData, section | {"on_error": "skip"}, "test"))
    data = dataset(check(FileData, section | {"on_error": "skip", "max_skipped": 0.03}, "test"))
    assert list(data.corpus.relations) == ["NA", "x"]
    with pytest.raises(UserError, match="on_error: Input should be 'stop' or 'skip'"):
        check(DocumentData, {"pool": ["x"], "on_error": "ignore"}, "test")


def test_files_that_cannot_be_read_at_all_are_never_skipped(tmp_path: Path, write: Write) -> None:
    with pytest.raises(UserError, match="no such file"):
        load_files([(TRAIN, tmp_path / "gone")], "nyt10", max_skipped=1.0)
    with pytest.raises(UserError, match="broken JSON in document 1"):
        load_files([(TRAIN, write(DOCRED[:-3]))], "docred", max_skipped=1.0)


def test_other_errors_are_never_swallowed() -> None:
    problems = Problems(skip=True)
    with pytest.raises(ZeroDivisionError), problems:
        raise ZeroDivisionError


def test_all_are_counted_and_the_first_are_listed(tmp_path: Path) -> None:
    problems = Problems(skip=True)
    for number in range(LISTED + 5):
        with problems:
            raise UserError(f"line {number} is odd", file="x", line=number)
    problems.note("odd things", 7, "x:1")
    problems.save(tmp_path)
    reading = Reading.of(tmp_path)
    assert reading.skipped == {"line … is odd": LISTED + 5}
    assert (reading.notes["odd things"].count, reading.notes["odd things"].examples) == (7, ["x:1"])
    assert len(listed(tmp_path)) == LISTED


@pytest.mark.parametrize(
    ("problem", "general"),
    [
        ("expected 'it\\'s' at [3, 12), found \"it's\"", "expected … at […, …), found …"),
        ("expected CPR:3 in 1,024 lines", "expected CPR:3 in … lines"),
        ("document 7 (-1.5): P17 of IL6", "document … (…): P17 of IL6"),
    ],
)
def test_a_reason_is_what_problems_have_in_common(problem: str, general: str) -> None:
    assert reason(problem) == general
