"""`benchmarks/judged.py`: sentences in NYT10's form, who is mixed into training, and the committed page."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fedrel.config.sources import load_config
from fedrel.data.readers import reader
from fedrel.data.sentences import Instance, Mention

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "lazy_mil-judged"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("judged")


@pytest.fixture
def text(script: ModuleType) -> ModuleType:
    return import_module("judged_text")


def test_names_are_joined_as_in_nyt10(text: ModuleType) -> None:
    said = "In Old Town , they saw Ada Byron ."
    one = Instance(
        said, Mention("a", "Ada Byron", 23, 32), Mention("b", "Old Town", 3, 11), "/x", expresses=True
    )
    found = text.as_nyt10(one)
    assert found.text == "in old_town , they saw ada_byron ."
    assert (found.head.name, found.tail.name, found.head.start) == ("ada byron", "old town", 23)
    assert text.plain(found.text) == text.plain(said)
    assert text.with_ids(found, {"old town": "m.1"}).tail.id == "m.1"
    assert text.with_ids(found, {"old town": "m.1"}).head.id == "ada byron"


def test_the_power_of_the_bag_size_is_found_again(script: ModuleType) -> None:
    generator = np.random.default_rng(3)
    size = generator.integers(1, 40, 20_000)
    odds = 0.3 * size**0.8
    power, error = script.exponent(size, generator.random(len(size)) < odds / (1 + odds))
    assert abs(power - 0.8) < 3 * error < 0.1


@pytest.mark.parametrize(("sites", "of_one"), [(1, 2 / 3), (4, 1 / 2)])
def test_how_clean_randomly_chosen_text_is(
    script: ModuleType, tmp_path: Path, sites: int, of_one: float
) -> None:
    """Three sentences about a triple, of which one states it, and one about another: (1/3 + 1) / 2 is stated.

    At four sites with a sentence each, ONE has nothing to choose.
    """
    stating = {"ada": [True, False, False], "bo": [True]}
    lines = [
        Instance(
            f"{name} x{n} rome",
            Mention(name, name, 0, len(name)),
            Mention("r", "rome", len(name) + 4, len(name) + 8),
            "/lived",
            expresses=states,
        )
        for name, truth in stating.items()
        for n, states in enumerate(truth)
    ]
    for part in ("train", "dev", "test"):
        reader("jsonl").write(lines, tmp_path / f"{part}.jsonl")  # type: ignore[attr-defined]
    (tmp_path / "relations.json").write_text('{"NA": 0, "/lived": 1}')
    config = script.mixed_config(
        load_config("demo", [f"partition.sites={sites}", "training.fraction=1.0"]), tmp_path, "one", 1, 2
    )
    assert script.by_chance(config) == pytest.approx({"none": 1 / 2, "one": of_one, "lazy-mil": 2 / 3})


@pytest.mark.skipif(not RESULTS.exists(), reason="nothing is committed")
def test_the_committed_page_comes_from_its_json(script: ModuleType) -> None:
    reading = RESULTS / "reading.md"
    said = reading.read_text(encoding="utf-8") if reading.exists() else ""
    found = json.loads((RESULTS / "judged.json").read_text(encoding="utf-8"))
    assert (RESULTS / "README.md").read_text(encoding="utf-8") == script.page(found, said)
