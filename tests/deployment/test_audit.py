"""The record of what left: each line fits, every changed byte is noticed, an incomplete line breaks nothing."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedrel.deployment.answered import Answered
from fedrel.deployment.audit import BEGINNING, append, check, describe, fail_if_broken
from fedrel.deployment.folders import SiteFolder
from fedrel.deployment.keys import is_signed, signature, write_site_key
from fedrel.deployment.record_check import check_record, check_whole
from fedrel.errors import UserError


def update(round_: int) -> dict[str, np.ndarray]:
    return {"weights/a": np.full((2, 3), round_, np.float32), "examples": np.asarray(7, np.int64)}


def record(path: Path, rounds: int = 3) -> Path:
    for round_ in range(1, rounds + 1):
        append(path, describe("run", round_, "train", "Update", update(round_)))
    return path


def test_a_line_says_what_left_and_none_of_its_numbers(tmp_path):
    path = record(tmp_path / "audit.jsonl", 1)
    (line,) = check(path).lines
    entry = line.entry
    assert (entry.run, entry.round, entry.phase, entry.message) == ("run", 1, "train", "Update")
    assert [(f.name, f.dtype, f.shape, f.bytes) for f in entry.fields] == [
        ("examples", "int64", (), 8),
        ("weights/a", "float32", (2, 3), 24),
    ]
    assert entry.bytes == 32
    by_hand = hashlib.sha256(b'["examples", "int64", []]' + (7).to_bytes(8, "little"))
    by_hand.update(b'["weights/a", "float32", [2, 3]]' + np.ones(6, "<f4").tobytes())
    assert entry.digest == by_hand.hexdigest()


def test_lines_are_json_chained_by_sha256(tmp_path):
    path = record(tmp_path / "audit.jsonl")
    chain = BEGINNING
    for raw in path.read_bytes().splitlines():
        body = raw.split(b'"entry":', 1)[1][:-1]
        chain = hashlib.sha256(chain.encode() + body).hexdigest()
        assert json.loads(raw)["chain"] == chain
    audit = check(path)
    assert (audit.chain, audit.broken, audit.torn) == (chain, None, ())
    assert [line.number for line in audit.lines] == [1, 2, 3]


def test_an_empty_record_is_valid(tmp_path):
    audit = check(tmp_path / "audit.jsonl")
    assert (audit.lines, audit.broken, audit.chain) == ((), None, BEGINNING)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return record(tmp_path_factory.mktemp("site") / "audit.jsonl")


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255))
def test_any_changed_byte_is_noticed(whole, place, value):
    before = whole.read_bytes()
    try:
        data = bytearray(before)
        at = int(place * len(data))
        data[at] = value
        whole.write_bytes(data)
        broken = check(whole).broken
        assert (broken is not None) == (bytes(data) != before)
        if broken:
            assert broken.line == 1 + before[:at].count(b"\n")
    finally:
        whole.write_bytes(before)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True))
def test_missing_last_lines_are_noticed(whole, place):
    before = whole.read_bytes()
    try:
        whole.write_bytes(before[: int(place * len(before))])
        assert check(whole).broken is not None
    finally:
        whole.write_bytes(before)


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_missing_line_is_noticed(tmp_path, gone):
    path = record(tmp_path / "audit.jsonl")
    kept = path.read_bytes().splitlines(keepends=True)
    del kept[gone]
    path.write_bytes(b"".join(kept))
    broken = check(path).broken
    assert broken is not None and broken.line == gone + 1


def test_a_record_without_its_head_or_with_another_is_broken(tmp_path):
    path = record(tmp_path / "audit.jsonl")
    head = path.with_suffix(".head")
    head.write_text("no head")
    assert check(path).broken is not None
    head.unlink()
    assert check(path).broken is not None


@pytest.mark.parametrize("lines", [1, 3])
def test_a_changed_first_line_is_noticed_without_the_head_too(lines, tmp_path):
    path = record(tmp_path / "audit.jsonl", lines)
    path.with_suffix(".head").unlink()
    path.write_bytes(path.read_bytes().replace(b'"round":1', b'"round":5'))
    broken = check(path).broken
    assert broken is not None and broken.line == 1
    with pytest.raises(UserError, match=r"line 1 was changed.*nothing leaves"):
        fail_if_broken(check(path), path)


def test_an_incomplete_first_line_does_not_break_the_record(tmp_path):
    path = record(tmp_path / "audit.jsonl", 1)
    path.with_suffix(".head").unlink()
    path.write_bytes(path.read_bytes()[:-20])
    assert (check(path).lines, check(path).torn, check(path).broken) == ((), (1,), None)


def test_a_broken_record_takes_no_more_lines(tmp_path):
    path = record(tmp_path / "audit.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"round":2', b'"round":5') + b" ")
    with pytest.raises(UserError, match=r"line 2 was changed.*nothing leaves"):
        record(path, 1)


@settings(max_examples=20)
@given(cuts=st.lists(st.sampled_from([0, 0.01, 0.3, 0.99, 1]), min_size=1, max_size=3))
def test_a_torn_line_is_reported_and_the_next_one_goes_on(cuts):
    """A crash may come anywhere in a line, several times in a row: what was whole stays, nothing is broken."""
    with tempfile.TemporaryDirectory() as folder:
        path = record(Path(folder) / "audit.jsonl", 2)
        for cut in cuts:
            before, head = path.read_bytes(), path.with_suffix(".head").read_bytes()
            record(path, 1)
            grown = len(path.read_bytes()) - len(before)
            path.write_bytes(path.read_bytes()[: len(before) + int(cut * (grown - 1))])
            path.with_suffix(".head").write_bytes(head)
        torn = check(path)
        assert torn.broken is None
        assert len(torn.lines) == 2 + cuts.count(1)  # only the newline is missing: a whole line
        assert bool(torn.torn) == any(0 < cut < 1 for cut in cuts)
        record(path, 1)
        audit = check(path)
        assert audit.broken is None and len(audit.lines) == len(torn.lines) + 1
        assert audit.torn == torn.torn
        record(path, 1)
        assert check(path).broken is None


def test_a_torn_line_cannot_be_changed_afterwards(tmp_path):
    path = record(tmp_path / "audit.jsonl", 1)
    with path.open("ab") as file:
        file.write(b'{"chain":"12')
    record(path, 1)
    assert check(path).torn == (2,)
    path.write_bytes(path.read_bytes().replace(b'"chain":"12', b'"chain":"13', 1))
    broken = check(path).broken
    assert broken is not None and broken.line == 2


def test_a_whole_line_whose_head_was_not_written_counts(tmp_path):
    path = record(tmp_path / "audit.jsonl", 1)
    head = path.with_suffix(".head").read_bytes()
    record(path, 1)
    path.with_suffix(".head").write_bytes(head)
    record(path, 1)
    audit = check(path)
    assert (len(audit.lines), audit.broken, audit.torn) == (3, None, ())


def test_processes_may_write_at_the_same_time(tmp_path):
    path = tmp_path / "audit.jsonl"
    code = (
        "import sys; from pathlib import Path; from fedrel.deployment.audit import append, describe\n"
        "for n in range(20): append(Path(sys.argv[1]), describe('run', n, 'train', 'Update', {}))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    audit = check(path)
    assert (len(audit.lines), audit.broken, audit.torn) == (60, None, ())


@pytest.fixture
def signed_site(tmp_path: Path) -> SiteFolder:
    """A site with a key and a record of three signed lines."""
    folder = SiteFolder(tmp_path / "north")
    write_site_key(folder.path / "site.key", folder.path / "site.pub", "north")
    for round_ in (1, 2, 3):
        sign(folder, round_)
    return folder


def sign(folder: SiteFolder, round_: int) -> None:
    entry = describe("run", round_, "train", "Update", update(round_), policy={"allow": {}})
    key = folder.path / "site.key"
    Answered(folder.answered).recorded(*append(folder.audit, entry, partial(signature, key)))


def test_a_signed_record_is_whole(signed_site: SiteFolder):
    audit = check_record(signed_site)
    assert audit.broken is None and all(line.signed for line in audit.lines)
    assert is_signed(signed_site.path / "site.pub", audit.chain.encode(), audit.lines[-1].signed)


def rewrite(folder: SiteFolder, rounds: int, sign: bool = False) -> None:
    """Another record in place of the first, as someone without the key can make it: chain and head fit."""
    folder.audit.unlink()
    folder.audit.with_suffix(".head").unlink()
    for round_ in range(1, rounds + 1):
        entry = describe("run", 7 * round_, "train", "Update", update(round_), policy={"allow": {}})
        forged = (lambda chain: "30" * 40) if sign else None
        lines, chain = append(folder.audit, entry, forged)
    Answered(folder.answered).recorded(lines, chain)


@pytest.mark.parametrize(("forged", "reason"), [(False, "is not signed"), (True, "signature that is not")])
def test_a_rewritten_record_is_noticed_without_a_noted_value(signed_site: SiteFolder, forged, reason):
    rewrite(signed_site, 3, sign=forged)
    assert check(signed_site.audit).broken is None  # which the chain alone did not tell
    broken = check_record(signed_site).broken
    assert broken is not None and reason in broken.reason


def test_a_record_that_was_cut_off_with_its_head_is_noticed(signed_site: SiteFolder):
    lines = signed_site.audit.read_bytes().splitlines(keepends=True)[:2]
    signed_site.audit.write_bytes(b"".join(lines))
    head = {"lines": 2, "bytes": sum(map(len, lines)), "chain": json.loads(lines[1])["chain"]}
    signed_site.audit.with_suffix(".head").write_text(json.dumps(head))
    assert check(signed_site.audit).broken is None
    broken = check_record(signed_site).broken
    assert broken is not None and (broken.line, broken.reason) == (3, "is missing: the record had 3 lines")


def test_a_deleted_record_is_noticed(signed_site: SiteFolder):
    signed_site.audit.unlink()
    signed_site.audit.with_suffix(".head").unlink()
    assert check(signed_site.audit).broken is None
    with pytest.raises(UserError, match="line 1 is missing: the record had 3 lines"):
        check_whole(signed_site)


def test_deleted_counts_are_noticed(signed_site: SiteFolder):
    signed_site.answered.unlink()
    broken = check_record(signed_site).broken
    assert broken is not None and "whose counts are missing" in broken.reason


def test_a_record_of_an_earlier_version_goes_on(tmp_path):
    """Its lines have neither signatures nor rules; later ones have both."""
    folder = SiteFolder(tmp_path / "north")
    write_site_key(folder.path / "site.key", folder.path / "site.pub", "north")
    record(folder.audit, 2)
    assert check_record(folder).broken is None
    sign(folder, 3)
    assert check_record(folder).broken is None
