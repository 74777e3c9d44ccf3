"""Sentences with people's verdicts, in three forms."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fedrel.data.problems import Problems
from fedrel.data.readers import reader
from fedrel.data.relations import NA
from fedrel.data.sentences import Instance
from fedrel.errors import UserError
from tests.data import samples


def read(name: str, content: str, folder: Path) -> list[Instance]:
    path = folder / "judged"
    path.write_text(content)
    return list(reader(name).read(path))


def pair(one: Instance) -> tuple[str, str]:
    return one.text[one.head.start : one.head.end], one.text[one.tail.start : one.tail.end]


def test_tokens_and_a_noise_flag(tmp_path: Path) -> None:
    first, second = read("judged-tokens", samples.JUDGED_TOKENS, tmp_path)
    assert (pair(first), first.relation, first.expresses) == (("Ada Byron", "Old Town"), "/lived_in", True)
    assert (pair(second), second.relation, second.expresses) == (("Ada", "Bo"), NA, False)


def test_lines_with_brackets_and_a_verdict(tmp_path: Path) -> None:
    found = read("judged-lines", samples.JUDGED_LINES, tmp_path)
    assert {one.text for one in found} == {"In Old Town , they saw Ada ."}
    assert {pair(one) for one in found} == {("Ada", "Old Town")}
    assert {(one.head.id, one.tail.id) for one in found} == {("g1", "g2")}
    assert [one.expresses for one in found] == [True, False, False, None, None]


def test_snippets_about_a_page_and_several_raters(tmp_path: Path) -> None:
    first, second, third = read("judged-snippets", samples.JUDGED_SNIPPETS, tmp_path)
    assert first.text == "Miss Byron got a B.A. and a M.A. there."
    assert (pair(first), first.head.name) == (("Byron", "B.A."), "Ada Byron")
    assert pair(second) == ("She", "B.A.")  # a pronoun, where the page's title is not there
    assert [one.expresses for one in (first, second, third)] == [True, False, None]  # 2:1, 0:2, 1:1


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        ("judged-tokens", "[3, 4]", "[3, 9]", "expected `pos` to be the first and the last token, of 6"),
        ("judged-tokens", "false}", "0}", "expected `is_noise` to be true or false"),
        ("judged-lines", "[Ada]1", "Ada", "does not have both"),
        ("judged-lines", "\t/lived_in", "", "expected 9 columns, found 8"),
        ("judged-snippets", "((NAM: B.A.)).", "B.A.", "the snippet has no object"),
        ("judged-snippets", "She never got her", "Nobody got a", "the snippet does not name 'Bo Li'"),
    ],
)
def test_what_is_wrong_is_named(name: str, old: str, new: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=problem.replace("(", r"\(")):
        read(name, samples.ONE_FILE[name].replace(old, new), tmp_path)


def test_the_real_files(real_data: Path) -> None:
    expected = {
        "judged-tokens": ("nyt_noise_sent.json.xz", {False: 314, True: 206}, 0),
        "judged-lines": ("nyt_sentential_byrelation.txt.xz", {False: 920, True: 299, None: 146}, 12),
        "judged-snippets": ("google_education_degree.json.xz", {True: 1668, False: 141, None: 25}, 16),
    }
    for name, (file, verdicts, left_out) in expected.items():
        problems = Problems(skip=True)
        rows = reader(name, problems).read(real_data / "judged" / file)
        assert Counter(one.expresses for one in rows) == verdicts
        assert sum(problems.reasons.values()) == left_out
