"""The page of findings: each document once, all findings on it, and more pages where there are very many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedrel.runs.records import FoundRelation, ReadDocument
from fedrel.studio.findings_page import PER_PAGE, arcs, document_view, relation_name
from fedrel.studio.report import write_findings_report
from tests.studio.html_page import Page

TEXT = "Zorbine against <hot>-head. Zorbine made\npatients sleepy. No more is known."
ABOUT = {"Model": "model runs/first (fedlcc)", "Threshold": "0.4 (tuned on dev)", "Input": "new.txt"}


def entity(name: str, identity: str, *mentions: tuple[int, int]) -> dict[str, Any]:
    return {"id": identity, "name": name, "type": "", "mentions": list(mentions)}


ZORBINE = entity("Zorbine", "D1", (0, 7), (28, 35))
HEAD = entity("<hot>-head", "D9", (16, 26))
SLEEPY = entity("sleepy", "D7", (50, 56))


def found(h: dict[str, Any], relation: str, t: dict[str, Any], probability: float) -> dict[str, Any]:
    token = {"text": "made", "start": 36, "end": 40, "share": 0.6}
    return {"h": h, "relation": relation, "t": t, "probability": probability, "evidence": [token]}


FINDINGS = [found(ZORBINE, "/drug/treats_disease", HEAD, 0.9), found(ZORBINE, "CID", SLEEPY, 0.7)]
DOCUMENT = {"document": "7", "text": TEXT, "findings": FINDINGS}


def test_each_document_is_there_once_with_all_its_findings(tmp_path: Path) -> None:
    write_findings_report(tmp_path / "found.html", [DOCUMENT], ABOUT, facts=2)
    text = (tmp_path / "found.html").read_text(encoding="utf-8")
    page = Page(text)
    words = " ".join(page.words.split())
    assert words.count("patients sleepy") == 1
    assert "2 relations in 1 document." in words
    assert "treats disease" in words and "CID" in words and "<hot>" in words
    assert all(value in words for value in ABOUT.values())
    assert words.count("Zorbine against <hot>-head. 7") == 1  # the title, and the id beside it
    assert not page.all("script")
    assert page.values == [0.9, 0.7]
    assert len(page.all("path")) == 2 and len(page.all("mark")) == 4
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(link["href"][1:] in ids for link in page.all("a") if link["href"].startswith("#"))


def test_very_many_documents_are_on_several_pages(tmp_path: Path) -> None:
    many = [{**DOCUMENT, "document": str(number)} for number in range(PER_PAGE + 1)]
    write_findings_report(tmp_path / "found.html", many, ABOUT, facts=402)
    first, second = (
        Page((tmp_path / name).read_text(encoding="utf-8")) for name in ("found.html", "found-2.html")
    )
    assert (len(first.all("article")), len(second.all("article"))) == (PER_PAGE, 1)
    assert {"href": "found-2.html"} in first.all("a") and {"href": "found.html"} in second.all("a")
    assert "402 relations in 201 documents." in " ".join(second.words.split())


def test_arcs_go_from_entity_to_entity_in_the_order_of_the_text() -> None:
    drawn = arcs([FoundRelation.model_validate(one) for one in FINDINGS])
    assert [name for name, _ in drawn.names] == ["Zorbine", "<hot>-head", "sleepy"]
    heights = dict(drawn.names)
    for arc, end in zip(drawn.arcs, ("<hot>-head", "sleepy"), strict=True):
        assert arc.path.startswith(f"M190.0 {heights['Zorbine']:.1f} ")
        assert arc.path.endswith(f" 190.0 {heights[end]:.1f}")
        assert arc.x <= drawn.width
    assert drawn.arcs[0].x < drawn.arcs[1].x


def test_a_long_title_is_cut_and_names_are_legible() -> None:
    text = "word " * 100 + "end."
    view = document_view(ReadDocument(document="1", text=text, findings=[]), "a")
    assert len(view.title) <= 140 and view.title.endswith("…")
    assert relation_name("/location/location/contains") == "contains"
    assert relation_name("place_of_birth") == "place of birth" and relation_name("/") == "/"


def test_sentences_are_shown_by_their_surest_fact(tmp_path: Path) -> None:
    pooled = {**FINDINGS[0], "sentences": 3}
    sentence = {"document": "notes.txt", "text": TEXT, "findings": [pooled, FINDINGS[1]]}
    other = {"document": "", "text": "Zorbine, <hot>-head.", "findings": [pooled]}
    write_findings_report(tmp_path / "found.html", [sentence, other], ABOUT, facts=2, unit="sentence")
    words = " ".join(Page((tmp_path / "found.html").read_text(encoding="utf-8")).words.split())
    assert "2 relations in 2 sentences." in words  # one of them is found from both
    assert "Zorbine treats disease <hot>-head notes.txt" in words
    assert words.count("from 3 sentences") == 2
