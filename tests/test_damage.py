"""A disk that lies: one changed bit in any file that a run relies on is noticed when the file is opened.

Positions are drawn from a fixed seed for every kind of file. What is read is either refused, with the file and what
to do, or says the same as before (a capital letter in an escape of JSON, say).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import fedrel
from fedrel.data import column_files
from fedrel.data.column_files import check_sums, checksum, write_sums
from fedrel.data.load import dataset
from fedrel.data.problems import Problems, Reading
from fedrel.errors import UserError
from fedrel.files import (
    ScratchFolder,
    _tidied,
    atomic_file,
    atomic_folder,
    cache_folder,
    locked,
    read_sealed,
    read_tensors,
    remove_leftovers,
    sealed,
    write_tensors,
    write_text,
)
from fedrel.runs.folder import read_run
from fedrel.studio.live.run_index import RunIndex
from tests.conftest import tiny

ROUNDS = 3


def flipped(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(bytes(content))


def noticed(path: Path, read: Callable[[], object], count: int, seed: int = 17) -> int:
    """Flip single bits of a file: reading must name it and a remedy, or read the same. Returns how often it did."""
    before, original = read(), path.read_bytes()
    refused = 0
    bits = range(8 * len(original))
    for bit in random.Random(seed).sample(bits, min(count, len(bits))):
        flipped(path, bit)
        column_files._verified.clear()  # as another process would read it
        try:
            assert read() == before, bit
        except UserError as error:
            assert str(path.name) in str(error) or str(path.parent) in str(error), error
            assert error.hint, error
            refused += 1
        path.write_bytes(original)
    column_files._verified.clear()
    assert read() == before
    return refused


def plain(tensors: dict[str, Any]) -> dict[str, Any]:
    return {name: (str(one.dtype), one.shape, one.tobytes()) for name, one in tensors.items()}


def test_weights(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.zeros((0, 4), np.int64),
        "c": np.array(1.0),
    }
    write_tensors(path, arrays, {"model": "toy"})

    def read() -> object:
        tensors, about = read_tensors(path, "weights", "restore it")
        return plain(tensors), about

    assert read() == (plain(arrays), {"model": "toy"})
    assert noticed(path, read, 300) == 300


def test_equal_weights_are_equal_files(tmp_path: Path) -> None:
    about = {"model": "toy", "Å": '"\\\n\x01', "method": "fedavg", "round": "7"}
    written = []
    for number in range(20):
        write_tensors(tmp_path / f"{number}", {"a": np.ones(2, np.float32), "Å": np.zeros(3)}, about)
        assert read_tensors(tmp_path / f"{number}", "weights", "")[1] == about
        written.append((tmp_path / f"{number}").read_bytes())
    assert len(set(written)) == 1


def test_weights_without_a_checksum_are_of_an_older_version(tmp_path: Path) -> None:
    save_file({"a": np.ones(2, np.float32)}, tmp_path / "old", metadata={"model": "toy"})
    assert read_tensors(tmp_path / "old", "weights", "")[1] == {"model": "toy"}


def test_sealed_json(tmp_path: Path) -> None:
    path = tmp_path / "about.json"
    write_text(path, json.dumps(sealed({"number": 1.5e-7, "names": ["Å", "b"], "none": None}), indent=1))
    assert noticed(path, lambda: read_sealed(path, "an account", "write it again"), 200) > 170
    write_text(path, "[1]")
    with pytest.raises(UserError, match="expected a JSON object"):
        read_sealed(path, "an account", "write it again")
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(UserError, match="is not an account, or is damaged"):
        read_sealed(path, "an account", "write it again")


def test_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDREL_CACHE", str(tmp_path))
    corpus = dataset(tiny().data).corpus
    kind, folder = type(corpus), corpus.folder

    def read() -> object:
        opened = kind.open(folder)
        return (
            opened.fingerprint,
            [opened.text_of(row) for row in range(3)],
            np.asarray(opened.split).tolist(),
        )

    for path in sorted(folder.iterdir()):
        if path.stat().st_size and path.name != "reading.json":
            bits = min(4, 8 * path.stat().st_size)
            assert noticed(path, read, bits) == bits, path
    index = json.loads(kind.index_in(folder).read_text())
    for key in ("xxh3_128", "sha256", "checked"):
        del index[key]
    kind.index_in(folder).write_text(
        json.dumps(index)
    )  # as version 0.1 wrote it: the fingerprint is compared
    assert noticed(folder / "relation.bin", read, 5) == 5


def test_changed_columns_were_used_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without comparing checksums: other labels under the same fingerprint."""
    monkeypatch.setenv("FEDREL_CACHE", str(tmp_path))
    monkeypatch.setattr("fedrel.data.column_files.checksum", lambda path: "")
    corpus = dataset(tiny().data).corpus
    before = np.array(corpus.relation)
    flipped(corpus.folder / "relation.bin", 0)
    column_files._verified.clear()
    opened: Any = type(corpus).open(corpus.folder)
    assert opened.fingerprint == corpus.fingerprint and (np.array(opened.relation) != before).sum() == 1


