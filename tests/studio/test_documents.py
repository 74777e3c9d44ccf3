"""Documents on the report's pages: texts cut where mentions and attended tokens are."""

from __future__ import annotations

import json
from pathlib import Path

from fedrel.studio.documents import document_views, stretches
from fedrel.studio.runs import FoundRelation, ReadDocument, read_run
from fedrel.studio.run_page import run_page
from fedrel.studio.report import write_run_report

TEXT = "Zorbine brought on <hot>-head."
FOUND = {
    "h": {"name": "Zorbine", "mentions": [[0, 7]]},
    "relation": "CID",
    "t": {"name": "hot-head", "mentions": [[19, 29]]},
    "probability": 0.875,
    "right": False,
    "evidence": [
        {"start": 8, "end": 15, "share": 0.6},
        {"start": 24, "end": 29, "share": 0.3},
        {"start": 0, "end": 7, "share": 0.05},
    ],
}


def test_a_text_is_cut_at_mentions_and_tokens() -> None:
    cut = stretches(TEXT, FoundRelation.model_validate(FOUND))
    assert "".join(one.text for one in cut) == TEXT
    told = [(one.text, one.head, one.tail, one.level) for one in cut if one.text.strip()]
    assert told == [
        ("Zorbine", True, False, 1),
        ("brought", False, False, 3),
        (" on ", False, False, 0),
        ("<hot>", False, True, 0),
        ("-head", False, True, 2),
        (".", False, False, 0),
    ]


def test_without_evidence_only_mentions_are_marked() -> None:
    (view,) = document_views(
        [ReadDocument.model_validate({"document": "1", "text": TEXT, "findings": [{**FOUND, "evidence": []}]})]
    )
    assert {one.level for one in view.findings[0].text} == {0}
    assert sum(one.head for one in view.findings[0].text) == 1
