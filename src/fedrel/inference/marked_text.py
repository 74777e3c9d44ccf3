"""Sentences as users give them to a model: strings with marked entities, dictionaries, or a reader's instances.

In a string, `<e1>...</e1>` is the head and `<e2>...</e2>` the tail, as in SemEval-2010 Task 8; they may come in
either order. `<e1:GENE>...</e1>` also gives the entity's type, which models that blind entities need. An entity's
id is its text: sentences that mention the same two texts are pooled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedrel.data.mentions import unmarked
from fedrel.data.readers.opennre import Record
from fedrel.data.sentences import Instance
from fedrel.errors import UserError

Sentence = Instance | str | Mapping[str, Any]
"""An instance, a string with marked entities, or a dictionary as a line of OpenNRE's JSON."""


def instances(sentences: Iterable[Sentence] | Sentence) -> Iterator[Instance]:
    """The sentences as instances, one after another; a single one may be given as it is."""
    match sentences:
        case str() | Mapping() | Instance():
            sentences = [sentences]
    for number, one in enumerate(sentences, 1):
        match one:
            case str():
                yield parse(one, number)
            case Mapping():
                yield Record(dict(one), Path("sentences"), number).instance(labelled=False)
            case _:
                yield one


def parse(text: str, number: int = 1) -> Instance:
    """The instance that a string with marked entities stands for; errors name the sentence by its number.

    >>> found = parse("<e1:DRUG>Aspirin</e1> relieves <e2>headache</e2>")
    >>> found.text, found.head, found.tail.start
    ('Aspirin relieves headache', Mention(id='Aspirin', name='Aspirin', start=0, end=7, type='DRUG'), 17)
    """
    try:
        return unmarked(text)
    except UserError as error:
        raise UserError(f"sentence {number}: {error.problem}", hint=error.hint) from error
