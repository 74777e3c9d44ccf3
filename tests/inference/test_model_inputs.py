"""Strings with marked entities and dictionaries, as a model takes them."""

from __future__ import annotations

from typing import Any

import pytest

from fedrel.data.relations import NA
from fedrel.data.sentences import Instance, Mention
from fedrel.errors import UserError
from fedrel.inference.model import instances, parse


def test_marks_are_taken_out_and_entities_found() -> None:
    found = parse("The <e2>liver</e2> enzyme <e1:GENE>CYP2D6</e1>.")
    assert found.text == "The liver enzyme CYP2D6."
    assert found.head == Mention("CYP2D6", "CYP2D6", 17, 23, "GENE")
    assert found.tail == Mention("liver", "liver", 4, 9)
    assert found.relation == NA


def test_entities_may_overlap() -> None:
    found = parse("<e1>breast <e2>cancer</e2></e1>")
    assert (found.head.name, found.tail.name) == ("breast cancer", "cancer")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Aspirin relieves <e2>headache</e2>", "sentence 1: no entity <e1>...</e1>"),
        ("<e1>Aspirin</e1> relieves <e2>headache", "sentence 1: no entity <e2>...</e2>"),
        ("<e1></e1> relieves <e2>headache</e2>", "no entity <e1>"),
        ("<e1>A</e1> and <e1>B</e1> and <e2>C</e2>", "<e1> is there twice"),
        ("</e1>A<e1> and <e2>C</e2>", "no entity <e1>"),
    ],
)
def test_what_is_not_marked_is_refused_with_an_example(text: str, problem: str) -> None:
    with pytest.raises(UserError) as caught:
        list(instances(text))
    assert problem in caught.value.problem
    assert "<e1>Aspirin</e1>" in caught.value.hint


def test_all_forms_give_the_same_instance() -> None:
    text = "Aspirin relieves headache"
    head, tail = Mention("Aspirin", "Aspirin", 0, 7), Mention("headache", "headache", 17, 25)
    line: dict[str, Any] = {
        "text": text,
        "h": {"name": "Aspirin", "pos": [0, 7]},
        "t": {"name": "headache", "pos": [17, 25]},
    }
    instance = Instance(text, head, tail, NA)
    marked = "<e1>Aspirin</e1> relieves <e2>headache</e2>"
    assert list(instances([marked, line, instance])) == [instance] * 3
    for one in (marked, line, instance):
        assert list(instances(one)) == [instance]


def test_a_dictionary_that_is_wrong_is_named_by_its_number() -> None:
    good = "<e1>A</e1> and <e2>B</e2>"
    with pytest.raises(UserError, match="sentences:2: expected an object `h`"):
        list(instances([good, {"text": "A and B"}]))