def test_a_damaged_corpus_of_the_cache_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDREL_CACHE", str(tmp_path))
    section = tiny().data
    before = dataset(section).corpus
    flipped(before.folder / "relation.bin", 0)
    after = dataset(section).corpus
    assert after.fingerprint == before.fingerprint
    assert checksum(after.folder / "relation.bin")


def test_columns_are_compared_once_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.bin").write_bytes(b"abc")
    write_sums(tmp_path)
    column_files._verified.clear()
    check_sums(tmp_path, "make it again")
    monkeypatch.setattr(column_files, "checksum", lambda path: pytest.fail("is read again"))
    check_sums(tmp_path, "make it again")


def test_lists_of_checksums(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"abc")
    check_sums(tmp_path, "make it again")  # a folder of version 0.1 has no list
    write_sums(tmp_path)
    (tmp_path / "a.bin").write_bytes(b"abd")
    with pytest.raises(UserError, match=r"a\.bin: is damaged: .*\nhint: make it again"):
        check_sums(tmp_path, "make it again")
    (tmp_path / "a.bin").unlink()
    with pytest.raises(UserError, match=r"a\.bin: is missing\nhint: make it again"):
        check_sums(tmp_path, "make it again")


def test_an_account_of_reading(tmp_path: Path) -> None:
    problems = Problems()
    problems.note("odd places", 2, "a.txt:3")
    problems.save(tmp_path)
    assert noticed(tmp_path / "reading.json", lambda: Reading.of(tmp_path), 50) > 40


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a method whose sites keep a state, stopped a round before its end."""
    out = tmp_path_factory.mktemp("damage") / "run"
    fedrel.run(config(ROUNDS - 1), out)
    return out


def config(rounds: int) -> Any:
    changes = {"training__rounds": rounds, "training__epochs": 1, "training__fraction": 1.0}
    return tiny(method="scaffold", partition__sites=2, **changes)


def copied(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    return tmp_path / "run"


@pytest.mark.parametrize(
    "pattern",
    ["checkpoint/round-*", "checkpoint/best-*", "sites/000000/round-*", "metrics.jsonl", "environment.json"],
)
def test_what_a_run_goes_on_with(pattern: str, finished: Path, tmp_path: Path) -> None:
    run = copied(finished, tmp_path)
    path = sorted(run.glob(pattern))[-1]
    bits = 8 * path.stat().st_size
    for bit in random.Random(3).sample(range(bits), 3):
        flipped(path, bit)
        with pytest.raises(UserError) as caught:
            fedrel.run(config(ROUNDS), run, resume=True)
        assert path.name in str(caught.value.file)
        assert caught.value.hint
        shutil.copyfile(finished / path.relative_to(run), path)
    fedrel.run(config(ROUNDS), run, resume=True)


@pytest.mark.parametrize(
    ("gone", "problem"),
    [
        ("metrics.jsonl", r"metrics\.jsonl: has 0 of the 2 rounds that the checkpoint has seen"),
        ("sites", r"sites: the states of all sites are gone, or of some: site 0 has none"),
        ("sites/000001", r"sites: .*site 1 has none"),
    ],
)
def test_what_was_removed(gone: str, problem: str, finished: Path, tmp_path: Path) -> None:
    run = copied(finished, tmp_path)
    (shutil.rmtree if (run / gone).is_dir() else os.unlink)(run / gone)
    with pytest.raises(UserError, match=problem) as caught:
        fedrel.run(config(ROUNDS), run, resume=True)
    assert "from a copy" in caught.value.hint


def test_what_was_removed_was_not_missed(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without looking for states: a site that lost its own goes on as if it had never trained."""
    monkeypatch.setattr("fedrel.runs.checkpoint._answered", lambda rounds: set())
    run = copied(finished, tmp_path)
    shutil.rmtree(run / "sites")
    fedrel.run(config(ROUNDS), run, resume=True)
    assert (run / "result.json").exists()


def test_a_changed_result_was_read_as_it_is(finished: Path, tmp_path: Path) -> None:
    """Without its checksum, as version 0.1 wrote it, another seed is another seed."""
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    tree = json.loads(path.read_text())
    del tree["checked"], tree["sha256"]
    path.write_text(json.dumps(tree | {"seed": 2}))
    assert read_run(tmp_path / "run").result.seed == 2


