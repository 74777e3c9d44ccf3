from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fedrel.data.readers.gad import GAD
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance
from fedrel.errors import UserError

YES = "the @GENE$ variant raises the risk of @DISEASE$"
NO = "@DISEASE$ patients had no change in @GENE$ or @GENE$"


def table(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def spoken(one: Instance) -> tuple[str, str]:
    return one.text[one.head.start : one.head.end], one.text[one.tail.start : one.tail.end]


@pytest.mark.parametrize(
    "lines", [(f"{YES}\t1", f"{NO}\t0"), ("index\tsentence\tlabel", f"0\t{YES}\t1", "", f"1\t{NO}\t0")]
)
def test_with_and_without_a_header(tmp_path: Path, lines: tuple[str, ...]) -> None:
    first, second = GAD().read(table(tmp_path, *lines), relations=GAD.relations)
    assert (first.text, first.relation, second.relation) == (YES, "association", NA)
    assert spoken(first) == spoken(second) == ("@GENE$", "@DISEASE$")
    assert (first.head.type, first.tail.type) == ("GENE", "DISEASE")
    assert second.head.start == NO.index("@GENE$")  # the first of two


def test_every_line_is_a_pair_of_its_own_whatever_the_file_is_called(tmp_path: Path) -> None:
    path = table(tmp_path, f"{YES}\t1", f"{YES}\t1")
    first, second = GAD().read(path)
    assert len({first.head.id, first.tail.id, second.head.id, second.tail.id}) == 4
    again = list(GAD().read(path.rename(tmp_path / "other.tsv")))
    assert again == [first, second]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (YES, r"expected 2 columns \(sentence, label\), found 1"),
        (f"0\t{YES}\t1", r"expected 2 columns \(sentence, label\), found 3"),
        (f"{YES}\t2", "expected the label 0 or 1, found '2'"),
        ("the @GENE$ raises a risk\t1", r"the sentence has no @DISEASE\$\nhint: write @GENE\$ and"),
        ("it raises the risk of @DISEASE$\t1", r"the sentence has no @GENE\$"),
        (f"{YES}\t1", "'association' is not in the relation map"),
    ],
)
def test_says_which_line_is_wrong(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(UserError, match=rf"train\.tsv:2: .*{problem}"):
        list(GAD().read(table(tmp_path, f"{NO}\t0", line), relations=RelationMap([NA])))


@pytest.mark.parametrize(
    ("corpus", "fold", "size", "associated"),
    [
        ("GAD", "1", 5330, 2801),
        ("GAD", "10", 5330, 2801),
        ("GAD", "blurb", 5330, 2801),
        ("euadr", "1", 355, 262),
    ],
)
def test_real_files(real_data: Path, corpus: str, fold: str, size: int, associated: int) -> None:
    archive = real_data / "gad_euadr" / "REdata.zip"
    instances = [
        one
        for part in ("train", "dev", "test")
        for one in GAD().read(archive / corpus / fold / f"{part}.tsv")
    ]
    assert Counter(one.relation for one in instances) == {"association": associated, NA: size - associated}
    assert len({one.head.id for one in instances}) == size
    assert {spoken(one) for one in instances} == {("@GENE$", "@DISEASE$")}
