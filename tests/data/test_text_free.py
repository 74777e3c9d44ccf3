"""No corpus gives its labels away by the order, distance or types of pairs without docs/data.md saying so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedrel.config.check import check
from fedrel.config.schema import Config
from fedrel.config.sources import load_config, presets
from fedrel.data.load import Dataset, dataset, text_files
from fedrel.data.text_files import there
from fedrel.errors import UserError
from tests.conftest import REAL_DATA
from tests.data.text_free import text_free

LIMIT = 0.05
PAGE = Path(__file__).parents[2] / "docs" / "data.md"
ROW = re.compile(r"^\| `([^`]+)` \| (0\.\d+|\.\d+) \| (0\.\d+|\.\d+) \| ", re.MULTILINE)


def documented() -> dict[str, tuple[float, float]]:
    """By preset: F1 of one relation for all, and of the best rule, on test."""
    return {
        name: (float(constant), float(rule))
        for name, constant, rule in ROW.findall(PAGE.read_text(encoding="utf-8"))
    }


def at_hand(config: Config) -> bool:
    try:
        files = text_files(config.data)
    except UserError:  # no site has a file
        return False
    return bool(files) and all(there(one.path) for one in files)


def chemicals(folder: Path, directions: str) -> Dataset:
    """Abstracts of four chemicals, of which two random pairs are related, each in a random direction."""
    import numpy as np

    draw, blocks = np.random.default_rng(4), []
    names = ["acet", "benz", "citr", "dope"]
    for number in range(1, 121):
        order = draw.permutation(4).tolist()
        text = " ".join(names[place] for place in order)
        lines = [f"{number}|t|{text}", f"{number}|a|."]
        for at, place in enumerate(order):
            lines.append(f"{number}\t{5 * at}\t{5 * at + 4}\t{names[place]}\tChemical\tC{place}")
        for _ in range(2):
            head, tail = draw.permutation(4)[:2].tolist()
            lines.append(f"{number}\treacts\tC{head}\tC{tail}")
        blocks.append("\n".join(lines))
    (folder / "chr.pubtator").write_text("\n\n".join(blocks) + "\n\n", encoding="utf-8")
    tree = {
        "data": {
            "corpus": "documents",
            "format": "pubtator",
            "root": str(folder),
            "pool": ["chr.pubtator"],
            "directions": directions,
        },
        "extractor": {"kind": "document"},
        "evaluation": {"task": "documents"},
    }
    return dataset(check(Config, tree, "test").data)


@pytest.mark.parametrize(("directions", "leaks"), [("both", False), ("once", False), ("annotated", True)])
def test_only_the_rule_that_looks_at_labels_leaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directions: str, leaks: bool
) -> None:
    monkeypatch.setenv("FEDREL_CACHE", str(tmp_path / "cache"))
    data = chemicals(tmp_path, directions)
    found = text_free(data, data.test)
    assert (found.gain > LIMIT) == leaks, found
    if leaks:
        assert "order" in found.features


def test_no_preset_leaks_in_secret() -> None:
    """The rules of all presets: none looks at labels but the one that says so in its first line."""
    for name, about in presets().items():
        data = load_config(name).data
        if getattr(data, "directions", "both") == "annotated":
            assert "give labels away" in about


@pytest.mark.slow
@pytest.mark.skipif(REAL_DATA is None, reason="FEDREL_DATA names no folder of corpora")
def test_what_can_be_guessed_without_text_is_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDREL_DATA", str(REAL_DATA))
    said, asked = documented(), {}
    for name in presets():
        config = load_config(name)
        if config.data.corpus != "world" and at_hand(config):
            asked.setdefault(config.data.model_dump_json(), []).append(name)
    assert asked
    for names in asked.values():
        data = dataset(load_config(names[0]).data)
        found = text_free(data, data.test)
        if found.gain > LIMIT:
            named = [name for name in names if name in said]
            assert named, f"{names[0]}: {found}"
            assert said[named[0]] == pytest.approx((found.constant, found.rule), abs=0.006), named
