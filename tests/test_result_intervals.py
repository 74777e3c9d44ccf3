"""Every difference with an interval, in README, docs and what is written by hand on pages, is one of `results/`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
MINUS = "\N{MINUS SIGN}"
NUMBER = rf"[+{MINUS}]?\d*\.\d+"
INTERVAL = re.compile(rf"(?:({NUMBER})(?: points)? )?\[({NUMBER}), ({NUMBER})\]")
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)


def prose(path: Path) -> str:
    """A file's text without code, in one line."""
    return " ".join(CODE.sub("", path.read_text(encoding="utf-8")).split())


PLACES = sorted(
    path
    for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("results/*/reading.md"))
    if INTERVAL.search(prose(path))
)

# Of runs that are not in results/: what is said of them says so.
NOT_KEPT = {
    "results/lazy_mil-table2/reading.md": {("+.001", "+.019"), (f"{MINUS}.007", "+.015")},
}


def intervals(found: Any) -> Iterator[tuple[float, float, float]]:
    """Mean, low and high of all intervals in a JSON file."""
    if isinstance(found, dict):
        if found.keys() >= {"mean", "low", "high"}:
            yield found["mean"], found["low"], found["high"]
        for value in found.values():
            yield from intervals(value)
    elif isinstance(found, list):
        for value in found:
            yield from intervals(value)


@cache
def measured() -> list[tuple[float, float, float]]:
    """All of `results/`, as they are and in per cent, and of the difference the other way round."""
    files = [*ROOT.glob("results/*/reproduction.json"), ROOT / "results/lazy_mil-judged/judged.json"]
    known = {one for file in files for one in intervals(json.loads(file.read_text(encoding="utf-8")))}
    return [(mean * scale, low * scale, high * scale) for mean, low, high in known for scale in (1, 100)]


def is_shown_as(value: float, text: str) -> bool:
    """Whether a number is what a text says, which has fewer digits."""
    digits = len(text.partition(".")[2])
    return abs(value - float(text.replace(MINUS, "-"))) <= 0.5000001 * 10**-digits


def signed(mean: str | None) -> bool:
    """Whether a difference says which way round it is."""
    return mean is not None and mean[0] in f"+{MINUS}"


@pytest.mark.parametrize("path", PLACES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_interval_that_is_written_by_hand_is_of_a_page(path: Path) -> None:
    text = prose(path)
    exceptions = NOT_KEPT.get(str(path.relative_to(ROOT)), set())
    wrong = []
    for found in INTERVAL.finditer(text):
        mean, low, high = found.groups()
        if (low, high) not in exceptions and not any(
            (mean is None or is_shown_as(own_mean if signed(mean) else abs(own_mean), mean))
            and (
                (is_shown_as(own_low, low) and is_shown_as(own_high, high))
                # "behind by .04 [.01, .08]": the difference the other way round
                or (not signed(mean) and is_shown_as(-own_high, low) and is_shown_as(-own_low, high))
            )
            for own_mean, own_low, own_high in measured()
        ):
            wrong.append(text[max(found.start() - 60, 0) : found.end()])
    assert not wrong
