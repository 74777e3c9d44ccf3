"""Notes and tags are kept in one file; nothing else in the folder changes."""

from __future__ import annotations

import pytest

from fedrel.errors import UserError
from fedrel.studio.live.remarks import Remark, Remarks


def test_a_remark_is_kept_changed_and_removed(tmp_path):
    remarks = Remarks(tmp_path)
    assert remarks.of("a") == Remark()
    remarks.keep("a", " why ", ["good", " for  the paper ", "good", ""])
    assert Remarks(tmp_path).of("a") == Remark(note="why", tags=["good", "for the paper"])
    remarks.keep("b", "x", [])
    remarks.keep("a", "", [])
    assert set(Remarks(tmp_path).all()) == {"b"}
    assert [path.name for path in tmp_path.iterdir()] == ["studio.json"]


def test_limits(tmp_path):
    remarks = Remarks(tmp_path)
    with pytest.raises(UserError, match="characters"):
        remarks.keep("a", "x" * 4001, [])
    with pytest.raises(UserError, match="tags"):
        remarks.keep("a", "", ["x" * 41])
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_ours_is_not_overwritten(tmp_path):
    (tmp_path / "studio.json").write_text("[1]")
    remarks = Remarks(tmp_path)
    assert remarks.all() == {}
    with pytest.raises(UserError):
        remarks.keep("a", "x", [])
    assert (tmp_path / "studio.json").read_text() == "[1]"
