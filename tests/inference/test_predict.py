"""Marks in a text become entities, and what a model finds is shown where it stands in the text."""

from __future__ import annotations

import pytest

from fedrel.data.convert import sentences_of
from fedrel.errors import UserError
from fedrel.extractors.findings import Finding, FoundEntity, Token
from fedrel.inference.model import DocumentModel, Model, Prediction, Support
from fedrel.inference.predict import predict_text
from fedrel.inference.text_forms import with_marks

TEXT = "Ada met Bo. Then Ada left.\n\nBo saw Cy and Ada."


def marks(*spans: tuple[int, int]) -> list[tuple[int, int, str]]:
    return [(start, end, "") for start, end in spans]


class Sentences(Model):
    """Says of every pair that they are friends."""

    def __init__(self) -> None:
        pass

    def predict(self, sentences, *, threshold=None):
        return [
            Prediction(
                *(one.head.id, one.head.name, "friend", one.tail.id, one.tail.name, 0.5),
                (
                    Support(
                        one.text, (one.head.start, one.head.end), (one.tail.start, one.tail.end), "", 0.25
                    ),
                ),
            )
            for one in sentences
        ]


class Documents(DocumentModel):
    """Finds one relation."""

    def __init__(self) -> None:
        self.pairs = {"pair_types": None, "directions": "both", "id_separator": None}

    def predict(self, documents, *, threshold=None):
        (one,) = documents
        ends = [
            FoundEntity(e.id, e.id, e.type, tuple((m.start, m.end) for m in e.mentions)) for e in one.entities
        ]
        return [Finding(0, one.id, one.text, ends[0], "met", ends[1], 0.7, (Token("met", 4, 7, 0.9),))]


def test_marks_of_one_wording_are_one_entity():
    document = with_marks(TEXT, marks((0, 3), (8, 10), (17, 20)), {})
    assert [(one.id, [mention.start for mention in one.mentions]) for one in document.entities] == [
        ("Ada", [0, 17]),
        ("Bo", [8]),
    ]
    assert [(one.text, one.head.name, one.tail.name) for one in sentences_of(document)] == [
        ("Ada met Bo.", "Ada", "Bo"),
        ("Ada met Bo.", "Bo", "Ada"),
    ]


@pytest.mark.parametrize("span", [(3, 3), (-1, 2), (0, 1000), (26, 28)])
def test_a_mark_that_is_not_in_the_text_is_refused(span):
    with pytest.raises(UserError, match="is not in the text"):
        with_marks(TEXT, marks(span), {})


def test_sentences_are_found_again_in_the_text():
    found = predict_text(Sentences(), TEXT, marks=marks((28, 30), (35, 37)))
    assert (found.asked, found.unit, len(found.lines)) == (2, "sentences", 2)
    (document,) = found.documents
    first = document["findings"][0]
    assert document["text"] == TEXT
    assert (first["h"]["mentions"], first["t"]["mentions"]) == ([(28, 30)], [(35, 37)])
    assert first["evidence"] == [{"text": "Bo saw Cy and Ada.", "start": 28, "end": 46, "share": 0.25}]


def test_marked_sentences_are_shown_without_their_marks():
    found = predict_text(Sentences(), "<e1>Ada</e1> met <e2>Bo</e2>.\n<e1>Cy</e1> met <e2>Bo</e2>.")
    assert [one["text"] for one in found.documents] == ["Ada met Bo.", "Cy met Bo."]
    assert [len(one["findings"]) for one in found.documents] == [1, 1]


def test_a_model_of_documents():
    found = predict_text(Documents(), TEXT, marks=marks((0, 3), (8, 10)))
    (document,) = found.documents
    assert (document["text"], found.unit, found.asked) == (TEXT, "documents", 1)
    assert document["findings"][0]["evidence"][0]["text"] == "met"


def test_raw_text_needs_entities_and_no_file_is_named_that_the_user_does_not_have():
    with pytest.raises(UserError, match="it is not known which entities to look for"):
        predict_text(Sentences(), TEXT)
    with pytest.raises(UserError) as error:
        predict_text(Sentences(), '{"text": 3, "h": 1, "t": 2}')
    assert error.value.file is None


def test_nothing_to_ask_finds_nothing():
    found = predict_text(Sentences(), TEXT, marks=marks((0, 3), (35, 37)))  # in different sentences
    assert (found.asked, found.lines, found.documents) == (0, [], [])
