"""The table of leaks: it goes on where it stopped, names its mistakes, and its pages have every cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedrel.errors import UserError
from fedrel.leaks import leak_table as module
from fedrel.leaks.leak_cell import CountLeak, FactLeak, LeakCell, MembershipLeak, WordLeak
from fedrel.leaks.leak_defences import DEFENCES, fitting
from fedrel.leaks.leak_table import leak_table, read_cells
from fedrel.studio.protection_pages import leak_markdown, whole_table, write_leak_pages
from tests.conftest import tiny

RESULTS = Path(__file__).parents[2] / "results" / "leaks"


@pytest.fixture
def asked(monkeypatch):
    """Which cells were attacked; none is, and the third is interrupted."""
    found = []

    def attack(config, cell, defence, say):
        found.append((cell.method, cell.defence, config.privacy.secure_sum))
        if len(found) == 3:
            raise KeyboardInterrupt
        return cell

    monkeypatch.setattr(module, "attacked_cell", attack)
    return found


def test_a_table_that_was_stopped_goes_on_with_what_is_missing(out, asked):
    def make(**changes):
        return leak_table(tiny(**changes), out, ["fedavg", "feded"], ["none", "secure-sums"], 2)

    with pytest.raises(KeyboardInterrupt):
        make()
    assert len(make()) == 4
    assert asked == [
        ("fedavg", "none", False),
        ("fedavg", "secure-sums", True),
        ("feded", "none", False),
        ("feded", "none", False),
        ("feded", "secure-sums", True),
    ]
    with pytest.raises(UserError, match="is of another config"):
        make(seed=3)


@pytest.mark.parametrize(
    ("methods", "defences", "message"),
    [
        (["fedavg"], ["secure-sum"], "did you mean 'secure-sums'"),
        (["fedavg"], ["lora"], "lora is about extractor.lora_rank, which pcnn does not have"),
        (["fedaverage"], ["none"], "fedavg"),
    ],
)
def test_a_wrong_name_is_answered_with_what_there_is(out, asked, methods, defences, message):
    with pytest.raises(UserError, match=message):
        leak_table(tiny(), out, methods, defences, 2)
    assert not asked


def test_every_defence_is_a_valid_config_for_every_method():
    for method in ("lazy-mil", "lazy-one", "fedavg", "feded"):
        config = tiny(method=method, extractor__train_words=False)
        for name in fitting(config):
            made = config.with_settings(DEFENCES[name].over(config))
            assert made.extractor.train_words == (name in ("none", "secure-sums")), name
        config = tiny(method=method).with_settings({"extractor": {"kind": "transformer"}})
        for name in fitting(config):
            made = config.with_settings(DEFENCES[name].over(config))
            assert bool(made.extractor.lora_rank) == (name == "lora" or "dp" in name), name
    config = tiny(method="lazy-one")
    assert config.with_settings(DEFENCES["none"].over(config)).methods["lazy-one"]["levels"] == 0
    assert config.with_settings(DEFENCES["agreed"].over(config)).methods["lazy-one"]["keyed_triples"] is True


def cells():
    common = {"settings": {}, "config": "x", "rounds": 2, "seen": "answers", "attacked": 20, "shadows": 8}
    yield LeakCell(
        method="lazy-mil",
        defence="none",
        words=WordLeak(precision=1, recall=0.5, guessing=0.02, words=30),
        membership=MembershipLeak(
            auc=0.75, tpr_at_1_percent=0.104, tpr_at_0_1_percent=0.02, members=90, outsiders=40
        ),
        counts=CountLeak(correlation=0.91, beyond_average=0.42, guessing=0.8),
        facts=FactLeak(precision=1, recall=0.9, guessing=0.1, facts=30),
        why_not={"tokens": "the extractor is no transformer"},
        **common,
    )
    yield LeakCell(
        method="feded",
        defence="none",
        why_not=dict.fromkeys(("words", "facts", "tokens"), "nothing crosses"),
        **common,
    )
    yield LeakCell(method="feded", defence="secure-sums", stopped="too few sites", **common)
    yield LeakCell(method="lazy-mil", defence="dp-8", refused="claims", **common)


def test_the_page_has_a_row_for_each_defence_and_a_column_for_each_method():
    text = leak_markdown(list(cells()))
    assert "| feded | secure-sums | stopped | stopped | stopped | stopped |" in text
    assert "| none | P 1.00, R 0.50 (guessing 0.02) | nothing to attack |" in text
    assert "| none | 0.750 (10.4 %, 2.0 %) | — |" in text
    assert "| none | 0.42 (0.91) | — |" in text
    assert "| secure-sums | — | stopped |" in text
    assert "Tokens" not in text, "nobody has a transformer"
    assert "stopped: too few sites (feded under secure-sums)" in text
    assert "| lazy-mil | dp-8 | refused | refused | refused | refused |" in text
    assert "refused: claims (lazy-mil under dp-8)" in text


def test_pages_are_made_from_the_cells_files(out):
    from fedrel.runs.folder import write_json

    with pytest.raises(UserError, match="holds no attacked cells"):
        write_leak_pages(out)
    for one in cells():
        write_json(out / f"{one.method}.{one.defence}{module.SUFFIX}", one)
    page = write_leak_pages(out)
    assert page.read_text() == leak_markdown(read_cells(out))
    html = (out / "report.html").read_text()
    assert "0.750 (10.4 %, 2.0 %)" in html and "<script" not in html


@pytest.mark.skipif(not RESULTS.exists(), reason="no results yet")
def test_the_table_in_the_docs_is_that_of_the_results():
    page = (RESULTS.parents[1] / "docs" / "protection.md").read_text(encoding="utf-8")
    assert "\n".join(whole_table(read_cells(RESULTS))) in page


@pytest.mark.skipif(not RESULTS.exists(), reason="no results yet")
@pytest.mark.parametrize("folder", [RESULTS, RESULTS / "minilm"], ids=lambda folder: folder.name)
def test_the_page_of_results_is_that_of_its_cells(folder):
    assert (folder / "README.md").read_text(encoding="utf-8") == leak_markdown(read_cells(folder))