def test_what_comparisons_and_pages_are_made_from(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)

    def read() -> object:
        found = read_run(run)
        return found.result, found.environment, tomllib.loads(found.config)

    for name in ("result.json", "environment.json", "config.toml"):
        assert noticed(run / name, read, 60) > 40, name
    assert "checked" not in read_run(run).environment
    result = (run / "result.json").read_text()
    (run / "result.json").write_text(result.replace('"seed": 1', '"seed": 2'))
    listed = RunIndex(tmp_path)
    listed.scan()
    (row,) = listed.rows
    assert row.state == "unreadable" and "another SHA-256" in row.message


def test_a_model_folder(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "model", tmp_path / "model")
    sentence = "<e1>Ada</e1> saw <e2>Bo</e2>."

    def read() -> object:
        model: Any = fedrel.load_model(tmp_path / "model")
        return (
            model.relations,
            model.threshold,
            [found.probability for found in model.predict(sentence, threshold=0)],
        )

    for path in sorted((tmp_path / "model").iterdir()):
        assert noticed(path, read, 12) >= 10, path
    about = json.loads((tmp_path / "model" / "config.json").read_text())
    (other,) = list(about["files"])[:1]
    (tmp_path / "model" / other).unlink()
    with pytest.raises(UserError, match="is missing, or damaged"):
        fedrel.load_model(tmp_path / "model")


def test_leftovers_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = [tmp_path / ".fedrel-part-a.txt.xyz", tmp_path / "below" / ".fedrel-part-b.xyz"]
    (tmp_path / "below").mkdir()
    old[0].write_text("half")
    old[1].mkdir()
    (old[1] / "column.bin").write_text("half")
    fresh, kept = tmp_path / ".fedrel-part-c.xyz", tmp_path / ".hidden"
    fresh.write_text("just begun")
    kept.write_text("a user's")
    for path in old:
        os.utime(path, (0, 0))
    with atomic_file(tmp_path / "d.txt") as living, atomic_folder(tmp_path / "e") as folder:
        living.write_text("being written")
        for path in (living, folder):
            os.utime(path, (0, 0))
        assert remove_leftovers(tmp_path) == old[:1]
        with locked(tmp_path):  # as a run does when it starts
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [fresh.name, ".hidden", "below", "d.txt", "e"]
    assert not any((tmp_path / "below").iterdir())
    monkeypatch.setenv("FEDREL_CACHE", str(tmp_path))
    os.utime(fresh, (0, 0))
    cache_folder()
    assert not fresh.exists()


def test_folders_of_killed_processes_stayed(tmp_path: Path) -> None:
    """As it was, with the library's own folders: a site's text among the system's temporary files."""
    program = f"""
import os, tempfile
from pathlib import Path
kept = tempfile.TemporaryDirectory(dir={str(tmp_path)!r})
(Path(kept.name) / "text").write_text("of a site")
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    (left,) = tmp_path.iterdir()
    os.utime(left, (0, 0))
    assert remove_leftovers(tmp_path) == [] and (left / "text").read_text() == "of a site"


def test_scratch_folders_of_killed_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process is killed while it has one among the system's temporary files and one beside its target."""
    program = f"""
import os, tempfile
from pathlib import Path
from fedrel.files import ScratchFolder
tempfile.tempdir = {str(tmp_path)!r}
kept = [ScratchFolder(), ScratchFolder(Path({str(tmp_path)!r}))]
for one in kept:
    (Path(one.name) / "text").write_text("of a site")
os.kill(os.getpid(), 9)
"""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    subprocess.run([sys.executable, "-c", program], check=False)
    left = list(tmp_path.iterdir())
    assert len(left) == 2
    for path in left:
        os.utime(path, (0, 0))
    _tidied.cache_clear()
    with ScratchFolder() as mine:
        assert [str(path) for path in tmp_path.iterdir()] == [mine]
        os.utime(mine, (0, 0))
        assert remove_leftovers(tmp_path) == []  # it is in use
    assert not any(tmp_path.iterdir())
    _tidied.cache_clear()


def test_folders_were_open_to_all_users(tmp_path: Path) -> None:
    """As it was: made with the usual mode, under the usual umask."""
    before = os.umask(0o022)
    try:
        (tmp_path / "run").mkdir()
    finally:
        os.umask(before)
    assert (tmp_path / "run").stat().st_mode & (stat.S_IROTH | stat.S_IXOTH)


def test_folders_are_for_their_user_and_files_follow_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    monkeypatch.setenv("FEDREL_CACHE", str(tmp_path / "cache"))
    assert mode(cache_folder()) == 0o700
    with locked(tmp_path / "run"):
        write_text(tmp_path / "run" / "a", "")
        assert mode(tmp_path / "run") == 0o700
        monkeypatch.setattr("fedrel.files._UMASK", 0o027)
        write_text(tmp_path / "run" / "b", "")
        assert mode(tmp_path / "run" / "b") == 0o640
    with atomic_folder(tmp_path / "corpus"):
        pass
    assert mode(tmp_path / "corpus") == 0o700
