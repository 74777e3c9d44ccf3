from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.studio import formatting
from fedrel.studio.formatting import Spread


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99_949, "99.9 kB"), (99_950, "100 kB"), (999_499, "999 kB"),
     (999_500, "1.0 MB"), (5_900_000, "5.9 MB"), (3.2e9, "3.2 GB"), (7e12, "7.0 TB"), (None, "—")],
)  # fmt: skip
def test_size(value: float | None, text: str) -> None:
    assert formatting.size(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.042, "0.042 s"), (2.71, "2.7 s"), (33.1, "33 s"), (59.7, "1 min 00 s"), (75, "1 min 15 s"),
     (3599, "1 h 00 min"), (3675, "1 h 01 min"), (math.nan, "—")],
)  # fmt: skip
def test_duration(seconds: float, text: str) -> None:
    assert formatting.duration(seconds) == text


def test_numbers() -> None:
    assert [formatting.share(v) for v in (0.41249, 1, None, math.inf)] == ["0.412", "1.000", "—", "—"]
    assert [formatting.count(v) for v in (12000, 11.666, None)] == ["12,000", "11.7", "—"]
    assert [formatting.short(v, 9) for v in ("nine_char", "rather_long_name")] == ["nine_char", "rath…name"]
    assert [formatting.several(v) for v in ([1], [1, 2], "abc")] == ["1", "1 and 2", "a, b and c"]


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9))
def test_spread_is_the_sample_standard_deviation(values: list[float]) -> None:
    spread = Spread.of([*values, None, math.nan])
    assert spread is not None
    assert spread.runs == len(values)
    assert spread.mean == pytest.approx(statistics.mean(values))
    assert spread.std == pytest.approx(statistics.stdev(values))


def test_spread_of_one_and_none() -> None:
    assert Spread.of([0.5]) == Spread(0.5, 0.0, 1)
    assert Spread.of([None]) is None


def test_what_follows_a_mean() -> None:
    two, same, one = Spread.of([0.25, 0.75]), Spread.of([0.5, 0.5]), Spread.of([0.5])
    assert two is not None and same is not None and one is not None
    assert two.after_mean(formatting.share, 2) == " ± 0.354"
    assert two.after_mean(formatting.share, 3, mark="†") == " ± 0.354† (2 of 3)"
    assert same.after_mean(formatting.share, 2) == " ± 0.000"
    assert same.after_mean(formatting.share, 3, zero=False) == " (2 of 3)"
    assert (one.after_mean(formatting.share, 1), one.after_mean(formatting.share, 2)) == ("", " (1 of 2)")


def test_tables_in_markdown() -> None:
    assert formatting.markdown_table(["", "a|b"], [["c|d", "1"], ["e", "2"]]) == (
        "|  | a\\|b |\n| --- | ---: |\n| c\\|d | 1 |\n| e | 2 |"
    )
    assert formatting.markdown_table(["a", "b"], [], "|---|---|") == "| a | b |\n|---|---|"
