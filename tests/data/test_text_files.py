from __future__ import annotations

import bz2
import gzip
import lzma
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from fedrel.data.text_files import files_in, lines, paragraphs, stem
from fedrel.errors import UserError

CONTENT = "\ufefffirst\u2028still first\r\n\nthird \u00e9".encode()
LINES = [(1, "first\u2028still first"), (2, ""), (3, "third \u00e9")]


@pytest.mark.parametrize("suffix", ["txt", "txt.gz", "txt.bz2", "txt.xz", "zip"])
def test_every_form_reads_the_same(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"file.{suffix}"
    match suffix:
        case "zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.mkdir("folder")
                archive.writestr("folder/member.txt", CONTENT)
        case "txt":
            path.write_bytes(CONTENT)
        case _:
            module = {"txt.gz": gzip, "txt.bz2": bz2, "txt.xz": lzma}[suffix]
            path.write_bytes(module.compress(CONTENT))
    assert list(lines(path)) == LINES
    assert stem(path) == "file"


def test_paragraphs_keep_their_place(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    text = "One\r\ntwo.\r\n\r\n\nThree \U0001d4b3\n  \nfour"
    path.write_bytes(text.encode())
    found = list(paragraphs(path))
    assert "".join(part for _, part in found) == text
    assert all(text[start:].startswith(part) for start, part in found)
    assert [part.strip() for _, part in found if part.strip()] == ["One\r\ntwo.", "Three \U0001d4b3", "four"]


def test_a_paragraph_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("a line of text.\n" * 20_000)
    sizes = [len(part) for _, part in paragraphs(path)]
    assert sum(sizes) == 320_000 and max(sizes) < 70_000


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.txt: no such file"):
        list(lines(tmp_path / "none.txt"))


def test_bytes_that_are_no_text_are_found_by_line(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_bytes(b"good\nb\xe4d\n")
    with pytest.raises(UserError, match=r"file\.txt:2: byte 0xe4 is not UTF-8") as caught:
        list(lines(path))
    assert caught.value.line == 2


@pytest.mark.parametrize("suffix", ["gz", "xz", "bz2", "zip"])
def test_a_damaged_archive_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"file.{suffix}"
    path.write_bytes(b"this is not compressed")
    with pytest.raises(UserError, match="cannot read"):
        list(lines(path))


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(b"line\n" * 1000)[:-12])
    with pytest.raises(UserError, match="cannot read after line"):
        list(lines(path))


def test_an_archive_of_two_files_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "two.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "a")
        archive.writestr("b", "b")
    with pytest.raises(UserError, match="expected one file in the archive, found 2"):
        list(lines(path))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w") as content:
        content.mkdir("folder")
        content.writestr("folder/train.txt", CONTENT)
        content.writestr("folder/test.txt.gz", gzip.compress(CONTENT))
        content.writestr("other.txt", "other")
    return path


@pytest.mark.parametrize("name", ["train.txt", "test.txt.gz"])
def test_a_path_through_an_archive(archive: Path, name: str) -> None:
    assert list(lines(archive / "folder" / name)) == LINES
    assert stem(archive / "folder" / name) == name.partition(".")[0]


def test_a_folder_that_is_called_like_an_archive(tmp_path: Path) -> None:
    (tmp_path / "folder.zip").mkdir()
    (tmp_path / "folder.zip" / "train.txt").write_bytes(CONTENT)
    assert list(lines(tmp_path / "folder.zip" / "train.txt")) == LINES


@pytest.mark.parametrize("name", ["folder/trian.txt", "folder"])
def test_what_the_archive_does_not_have(archive: Path, name: str) -> None:
    with pytest.raises(UserError, match=rf"data\.zip: no file '{name}' in the archive\nhint: did you mean"):
        list(lines(archive / name))


def test_a_member_that_is_damaged_or_locked(tmp_path: Path) -> None:
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w") as content:
        content.writestr("train.txt", CONTENT)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"first", b"frist"))  # its checksum no longer fits
    with pytest.raises(UserError, match="cannot read after line 0: Bad CRC-32"):
        list(lines(path / "train.txt"))
    locked = bytearray(whole)
    locked[locked.index(b"PK\1\2") + 8] |= 1  # the flag that says that it is encrypted
    locked[6] |= 1
    path.write_bytes(locked)
    with pytest.raises(UserError, match=r"cannot read after line 0: .* encrypted"):
        list(lines(path / "train.txt"))


def test_files_in_a_folder(tmp_path: Path) -> None:
    for name in ("b.txt", "a/c.txt", "a.txt", ".hidden", ".git/x", "a/.DS_Store"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert files_in(tmp_path) == [tmp_path / name for name in ("a.txt", "a/c.txt", "b.txt")]
    with pytest.raises(UserError, match="expected a folder"):
        files_in(tmp_path / "a.txt")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        list(lines(tmp_path))


def test_a_small_archive_took_all_the_memory_it_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: no limit to how much a file grows."""
    monkeypatch.setattr("fedrel.data.text_files._SMALL", 1 << 60)
    path = tmp_path / "bomb.txt.gz"
    path.write_bytes(gzip.compress(b" " * (1 << 25)))
    assert path.stat().st_size < 1 << 16
    ((_, line),) = lines(path)
    assert len(line) == 1 << 25


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zip"])
def test_a_file_that_grows_without_end_is_refused(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty million spaces in a few kilobytes, all in one line, where one million are allowed."""
    monkeypatch.setattr("fedrel.data.text_files._SMALL", 1 << 20)
    path = tmp_path / f"bomb.txt{suffix}"
    content = b" " * (1 << 25)
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("bomb.txt", content)
    else:
        path.write_bytes({".gz": gzip, ".bz2": bz2, ".xz": lzma}[suffix].compress(content))
    tracemalloc.start()
    with pytest.raises(
        UserError,
        match=r"it grows more than 200 times when it is .*\nhint: if that is right, decompress it yourself",
    ):
        list(lines(path))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 24  # of which LZMA itself takes eight


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrel.data.text_files.LONGEST", 100)
    (tmp_path / "a.txt").write_bytes(b"short\n" + b"x" * 99 + b"\n" + b"x" * 101)
    with pytest.raises(UserError, match=r"a\.txt:3: has more than 100 bytes"):
        list(lines(tmp_path / "a.txt"))
